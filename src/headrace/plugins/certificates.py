"""Server certificates made at start, for `<transport tls>` with a private CA, or with `insecure`.

https://docs.fluentd.org/configuration/transport-section (Generated and Signed by Private CA). Needs the
package cryptography (`pip install 'headrace[tls]'`), imported when one is made. Unlike Fluentd's, a
certificate names its host as a subject alternative name too: current clients look at nothing else.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
    from cryptography.x509 import Certificate

INSTALL_HINT: Final = "install it with: pip install 'headrace[tls]'"


def cryptography_installed() -> bool:
    """Whether certificates can be made here; imports nothing."""
    return importlib.util.find_spec("cryptography") is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a certificate is to be. key_bits: of its RSA key. expiration: seconds from now."""

    key_bits: int
    country: str
    state: str
    locality: str
    common_name: str
    expiration: float
    digest: str


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
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key: RSAPrivateKey = rsa.generate_private_key(public_exponent=65537, key_size=wanted.key_bits)
    try:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, wanted.country),
                x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, wanted.state),
                x509.NameAttribute(NameOID.LOCALITY_NAME, wanted.locality),
                x509.NameAttribute(NameOID.COMMON_NAME, wanted.common_name),
            ]
        )
        names = x509.SubjectAlternativeName([x509.DNSName(wanted.common_name)])
    except ValueError as error:
        raise ConfError(f"the certificate's subject is not possible: {error}") from error
    issuer_cert, signing_key = (None, key) if authority is None else authority.load()
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer_cert is None else issuer_cert.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=wanted.expiration))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    digest = getattr(hashes, wanted.digest.upper())()
    try:
        cert = builder.sign(signing_key, digest)
    except ValueError as error:
        raise ConfError(f"the certificate cannot be signed: {error}") from error
    pem = serialization.Encoding.PEM
    return cert.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
