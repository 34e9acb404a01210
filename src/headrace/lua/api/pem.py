"""Certificates and keys of scripts, in the forms that they come in: the parsers of ngx.ssl.

What is parsed crosses as PEM text; it was read by OpenSSL once, so that what it stands for is known to be good.
"""

from __future__ import annotations

import binascii
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from headrace.core.openssl.certificates import PrivateKey, der_certificates, der_key, pem_certificates, pem_key
from headrace.core.openssl.handles import Output
from headrace.core.openssl.library import library
from headrace.errors import ConfError

certificates = functools.lru_cache(256)(pem_certificates)
private_key = functools.lru_cache(256)(pem_key)


def _pem_of(data: bytes, kind: bytes) -> bytes:
    text = binascii.b2a_base64(data, newline=False)
    lines = b"\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (kind, lines, kind)


def key_to_der(key: PrivateKey) -> bytes:
    """A private key in DER, as OpenSSL itself writes it."""
    lib = library()
    write = lib.crypto["i2d_PrivateKey_bio"]
    write.restype, write.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)
    with Output() as out:
        write(out.pointer, key.pointer)
        return out.text


def key_to_pem(key: PrivateKey) -> bytes:
    """A private key in PEM."""
    lib = library()
    write = lib.crypto["PEM_write_bio_PrivateKey"]
    pointers = ctypes.c_void_p
    write.restype = ctypes.c_int
    write.argtypes = (pointers, pointers, pointers, pointers, ctypes.c_int, pointers, pointers)
    with Output() as out:
        write(out.pointer, key.pointer, None, None, 0, None, None)
        return out.text


class PemApi:
    """No state. Each returns None for what cannot be read."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = ("pem_cert", "pem_key", "der_cert", "der_key", "cert_to_der", "key_to_der")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def pem_cert(text: bytes) -> bytes | None:
        """Certificates, our own first."""
        try:
            certificates(text)
        except ConfError:
            return None
        return text

    @staticmethod
    def pem_key(text: bytes) -> bytes | None:
        """A private key that is not encrypted."""
        try:
            private_key(text)
        except ConfError:
            return None
        return text

    @staticmethod
    def der_cert(data: bytes) -> bytes | None:
        """Certificates, one behind the other."""
        try:
            return b"".join(_pem_of(one.der(), b"CERTIFICATE") for one in der_certificates(data))
        except ConfError:
            return None

    @staticmethod
    def der_key(data: bytes) -> bytes | None:
        """A private key."""
        try:
            key = der_key(data)
        except ConfError:
            return None
        return key_to_pem(key)

    @staticmethod
    def cert_to_der(text: bytes) -> bytes | None:
        """The DER of all certificates of a PEM text."""
        try:
            return b"".join(one.der() for one in certificates(text))
        except ConfError:
            return None

    @staticmethod
    def key_to_der(text: bytes, passphrase: bytes | None) -> bytes | None:
        """The DER of a key, which a passphrase may open."""
        try:
            return key_to_der(pem_key(text, (passphrase,) if passphrase is not None else ()))
        except ConfError:
            return None
