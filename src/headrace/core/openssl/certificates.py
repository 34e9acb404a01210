"""Certificates and keys: read from PEM and DER, and what variables and logs ask of a certificate.

Sources are files by their path, or `data:` and the PEM text itself, as in nginx.
"""

from __future__ import annotations

import ctypes
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headrace.core.openssl.failure import drain, unusable
from headrace.core.openssl.handles import Handle, Memory, Output, der_of
from headrace.core.openssl.library import library
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATA: Final = "data:"
_RFC2253: Final = 0x1110317  # XN_FLAG_RFC2253
_NO_START_LINE: Final = "NO_START_LINE"


class Certificate(Handle):
    """An X509 certificate."""

    __slots__ = ()

    def __init__(self, pointer: int, *, borrowed: bool = False) -> None:
        if borrowed:
            library().X509_up_ref(pointer)
        super().__init__(pointer, "X509")

    def der(self) -> bytes:
        """The certificate in DER."""
        return der_of(self.pointer, "X509")

    def subject(self, *, legacy: bool = False) -> bytes:
        """The subject as RFC 2253 writes it; legacy: in OpenSSL's one-line form."""
        return _name(library().X509_get_subject_name(self.pointer), legacy=legacy)

    def issuer(self, *, legacy: bool = False) -> bytes:
        """The issuer, as `subject`."""
        return _name(library().X509_get_issuer_name(self.pointer), legacy=legacy)

    def serial(self) -> bytes:
        """The serial number in hexadecimal digits."""
        lib = library()
        with Output() as out:
            lib.i2a_ASN1_INTEGER(out.pointer, lib.X509_get_serialNumber(self.pointer))
            return out.text

    def begins(self) -> bytes:
        """When it becomes valid, as OpenSSL prints a time."""
        return _time(library().X509_get0_notBefore(self.pointer))

    def ends(self) -> bytes:
        """When it ceases to be valid, as OpenSSL prints a time."""
        return _time(library().X509_get0_notAfter(self.pointer))

    def days_left(self, now: float) -> int:
        """Whole days from `now` (seconds of the epoch) until it ends, 0 when it has ended."""
        text = self.ends().decode().removesuffix(" GMT")
        try:
            end = datetime.strptime(text, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return 0
        return max(int((end - now) // 86400), 0)

    def fingerprint(self) -> bytes:
        """SHA-1 of the DER in hexadecimal digits."""
        return hashlib.sha1(self.der(), usedforsecurity=False).hexdigest().encode()


class PrivateKey(Handle):
    """A private key."""

    __slots__ = ()

    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, "EVP_PKEY")


def _name(name: int, *, legacy: bool) -> bytes:
    lib = library()
    if legacy:
        where: int | None = lib.X509_NAME_oneline(name, None, 0)
        if not where:
            return b""
        try:
            return ctypes.string_at(where)
        finally:
            lib.CRYPTO_free(where, b"", 0)
    with Output() as out:
        lib.X509_NAME_print_ex(out.pointer, name, 0, _RFC2253)
        return out.text


def _time(time: int) -> bytes:
    with Output() as out:
        library().ASN1_TIME_print(out.pointer, time)
        return out.text


def read_source(source: str, call: str = "BIO_new_file") -> bytes:
    """The bytes of a file, or of the text behind `data:`. Raises ConfError as nginx words it, without what for."""
    if source.startswith(DATA):
        return source[len(DATA) :].encode("utf-8", "surrogateescape")
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        detail = f"SSL: error:80000002:system library::{error.strerror}:calling fopen({source}, r)"
        raise ConfError(f"{call}() failed ({detail})") from error


def pem_certificates(data: bytes) -> list[Certificate]:
    """All certificates of a PEM text, at least one. Raises ConfError."""
    lib = library()
    found: list[Certificate] = []
    with Memory(data) as bio:
        pointer = lib.PEM_read_bio_X509_AUX(bio, None, None, None)
        if not pointer:
            raise unusable(lib, "PEM_read_bio_X509_AUX() failed")
        found.append(Certificate(pointer))
        while pointer := lib.PEM_read_bio_X509(bio, None, None, None):
            found.append(Certificate(pointer))
        reason, queue = drain(lib)
    if reason != _NO_START_LINE:
        raise ConfError(f"PEM_read_bio_X509() failed (SSL: {queue})")
    return found


def der_certificates(data: bytes) -> list[Certificate]:
    """All certificates of a DER text, one behind the other. Raises ConfError."""
    lib = library()
    found: list[Certificate] = []
    at = 0
    while at < len(data):
        piece = ctypes.create_string_buffer(data[at:], len(data) - at)
        where = ctypes.c_void_p(ctypes.addressof(piece))
        begun = where.value or 0
        pointer = lib.d2i_X509(None, ctypes.byref(where), len(data) - at)
        if not pointer:
            raise unusable(lib, "d2i_X509() failed")
        found.append(Certificate(pointer))
        at += (where.value or 0) - begun
    if not found:
        raise ConfError("d2i_X509() failed: no certificate")
    return found


def pem_key(data: bytes, passphrases: Iterable[bytes] = ()) -> PrivateKey:
    """The private key of a PEM text, opened by the first passphrase that fits. Raises ConfError."""
    lib = library()
    for word in (*passphrases, b""):
        with Memory(data) as bio:
            pointer = lib.PEM_read_bio_PrivateKey(bio, None, None, word)
        if pointer:
            lib.ERR_clear_error()
            return PrivateKey(pointer)
        if not any(passphrases):
            break
        last = unusable(lib, "PEM_read_bio_PrivateKey() failed")
    else:
        raise last
    raise unusable(lib, "PEM_read_bio_PrivateKey() failed")


def der_key(data: bytes) -> PrivateKey:
    """The private key of a DER text (PKCS 8, or the older forms). Raises ConfError."""
    lib = library()
    piece = ctypes.create_string_buffer(data, len(data))
    where = ctypes.c_void_p(ctypes.addressof(piece))
    pointer = lib.d2i_AutoPrivateKey(None, ctypes.byref(where), len(data))
    if not pointer:
        raise unusable(lib, "d2i_AutoPrivateKey() failed")
    return PrivateKey(pointer)


class KeyPair:
    """A chain of certificates, our own first, and its key."""

    __slots__ = ("chain", "key", "source")

    def __init__(self, chain: Sequence[Certificate], key: PrivateKey, source: str = "") -> None:
        self.chain = tuple(chain)
        self.key = key
        self.source = source


def load_pair(cert: str, key: str, passphrases: tuple[bytes, ...] = ()) -> KeyPair:
    """Read a chain and its key. Raises ConfError as nginx words it."""
    try:
        chain = pem_certificates(read_source(cert))
    except ConfError as error:
        raise ConfError(f'cannot load certificate "{cert}": {error.message}') from error
    if key.startswith("engine:"):
        raise ConfError('a key of an "engine:" is not supported by headrace')
    try:
        opened = pem_key(read_source(key), passphrases)
    except ConfError as error:
        raise ConfError(f'cannot load certificate key "{key}": {error.message}') from error
    return KeyPair(chain, opened, cert)
