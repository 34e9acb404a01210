"""ssl_stapling and ssl_ocsp: answers about our own certificates for clients, and about theirs for us.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_stapling
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from headrace.core.clock import Clock
from headrace.core.connect import Target, dial
from headrace.core.http1.client import exchange
from headrace.core.http1.parse import ProtocolError
from headrace.core.names import literal
from headrace.core.openssl import ocsp
from headrace.core.openssl.library import library
from headrace.edge import log
from headrace.edge.values import to_bytes
from headrace.errors import ConfError, Error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.core.dns import Resolver
    from headrace.core.openssl.certificates import Certificate
    from headrace.core.openssl.connection import Connection
    from headrace.core.openssl.context import Context
    from headrace.core.openssl.sessions import SharedSessions
    from headrace.edge.tlsport import Handshake

TIMEOUT: Final = 60.0
_SMALLEST_WAIT, _LONGEST_WAIT = 300.0, 3600.0
"""Seconds between two questions about one of our certificates."""
FAILED: Final = "certificate status request failed"


@dataclass(frozen=True)
class Responder:
    """Where to ask: http only. resolver: who knows the addresses of names; None: the system."""

    host: str
    port: int
    path: str
    resolver: Resolver | None = None
    resolver_timeout: float = 30.0

    @staticmethod
    def of(url: str, resolver: Resolver | None, resolver_timeout: float) -> Responder | None:
        """None: the address is not one that can be asked."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return None
        return Responder(parts.hostname, parts.port or 80, parts.path or "/", resolver, resolver_timeout)

    async def ask(self, question: bytes, clock: Clock) -> bytes:
        """The response to a question, both in DER. Raises Error or OcspError."""
        path = self.path + ("" if self.path.endswith("/") else "/")
        target = path + quote(base64.b64encode(question).decode(), safe="")
        host = self.host if self.port == 80 else f"{self.host}:{self.port}"
        head = f"GET {target} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("latin-1")
        address = self.host
        if self.resolver is not None and literal(address, 0) is None:
            address = (await self.resolver.resolve(address, self.resolver_timeout))[0]
        loop = asyncio.get_running_loop()
        stream = await dial(Target(address, self.port), loop=loop, clock=clock, timeout=TIMEOUT)
        try:
            answer = await exchange(stream, head, read_timeout=TIMEOUT)
        finally:
            stream.close()
        if answer.status != 200:
            raise ocsp.OcspError(f"OCSP responder sent invalid response: status {answer.status}")
        return answer.body


@dataclass(slots=True)
class _Staple:
    """A certificate of ours and the response that goes with it. ask_after: of time.time(); asking: the task."""

    certificate: Certificate
    issuer: Certificate | None = None
    responder: Responder | None = None
    response: bytes | None = None
    good_until: float | None = None
    ask_after: float = 0.0
    asking: asyncio.Task[None] | None = None


class Stapler:
    """The responses for the certificates of a context (core.openssl.hooks.Stapler).

    The first client is sent none: it makes us ask. A response that has ended, or says something other than "good", is
    not sent. verify: an answer has to be signed by somebody who is trusted.
    """

    def __init__(self, context: Context, *, verify: bool) -> None:
        self._store: int = library().SSL_CTX_get_cert_store(context.pointer)
        self._context = context  # owns the store
        self._flags = ocsp.TRUST_OTHER if verify else ocsp.NO_VERIFY
        self._staples: list[_Staple] = []

    def add_file(self, path: str) -> None:
        """Send what is in a file. Raises ConfError."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfError(f'BIO_new_file("{path}") failed ({error.strerror})') from error
        for pair in self._context.pairs:
            self._staples.append(_Staple(pair.chain[0], response=data, ask_after=float("inf")))

    def add_asked(self, url: str | None, resolver: Resolver | None, resolver_timeout: float) -> list[str]:
        """Ask for each certificate: at `url`, or where it says itself. Returns why some cannot be asked about."""
        problems = []
        for pair in self._context.pairs:
            own, *others = pair.chain
            issuer = ocsp.issuer_among(own, others) or ocsp.issuer_in_store(own, self._store)
            where = url or ocsp.responder_of(own)
            responder = None if where is None else Responder.of(where, resolver, resolver_timeout)
            if issuer is None:
                problems.append(f'issuer certificate not found for certificate "{pair.source}"')
            elif where is None:
                problems.append(f'no OCSP responder URL in the certificate "{pair.source}"')
            elif responder is None:
                problems.append(f'invalid URL prefix in OCSP responder "{where}" in the certificate "{pair.source}"')
            else:
                self._staples.append(_Staple(own, issuer, responder))
        return problems

    def response(self, connection: Connection, certificate: int) -> bytes | None:
        """See core.openssl.hooks.Stapler."""
        compare = library().X509_cmp
        staple = next((one for one in self._staples if compare(one.certificate.pointer, certificate) == 0), None)
        if staple is None:
            return None
        now = time.time()
        if staple.ask_after <= now and staple.asking is None:
            staple.asking = asyncio.get_running_loop().create_task(self._ask(staple, connection.data))
        good = staple.good_until is None or staple.good_until > now
        return staple.response if good else None

    async def _ask(self, staple: _Staple, handshake: Handshake | None) -> None:
        assert staple.issuer is not None
        assert staple.responder is not None
        wait = _SMALLEST_WAIT
        try:
            question = ocsp.question(staple.certificate, staple.issuer)
            response = await staple.responder.ask(question, Clock(asyncio.get_running_loop()))
            answer = ocsp.judge(
                response, staple.certificate, staple.issuer, store=self._store, chain=(staple.issuer,),
                flags=self._flags,
            )  # fmt: skip
            if answer.status != ocsp.GOOD:
                raise ocsp.OcspError(f'certificate status "{answer.words}" in the OCSP response')
        except (Error, ocsp.OcspError, ProtocolError) as error:
            where = f"{error} while requesting certificate status, responder: {staple.responder.host}"
            if handshake is not None:
                handshake.log_error(log.ERR, to_bytes(where))
        else:
            staple.response, staple.good_until = response, answer.until
            if answer.until is not None:
                wait = max(min(answer.until - _SMALLEST_WAIT - time.time(), _LONGEST_WAIT), _SMALLEST_WAIT)
            else:
                wait = _LONGEST_WAIT
        finally:
            staple.ask_after = time.time() + wait
            staple.asking = None


@dataclass(slots=True)
class ClientCheck:
    """ssl_ocsp: clients' certificates are asked about when the handshake is done.

    whole: every certificate of the chain, not the client's alone. responder: asked in place of those in certificates.
    cache: answers, for all workers.
    """

    whole: bool
    responder: Responder | None = None
    resolver: Resolver | None = None
    resolver_timeout: float = 30.0
    cache: SharedSessions | None = None

    async def look(self, engine: Connection, clock: Clock, report: Callable[[int, bytes], None]) -> None:
        """Set engine.revocation. report: takes lines for the error log."""
        peer = engine.peer
        if peer is None or engine.verify_code:
            return
        store = library().SSL_CTX_get_cert_store(engine.context.pointer)
        chain = list(engine.verified_chain) or ocsp.chain_of(peer, engine.peer_chain, store)
        pairs = list(pairwise(chain))
        for certificate, issuer in pairs if self.whole else pairs[:1]:
            try:
                status = await self._status(certificate, issuer, store, chain, clock)
            except (Error, ocsp.OcspError, ProtocolError) as error:
                report(log.ERR, to_bytes(f"{error} while requesting certificate status"))
                engine.revocation = FAILED
                return
            if status != ocsp.GOOD:
                engine.revocation = "certificate revoked" if status == ocsp.REVOKED else "certificate status unknown"
                return

    async def _status(
        self, certificate: Certificate, issuer: Certificate, store: int, chain: Sequence[Certificate], clock: Clock
    ) -> int:
        cache = self.cache
        key = hashlib.sha256(ocsp.identity_of(certificate, issuer)).digest() if cache is not None else b""
        if cache is not None and (known := cache.get(key)) is not None:
            return known[0]
        responder = self.responder
        if responder is None:
            where = ocsp.responder_of(certificate)
            responder = None if where is None else Responder.of(where, self.resolver, self.resolver_timeout)
            if responder is None:
                raise ocsp.OcspError("no OCSP responder URL in certificate")
        response = await responder.ask(ocsp.question(certificate, issuer), clock)
        answer = ocsp.judge(response, certificate, issuer, store=store, chain=chain, flags=0)
        if cache is not None and answer.until is not None:
            cache.store(key, bytes((answer.status,)), answer.until - time.time())
        return answer.status
