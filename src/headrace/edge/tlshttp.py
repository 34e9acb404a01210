"""A listening socket with `ssl`: what a request must have before it is handled.

A client that speaks plain HTTP, a certificate that is wanted and bad or missing, a server that is not the one of the
handshake: each has a status of its own, which error_page may take (497, 495, 496, 421).
https://nginx.org/en/docs/http/ngx_http_ssl_module.html#errors
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from headrace.edge import log
from headrace.edge.connection import tls_of
from headrace.edge.phases import run
from headrace.edge.request import Request
from headrace.edge.server import Hosts, Port
from headrace.edge.special import special
from headrace.edge.tlsport import PortTls
from headrace.edge.uri import host_only, split_target
from headrace.edge.values import to_bytes
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headrace.core.http1.server import Exchange, HttpConnection
    from headrace.core.openssl.connection import Connection
    from headrace.edge.server import Server

HTTP2_FIRST: Final = ("h2", "http/1.1")
_PLAIN: Final = (497, "client sent plain HTTP request to HTTPS port")
_MISDIRECTED: Final = (
    421, "client attempted to request the server name different from the one that was negotiated",
)  # fmt: skip


class TlsPort(Port):
    """See the module."""

    def tls(self) -> PortTls:
        """See Port."""
        made = self._for(self.hosts)
        made.local = {address: self._for(hosts) for address, hosts in self.local.items()}
        return made

    def _for(self, hosts: Hosts) -> PortTls:
        def choose(name: str) -> Server:
            return hosts.choose(name.encode())[0]

        made = PortTls(self, hosts.default, choose, HTTP2_FIRST if self.spec.http2 else None)
        made.use([server.tls for server in hosts.servers if server.tls is not None])
        return made

    def plain(self) -> Port:
        """See Port."""
        return _PlainPort(self)

    def refused(self, exchange: Exchange, status: int, message: str) -> Coroutine[Any, Any, None] | None:
        """Answer a request that is not handled, as error_page says."""
        head = exchange.head
        server, _ = self._hosts_of(exchange.conn).choose(head.host)
        uri = args = b""
        with contextlib.suppress(HttpError):
            uri, args = split_target(head.target)
        request = Request(exchange, server, uri, args)
        exchange.conn.use(server.location.http, exchange)
        request.log_error(log.INFO, to_bytes(message) + b" while reading client request headers")
        steps = special(request, status)
        return None if steps is None else run(request, steps)


class _PlainPort(Port):
    """The handler of clients that speak plain HTTP where TLS is spoken."""

    def __init__(self, outer: TlsPort) -> None:
        super().__init__(outer.spec, outer.hosts, outer.gateway)
        self.local = outer.local
        self._outer = outer

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """See Port."""
        return self._outer.refused(exchange, *_PLAIN)

    def closed(self, conn: HttpConnection) -> None:
        """See Port."""
        self._outer.closed(conn)


class VerifyingPort(TlsPort):
    """A port with servers that want certificates of clients."""

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """See Port."""
        stream = tls_of(exchange.conn)
        engine: Any = None if stream is None else stream.engine
        objection = self._objection(exchange, engine)
        return super().handle(exchange) if objection is None else self.refused(exchange, *objection)

    def _objection(self, exchange: Exchange, engine: Connection) -> tuple[int, str] | None:
        host, hosts = exchange.head.host, self._hosts_of(exchange.conn)
        tls = hosts.choose(host)[0].tls
        if tls is None or not tls.checks:
            return None
        asked = engine.asked_name
        if asked and host and host_only(host).lower() != asked.lower().encode() and hosts.knows(asked.encode()):
            return _MISDIRECTED
        return tls.objection(engine)
