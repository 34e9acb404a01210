"""OCSP (RFC 6960): questions about a certificate, and what an answer is worth. No I/O.

A certificate is asked about together with the one that issued it; who answers is in the certificate itself.
"""

from __future__ import annotations

import ctypes
from calendar import timegm
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.certificates import Certificate
from headrace.core.openssl.failure import drain
from headrace.core.openssl.handles import items
from headrace.core.openssl.library import library

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD, REVOKED, UNKNOWN = 0, 1, 2
NO_VERIFY: Final = 0x10
TRUST_OTHER: Final = 0x200
_SKEW: Final = 300  # seconds that clocks may differ
_SUCCESSFUL: Final = 0


class OcspError(Exception):
    """An answer that is of no use."""


@dataclass(frozen=True)
class Answer:
    """What a responder says. status: GOOD, REVOKED, UNKNOWN; until: seconds of the epoch, None: it does not say."""

    status: int
    until: float | None

    @property
    def words(self) -> str:
        """The status as OpenSSL names it."""
        text: bytes = library().OCSP_cert_status_str(self.status)
        return text.decode()


class _Freed:
    """Pointers that are freed at the end of a block."""

    def __init__(self) -> None:
        self._all: list[tuple[str, int]] = []

    def __enter__(self) -> _Freed:
        return self

    def __exit__(self, *_error: object) -> None:
        lib = library()
        for kind, pointer in reversed(self._all):
            getattr(lib, f"{kind}_free")(pointer)

    def own(self, kind: str, pointer: int | None) -> int:
        """Take a pointer. Raises OcspError when it is none."""
        if not pointer:
            reason, queue = drain(library())
            raise OcspError(f"{kind} failed (SSL: {queue})" if reason else f"{kind} failed")
        self._all.append((kind, pointer))
        return pointer


def responder_of(certificate: Certificate) -> str | None:
    """Who answers for a certificate: the first OCSP address in it."""
    lib = library()
    stack = lib.X509_get1_ocsp(certificate.pointer)
    if not stack:
        return None
    try:
        found: list[bytes] = [ctypes.string_at(one) for one in items(stack)]
        return found[0].decode("latin-1") if found else None
    finally:
        lib.X509_email_free(stack)


def issuer_among(certificate: Certificate, candidates: Sequence[Certificate]) -> Certificate | None:
    """The certificate that issued one."""
    lib = library()
    return next((one for one in candidates if lib.X509_check_issued(one.pointer, certificate.pointer) == 0), None)


def issuer_in_store(certificate: Certificate, store: int) -> Certificate | None:
    """The certificate that issued one, among those that are trusted (an X509_STORE)."""
    lib = library()
    context = lib.X509_STORE_CTX_new()
    try:
        found = ctypes.c_void_p()
        if lib.X509_STORE_CTX_init(context, store, None, None) != 1:
            return None
        if lib.X509_STORE_CTX_get1_issuer(ctypes.byref(found), context, certificate.pointer) != 1:
            return None
        return Certificate(found.value or 0)
    finally:
        lib.X509_STORE_CTX_free(context)
        lib.ERR_clear_error()


def chain_of(certificate: Certificate, others: Sequence[Certificate], store: int) -> list[Certificate]:
    """The chain from a certificate to one that is trusted; a resumed session has none of its own."""
    lib = library()
    context = lib.X509_STORE_CTX_new()
    untrusted = lib.OPENSSL_sk_new_null()
    try:
        for one in others:
            lib.OPENSSL_sk_push(untrusted, one.pointer)
        if lib.X509_STORE_CTX_init(context, store, certificate.pointer, untrusted) != 1:
            return []
        lib.X509_verify_cert(context)
        stack = lib.X509_STORE_CTX_get1_chain(context)
        found = [Certificate(one) for one in items(stack)]
        lib.OPENSSL_sk_free(stack)
        return found
    finally:
        lib.X509_STORE_CTX_free(context)
        lib.OPENSSL_sk_free(untrusted)
        lib.ERR_clear_error()


def question(certificate: Certificate, issuer: Certificate) -> bytes:
    """The request about a certificate, in DER. Raises OcspError."""
    lib = library()
    with _Freed() as freed:
        request = freed.own("OCSP_REQUEST", lib.OCSP_REQUEST_new())
        identity = lib.OCSP_cert_to_id(None, certificate.pointer, issuer.pointer)
        if not identity or not lib.OCSP_request_add0_id(request, identity):
            raise OcspError("OCSP_request_add0_id() failed")
        return _der(lib.i2d_OCSP_REQUEST, request)


def identity_of(certificate: Certificate, issuer: Certificate) -> bytes:
    """What a certificate is known by in questions and answers, in DER."""
    lib = library()
    with _Freed() as freed:
        return _der(lib.i2d_OCSP_CERTID, _identity(freed, certificate, issuer))


def _identity(freed: _Freed, certificate: Certificate, issuer: Certificate) -> int:
    return freed.own("OCSP_CERTID", library().OCSP_cert_to_id(None, certificate.pointer, issuer.pointer))


def _der(encode: Any, pointer: int) -> bytes:
    lib = library()
    where = ctypes.c_void_p()
    size = encode(pointer, ctypes.byref(where))
    try:
        return ctypes.string_at(where.value or 0, max(size, 0))
    finally:
        lib.CRYPTO_free(where, b"", 0)


def judge(
    response: bytes,
    certificate: Certificate,
    issuer: Certificate,
    *,
    store: int | None = None,
    chain: Sequence[Certificate] = (),
    flags: int = TRUST_OTHER,
) -> Answer:
    """What a response (DER) says of a certificate. Raises OcspError.

    store: an X509_STORE of those who are trusted to sign answers, with `chain` beside it. flags: NO_VERIFY: any
    signature will do; TRUST_OTHER: those of the chain may sign.
    """
    lib = library()
    lib.ERR_clear_error()
    with _Freed() as freed:
        room = ctypes.create_string_buffer(response, len(response))
        where = ctypes.c_void_p(ctypes.addressof(room))
        whole = lib.d2i_OCSP_RESPONSE(None, ctypes.byref(where), len(response))
        if not whole:
            raise OcspError(f"d2i_OCSP_RESPONSE() failed (SSL: {drain(lib)[1]})")
        freed.own("OCSP_RESPONSE", whole)
        code = lib.OCSP_response_status(whole)
        if code != _SUCCESSFUL:
            raise OcspError(f"OCSP response not successful ({code}: {lib.OCSP_response_status_str(code).decode()})")
        basic = freed.own("OCSP_BASICRESP", lib.OCSP_response_get1_basic(whole))
        stack = lib.OPENSSL_sk_new_null()
        try:
            for one in chain:
                lib.OPENSSL_sk_push(stack, one.pointer)
            if lib.OCSP_basic_verify(basic, stack, store, flags) != 1:
                raise OcspError(f"OCSP_basic_verify() failed (SSL: {drain(lib)[1]})")
        finally:
            lib.OPENSSL_sk_free(stack)
        identity = _identity(freed, certificate, issuer)
        return _status(basic, identity)


def _status(basic: int, identity: int) -> Answer:
    lib = library()
    status = ctypes.c_int()
    this, following = ctypes.c_void_p(), ctypes.c_void_p()
    found = lib.OCSP_resp_find_status(
        basic, identity, ctypes.byref(status), None, None, ctypes.byref(this), ctypes.byref(following)
    )
    if found != 1:
        raise OcspError("certificate status not found in the OCSP response")
    if lib.OCSP_check_validity(this, following, _SKEW, -1) != 1:
        raise OcspError(f"OCSP_check_validity() failed (SSL: {drain(lib)[1]})")
    return Answer(status.value, _seconds(following.value) if following.value else None)


_TM: Final = ("sec", "min", "hour", "mday", "mon", "year", "wday", "yday", "dst")


class _Tm(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_int) for name in _TM),
                ("gmtoff", ctypes.c_long), ("zone", ctypes.c_void_p))  # fmt: skip


def _seconds(time: int) -> float | None:
    parts = _Tm()
    if library().ASN1_TIME_to_tm(time, ctypes.byref(parts)) != 1:
        return None
    return float(timegm((parts.year + 1900, parts.mon + 1, parts.mday, parts.hour, parts.min, parts.sec)))
