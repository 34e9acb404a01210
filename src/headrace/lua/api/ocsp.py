"""ngx.ocsp: whether the certificates that a script serves still hold.

https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/ocsp.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.core.openssl import ocsp
from headrace.core.openssl.certificates import der_certificates
from headrace.core.openssl.library import library
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.core.openssl.certificates import Certificate

Why = tuple[None, bytes]


class _Unusable(Exception):
    """A chain that nothing can be asked about."""


def _pair(chain: bytes) -> tuple[Certificate, Certificate]:
    """The certificate and its issuer. Raises _Unusable."""
    try:
        found = der_certificates(chain)
    except ConfError:
        raise _Unusable("d2i_X509_bio() failed") from None
    if len(found) < 2:
        raise _Unusable("no issuer certificate in chain")
    return found[0], found[1]


def _words(error: Exception) -> bytes:
    return str(error).partition(" (SSL:")[0].encode()


class OcspApi:
    """No state. What is not there, or is wrong, is told by None and the words."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {name: getattr(self, name) for name in ("ocsp_responder", "ocsp_request", "ocsp_judge")}

    @staticmethod
    def ocsp_responder(chain: bytes) -> bytes | Why | None:
        """Who answers for a chain (DER); None: nobody."""
        try:
            first = der_certificates(chain)[0]
        except ConfError:
            return None, b"d2i_X509_bio() failed"
        url = ocsp.responder_of(first)
        if url is None:
            return None
        try:
            certificate, issuer = _pair(chain)
        except _Unusable as error:
            return None, _words(error)
        if library().X509_check_issued(issuer.pointer, certificate.pointer):
            return None, b"issuer certificate not next to leaf"
        return url.encode("latin-1")

    @staticmethod
    def ocsp_request(chain: bytes) -> bytes | Why:
        """The question about a chain (DER)."""
        try:
            return ocsp.question(*_pair(chain))
        except (_Unusable, ocsp.OcspError) as error:
            return None, _words(error)

    @staticmethod
    def ocsp_judge(response: bytes, chain: bytes) -> float | Why:
        """When an answer that says "good" ceases to do so (seconds of the epoch), 0 when it does not say."""
        try:
            certificate, issuer = _pair(chain)
            answer = ocsp.judge(response, certificate, issuer, chain=(issuer,), flags=ocsp.NO_VERIFY)
        except (_Unusable, ocsp.OcspError) as error:
            return None, _words(error)
        if answer.status != ocsp.GOOD:
            return None, f'certificate status "{answer.words}" in the OCSP response'.encode()
        return answer.until or 0.0
