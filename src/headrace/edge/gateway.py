"""The gateway of one configuration: built before the fork, started in each worker, stopped gracefully."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.core.datagram import open_datagrams
from headrace.core.http1.linger import evict_idle
from headrace.core.http1.server import HttpConnection
from headrace.core.http2.connection import Http2Connection
from headrace.core.http2.preface import Preface
from headrace.core.listener import Listener, open_listener
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.edge import log
from headrace.edge.accepted import Accepted
from headrace.errors import ConfError, ConnectionFailed, Error

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from headrace.core.clock import Clock
    from headrace.core.http1.settings import ServerStats
    from headrace.core.proxy_protocol import ProxyHeader
    from headrace.edge.accesslog import AccessLog
    from headrace.edge.families.main import MainSettings
    from headrace.edge.listen import Address, ListenSpec
    from headrace.edge.log import ErrorLog, Logs
    from headrace.edge.server import Port, Server
    from headrace.edge.tlsport import PortTls

EVICT: Final = 32
"""Idle connections closed at once when worker_connections are nearly used up."""


class Service(Protocol):
    """Something else that listens, with the gateway's life (stream {})."""

    @property
    def listens(self) -> list[ListenSpec]:
        """The addresses to listen on."""
        ...

    def start(
        self, gateway: Gateway, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[Address, socket.socket]
    ) -> None:
        """Accept connections."""
        ...

    async def stop(self, deadline: float | None) -> None:
        """Stop accepting, let go of the connections within `deadline` seconds."""
        ...


def _open(spec: ListenSpec) -> socket.socket:
    if spec.udp and not isinstance(spec.address, str):
        return open_datagrams(spec.address, reuseport=spec.reuseport, ipv6only=spec.ipv6only)
    return open_listener(
        spec.address,
        backlog=spec.backlog if spec.backlog > 0 else 65535,
        reuseport=spec.reuseport,
        ipv6only=spec.ipv6only,
        mode=0o666 if isinstance(spec.address, str) else None,
    )


class Gateway:
    """A configuration ready to run.

    main: process settings. servers: the virtual servers. ports: a handler per listening socket. logs: the files.
    """

    def __init__(self, main: MainSettings, logs: Logs, error_log: ErrorLog, stats: ServerStats) -> None:
        self.main = main
        self.logs = logs
        self.error_log = error_log
        self.counters = stats
        self.servers: list[Server] = []
        self.ports: list[Port] = []
        self.buffered_logs: list[AccessLog] = []
        self.temp_folders: set[str] = set()
        self.upstreams: dict[str, Any] = {}
        self.connections: dict[HttpConnection, float] = {}
        """Open connections, with the clock's time when they began."""
        self.services: list[Service] = []
        self._listeners: dict[int, Listener] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._fresh: set[Stream] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock: Clock | None = None
        self._empty: asyncio.Event | None = None

    @property
    def listens(self) -> list[ListenSpec]:
        """The addresses to listen on, one socket each."""
        return [port.spec for port in self.ports] + [spec for one in self.services for spec in one.listens]

    @staticmethod
    def open_socket(spec: ListenSpec) -> socket.socket:
        """Open the socket of an address. Raises ConfError as nginx words it."""
        try:
            sock = _open(spec)
        except Error as error:
            raise ConfError(error.message) from error
        for level, option, value in spec.options:
            sock.setsockopt(level, option, value)
        return sock

    def check_logs(self) -> None:
        """Look whether all log files can be opened, and make none. Raises ConfError."""
        self.logs.check_files()

    def open_logs(self) -> None:
        """Open all log files; in the master, before privileges are dropped. Raises ConfError."""
        self.logs.open_files()

    def reopen_logs(self) -> None:
        """Reopen all log files (SIGUSR1)."""
        for access in self.buffered_logs:
            access.flush()
        self.logs.reopen()

    async def start(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[Address, socket.socket]
    ) -> None:
        """Accept connections on open sockets, by the socket_key of `listens`. Raises KeyError when one is missing."""
        self.open_logs()
        self._loop, self._clock = loop, clock
        for access in self.buffered_logs:
            access.clock = clock
        shared = self.main.worker_processes > 1
        for port in self.ports:
            listener = Listener(
                sockets[port.spec.address],
                loop,
                clock,
                self._acceptor(port),
                max_connections=self.main.worker_connections,
                shared=shared and not port.spec.reuseport,
                exhausted=self._exhausted,
            )
            self._listeners[id(port)] = listener
            listener.start()
        for service in self.services:
            service.start(self, loop, clock, sockets)

    def accept(self, sock: socket.socket, peer: Address, index: int = 0) -> None:
        """Serve a connection that somebody else made: a client of the `index`th address of `listens`."""
        self._acceptor(self.ports[index])(sock, peer)

    def _exhausted(self, error: OSError) -> None:
        self.error_log.line(log.CRIT, f"accept4() failed ({error.errno}: {error.strerror})".encode())

    def _acceptor(self, port: Port) -> Callable[[socket.socket, Address], None]:
        loop, clock = self._loop, self._clock
        assert loop is not None
        assert clock is not None
        tls = port.tls()
        simple = tls is None and not port.spec.proxy_protocol
        http2 = port.http2
        connections, limit = self.connections, self.main.worker_connections
        nearly = limit - max(limit // 16, 1)

        def accept(sock: socket.socket, peer: Address) -> None:
            if len(connections) >= nearly:
                self._make_room(limit)
            if simple:
                if http2:
                    self._listen_first(Stream(sock, loop, clock, peer=peer), port, None, b"", only=False)
                else:
                    self._connected(Stream(sock, loop, clock, peer=peer), port)
                return
            task = loop.create_task(self._begin(Accepted(sock, peer, loop, clock), port, tls))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

        return accept

    def _connected(self, stream: Stream, port: Port) -> HttpConnection:
        assert self._clock is not None
        conn = HttpConnection(stream, port, port.settings, self._clock)
        conn.info = port
        self.connections[conn] = self._clock.now()
        return conn

    def _listen_first(
        self, stream: Stream, port: Port, header: ProxyHeader | None, begun: bytes, *, only: bool
    ) -> None:
        """Wait for the first bytes of a client, to know which protocol it speaks. only: it has to be HTTP/2."""
        assert self._clock is not None

        def then(stream: Stream, speaks: bool, data: bytes) -> None:
            self._fresh.discard(stream)
            conn = self._connected2(stream, port) if speaks else self._connected(stream, port)
            conn.proxied = header
            if data:
                conn.data_received(data)

        def gone() -> None:
            self._fresh.discard(stream)
            self._listeners[id(port)].released()

        self._fresh.add(stream)
        timeout = port.settings.header_timeout
        preface = Preface(stream, self._clock, timeout, only=only, then=then, gone=gone)
        if begun:
            preface.data_received(begun)

    def _connected2(self, stream: Stream, port: Port) -> HttpConnection:
        assert self._clock is not None
        made = Http2Connection(stream, port, port.settings, self._clock)
        made.report = partial(self._broken, made, port)
        conn: Any = made
        conn.info = port
        self.connections[conn] = self._clock.now()
        return conn  # type: ignore[no-any-return]

    def _broken(self, conn: Any, port: Port, message: str) -> None:
        peer = conn.peer[0] if isinstance(conn.peer, tuple) and conn.peer else "unix:"
        line = f"*{conn.serial} {message} while processing HTTP/2 connection, client: {peer}, server: {port.spec.text}"
        self.error_log.line(log.INFO, line.encode(errors="replace"))

    async def _begin(self, accepted: Accepted, port: Port, tls: PortTls | None) -> None:
        """What comes before HTTP: a PROXY protocol header, a TLS handshake."""
        try:
            stream = await accepted.begin(port.settings.header_timeout, tls, proxied=port.spec.proxy_protocol)
        except ConnectionFailed as error:
            level = log.ERR if error.kind == "proxy_protocol" else log.INFO
            peer = accepted.peer[0] if isinstance(accepted.peer, tuple) else "unix:"
            where = f"{error.message}, client: {peer}, server: {port.spec.text}"
            self.error_log.line(level, b"*0 " + where.encode(errors="replace"))
            self._listeners[id(port)].released()
            return
        only = isinstance(stream, TlsStream) and stream.alpn == "h2"
        if only or (tls is None and port.http2):
            self._listen_first(stream, port, accepted.header, accepted.begun, only=only)
            return
        conn = self._connected(stream, port if isinstance(stream, TlsStream) else port.plain())
        conn.proxied = accepted.header
        if accepted.begun:
            conn.data_received(accepted.begun)

    def _make_room(self, limit: int) -> None:
        if not evict_idle(self.connections, EVICT) and len(self.connections) >= limit:
            self.error_log.line(log.ALERT, b"%d worker_connections are not enough" % limit)

    def forget(self, conn: HttpConnection, port: Port) -> None:
        """A connection is gone; called by its port."""
        self.connections.pop(conn, None)
        listener = self._listeners.get(id(port))
        if listener is not None:
            listener.released()
        if self._empty is not None and not self.connections:
            self._empty.set()

    def hold(self, conn: HttpConnection) -> None:
        """A connection goes on in another protocol: a graceful end waits for it."""
        assert self._clock is not None
        self.connections[conn] = self._clock.now()

    def let_go(self, conn: HttpConnection) -> None:
        """See hold: it has ended."""
        self.connections.pop(conn, None)
        if self._empty is not None and not self.connections:
            self._empty.set()

    async def stop(self, deadline: float | None = None) -> None:
        """Stop accepting, finish the requests at hand, close.

        deadline: seconds, then connections are cut; None: wait for all.
        """
        clock = self._clock
        if clock is None:
            return
        for listener in self._listeners.values():
            listener.close()
        services = [asyncio.ensure_future(service.stop(deadline)) for service in self.services]
        self._empty = asyncio.Event()
        for conn in list(self.connections):
            conn.close_soon()
        if self.connections:
            try:
                async with asyncio.timeout(None if deadline is None else deadline):
                    await self._empty.wait()
            except TimeoutError:
                for conn in list(self.connections):
                    conn.stream.abort()
        for task in list(self._handshakes):
            task.cancel()
        for stream in list(self._fresh):
            stream.close()
        for group in self.upstreams.values():
            group.close()
        await asyncio.gather(*services)
        for access in self.buffered_logs:
            access.flush()

    def stats(self) -> dict[str, Any]:
        """Counters by name, and the connections open now."""
        counters = self.counters
        return {
            "accepted": counters.accepted,
            "connections": counters.connections,
            "requests": counters.requests,
            "answered": counters.answered,
            "busy": counters.busy,
            "idle": counters.idle,
            "refused": counters.refused,
            "timeouts": counters.timeouts,
            "aborted": counters.aborted,
            "listeners": {port.spec.text: self._accepted(port) for port in self.ports},
            "upstreams": {name: group.stats() for name, group in self.upstreams.items()},
        }

    def _accepted(self, port: Port) -> int:
        listener = self._listeners.get(id(port))
        return listener.accepted if listener else 0
