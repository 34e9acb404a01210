"""Virtual servers, the sockets they share, and the gateway that a configuration becomes.

build.build makes a Gateway without touching a socket; start() gives it a loop and open listeners. Each address has
a Port, the handler of its connections: it chooses the virtual server and starts the phases.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from headrace.edge import log
from headrace.edge.phases import run
from headrace.edge.request import Request
from headrace.edge.servernames import NameTable
from headrace.edge.special import find_location, send_special, special
from headrace.edge.uri import host_only, split_target
from headrace.edge.values import to_bytes
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headrace.core.http1.server import Exchange, HttpConnection, ServerSettings
    from headrace.edge.gateway import Gateway
    from headrace.edge.listen import ListenSpec
    from headrace.edge.location import Location, Tree
    from headrace.edge.phases import Steps
    from headrace.edge.servernames import ServerName
    from headrace.edge.tlsport import PortTls
    from headrace.edge.tlsserver import ServerTls
    from headrace.edge.variables import Variables

_HOST: Final = re.compile(rb"\n[Hh][Oo][Ss][Tt]:[ \t]*([^\r\n\t ]{1,255})\r?\n")
REMEMBERED: Final = 2048
"""Entries of the caches that spare a search: hosts of an address, paths of a server."""


class Server:
    """One virtual server.

    name: its first name (`$server_name`). location: what holds outside of every location. steps: its own phases
    (post_read, server_rewrite) and the search of the location; empty when there is nothing but the search.
    """

    def __init__(self, names: list[ServerName], location: Location, variables: Variables) -> None:
        self.names = names
        self.name: bytes = names[0].shown if names else b""
        self.location = location
        self.variables = variables
        self.named: dict[bytes, Location] = {}
        self.steps: Steps = ()
        self.tree: Tree | None = None
        self.tls: ServerTls | None = None
        self.http2 = False
        self.known: dict[bytes, tuple[bytes, Location]] = {}
        """Paths as sent, to the normalised path and the location."""

    def find(self, request: Request) -> Location:
        """The location of a request's URI."""
        tree = self.tree
        assert tree is not None
        return tree.find(request.uri, request) or self.location

    def remember(self, path: bytes, uri: bytes, location: Location) -> None:
        """Keep what a path as sent leads to, when the path alone decides."""
        assert self.tree is not None
        if (
            self.tree.pure
            and not location.internal
            and location.limited is None
            and len(self.known) < REMEMBERED
            and len(path) < 256
        ):
            self.known[path] = (uri, location)


class Hosts:
    """The servers on one address by host name."""

    def __init__(self, default: Server) -> None:
        self.default = default
        self.servers: tuple[Server, ...] = (default,)
        self.table: NameTable[Server] = NameTable(default)
        self._known: dict[bytes, Server] = {}

    def seal(self) -> None:
        """No names are added after this."""
        self.single = self.table.only_default

    single: bool = False

    def choose(self, host: bytes) -> tuple[Server, re.Match[bytes] | None]:
        """The server for a Host header as sent; the match when a regular expression decided."""
        if self.single:
            return self.default, None
        found = self._known.get(host)
        if found is not None:
            return found, None
        server, match = self.table.find(host_only(host))
        if match is None and len(self._known) < REMEMBERED and len(host) < 256:
            self._known[host] = server
        return server, match

    def knows(self, host: bytes) -> bool:
        """Whether a name of a server fits a host, where there are several to choose from."""
        return len(self.servers) > 1 and self.table.search(host_only(host)) is not None


class Port:
    """One listening socket: the handler of its connections.

    hosts: the servers of the socket's own address; local: those of single addresses that a wildcard socket stands
    for, by local address.
    """

    def __init__(self, spec: ListenSpec, hosts: Hosts, gateway: Gateway) -> None:
        self.spec = spec
        self.hosts = hosts
        self.local: dict[str, Hosts] = {}
        self.gateway = gateway

    def tls(self) -> PortTls | None:
        """What its connections shake hands with; None without TLS."""
        return None

    def plain(self) -> Port:
        """The handler of connections in the clear."""
        return self

    @property
    def http2(self) -> bool:
        """Whether clients without TLS may speak HTTP/2, known by its first bytes."""
        return self.spec.http2 or any(hosts.default.http2 for hosts in (self.hosts, *self.local.values()))

    @property
    def settings(self) -> ServerSettings:
        """What a new connection is told, until its server is known."""
        return self.hosts.default.location.http

    def _hosts_of(self, conn: HttpConnection) -> Hosts:
        if not self.local:
            return self.hosts
        return self.local.get(conn.stream.local[0], self.hosts)

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Answer a request. Raises HttpError 400 for a target that cannot be understood."""
        head = exchange.head
        hosts = self.hosts if not self.local else self._hosts_of(exchange.conn)
        match = None
        if hosts.single:
            server = hosts.default
        else:
            server, match = hosts.choose(head.host)
        path, _, args = head.target.partition(b"?")
        known = server.known.get(path)
        if known is None or exchange.body is not None or b"#" in args:
            return self._handle_slowly(exchange, server, match)
        request = Request(exchange, server, known[0], args)
        location = request.location = known[1]
        if exchange.settings is not location.http:
            exchange.conn.use(location.http, exchange)
        return run(request, location.steps)

    def _handle_slowly(
        self, exchange: Exchange, server: Server, match: re.Match[bytes] | None
    ) -> Coroutine[Any, Any, None] | None:
        """What is not known from an earlier request with the same path."""
        target = exchange.head.target
        uri, args = split_target(target, merge_slashes=server.location.merge_slashes)
        request = Request(exchange, server, uri, args)
        if match is not None:
            _name_captures(request, match)
        if server.steps:
            if exchange.settings is not server.location.http:
                exchange.conn.use(server.location.http, exchange)
            return run(request, server.steps)
        steps = find_location(request)
        if steps is None:
            return None
        if match is None:
            server.remember(target.partition(b"?")[0], uri, request.location)
        return run(request, steps)

    def refuse(self, exchange: Exchange, error: HttpError) -> None:
        """Answer what could not be handled: the error page of its status, logged like any request."""
        hosts = self._hosts_of(exchange.conn)
        server, _ = hosts.choose(exchange.head.host or _sent_host(exchange))
        uri = args = b""
        if error.status not in (414, 505):
            with contextlib.suppress(HttpError):
                uri, args = split_target(exchange.head.target)
        request = Request(exchange, server, uri, args)
        status = 494 if error.status == 431 else error.status
        if error.kind == "internal" and error.__cause__ is not None:
            request.log_fault(error.__cause__)
        else:
            level = log.ERR if status == 413 else log.INFO
            request.log_error(level, to_bytes(error.message) + _while(exchange, error.message))
        if status == 408:
            request.status = 408
            request.abandon()
            return
        steps = special(request, status)
        rest = None if steps is None else run(request, steps)
        if rest is not None:
            # A refused connection is closed at once, so an error page cannot wait for anything.
            rest.close()
            request.log_error(log.WARN, b"the error page of a refused request has to wait: the built-in one is sent")
            if request.header_sent:
                request.abandon()
            else:
                send_special(request, status)

    def closed(self, conn: HttpConnection) -> None:
        """A connection is gone."""
        self.gateway.forget(conn, self)


def _sent_host(exchange: Exchange) -> bytes:
    """The Host of a head that could not be parsed, so that the server meant can answer."""
    found = _HOST.search(exchange.head.raw)
    return found.group(1) if found else b""


def _while(exchange: Exchange, message: str) -> bytes:
    if exchange.head.host:
        return b""
    line = any(word in message for word in ("method", "request line", "URI", "version", "target"))
    return b" while reading client request %b" % (b"line" if line else b"headers")


def _name_captures(request: Request, match: re.Match[bytes]) -> None:
    request.captures = (match.group(), *match.groups())
    for name, value in match.groupdict().items():
        request.set_slot(name.lower().encode(), b"" if value is None else value)
