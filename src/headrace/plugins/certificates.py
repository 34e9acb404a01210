"""Certificates: those made at start for `<transport tls>` (a private CA, or `insecure`), those of `headrace ca`.

https://docs.fluentd.org/configuration/transport-section (Generated and Signed by Private CA). Needs the
package cryptography (`pip install 'headrace[tls]'`), imported when one is made. Unlike Fluentd's, a
certificate names its host as a subject alternative name too: current clients look at nothing else.
"""

from __future__ import annotations

import importlib.util
import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
    from cryptography.x509 import Certificate

INSTALL_HINT: Final = "install it with: pip install 'headrace[tls]'"


def cryptography_installed() -> bool:
    """Whether certificates can be made here; imports nothing."""
    return importlib.util.find_spec("cryptography") is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a certificate is to be. key_bits: of its RSA key. expiration: seconds from now.

    names: host names and addresses it is for, beside common_name. client: it is a client's, not a server's.
    """

    key_bits: int
    country: str
    state: str
    locality: str
    common_name: str
    expiration: float
    digest: str
    names: tuple[str, ...] = ()
    client: bool = False


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs: PEM files of a CA certificate and its key."""

    cert_path: str
    key_path: str
    passphrase: str | None = None

    def load(self) -> tuple[Certificate, CertificateIssuerPrivateKeyTypes]:
        """Read both. Raises ConfError, naming the file."""
        from cryptography import x509  # noqa: PLC0415 - an optional dependency
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

        path = self.cert_path
        try:
            cert = x509.load_pem_x509_certificate(Path(path).read_bytes())
            path = self.key_path
            word = None if self.passphrase is None else self.passphrase.encode("utf-8", "surrogateescape")
            key = serialization.load_pem_private_key(Path(path).read_bytes(), word)
        except (OSError, ValueError, TypeError) as error:
            raise ConfError(f'cannot load "{path}": {error}') from error
        return cert, key  # type: ignore[return-value]  # the other kinds of keys cannot be a certificate's


def make(wanted: Wanted, authority: Authority | None = None) -> tuple[bytes, bytes]:
    """A certificate and its key as PEM; signed by itself without an authority. Raises ConfError."""
    from cryptography import x509  # noqa: PLC0415 - an optional dependency
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    key = _new_key(wanted)
    issuer_cert, signing_key = (None, key) if authority is None else authority.load()
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if wanted.client else ExtendedKeyUsageOID.SERVER_AUTH
    builder = (
        _builder(wanted, key, None if issuer_cert is None else issuer_cert.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_alternatives(wanted), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return _signed(builder, signing_key, wanted), _pem_key(key, None)


def make_authority(wanted: Wanted, passphrase: str | None) -> tuple[bytes, bytes]:
    """A CA's certificate and its key as PEM, encrypted when a passphrase is given. Raises ConfError."""
    from cryptography import x509  # noqa: PLC0415 - an optional dependency

    key = _new_key(wanted)
    use = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    builder = (
        _builder(wanted, key, None)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(**use, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, wanted), _pem_key(key, passphrase)


def _new_key(wanted: Wanted) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - an optional dependency

    try:
        return rsa.generate_private_key(public_exponent=65537, key_size=wanted.key_bits)
    except ValueError as error:
        raise ConfError(f"a key of {wanted.key_bits} bits cannot be made: {error}") from error


def _builder(wanted: Wanted, key: RSAPrivateKey, issuer: x509.Name | None) -> x509.CertificateBuilder:
    from cryptography import x509  # noqa: PLC0415 - an optional dependency
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    try:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, wanted.country),
                x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, wanted.state),
                x509.NameAttribute(NameOID.LOCALITY_NAME, wanted.locality),
                x509.NameAttribute(NameOID.COMMON_NAME, wanted.common_name),
            ]
        )
    except ValueError as error:
        raise ConfError(f"the certificate's subject is not possible: {error}") from error
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=wanted.expiration))
    )


def _alternatives(wanted: Wanted) -> x509.SubjectAlternativeName:
    from cryptography import x509  # noqa: PLC0415 - an optional dependency

    made: list[x509.GeneralName] = []
    for name in dict.fromkeys((wanted.common_name, *wanted.names)):
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            try:
                made.append(x509.DNSName(name))
            except ValueError as error:
                raise ConfError(f"the certificate's subject is not possible: {error}") from error
    return x509.SubjectAlternativeName(made)


def _signed(builder: x509.CertificateBuilder, key: CertificateIssuerPrivateKeyTypes, wanted: Wanted) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - an optional dependency

    digest = getattr(hashes, wanted.digest.upper())()
    try:
        cert = builder.sign(key, digest)
    except ValueError as error:
        raise ConfError(f"the certificate cannot be signed: {error}") from error
    return cert.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: RSAPrivateKey, passphrase: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an optional dependency

    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        lock = serialization.BestAvailableEncryption(passphrase.encode("utf-8", "surrogateescape"))
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
