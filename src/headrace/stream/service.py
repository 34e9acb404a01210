"""The listeners of stream {}: part of the gateway, started and stopped with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.core.datagram import DatagramListener
from headrace.core.listener import Listener
from headrace.edge import log
from headrace.edge.log import ErrorLog
from headrace.stream.session import Session
from headrace.stream.settings import ProxySettings

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from headrace.core.clock import Clock
    from headrace.core.datagram import DatagramPeer
    from headrace.core.owner import Address
    from headrace.edge.gateway import Gateway
    from headrace.edge.listen import Address as ListenAddress
    from headrace.edge.listen import ListenSpec
    from headrace.edge.servernames import ServerName
    from headrace.edge.tlsserver import ServerTls
    from headrace.edge.upstream.peers import Group
    from headrace.edge.variables import Variables
    from headrace.errors import Place
    from headrace.stream.ports import StreamPort
    from headrace.stream.steps import Content, Step


@dataclass
class StreamServer:
    """One server: what its sessions do.

    early: the handlers before TLS (real address, limits, access). before_hello, preread: the steps after it, around
    ssl_preread (reads_hello). content: what is done then, None: the session is handed on.

    Families of edge compose it as they compose a location.
    """

    variables: Variables
    names: tuple[ServerName, ...] = ()
    place: Place | None = None
    proxy: ProxySettings = field(default_factory=ProxySettings)
    early: tuple[Any, ...] = ()
    before_hello: tuple[Step, ...] = ()
    reads_hello: bool = False
    preread: tuple[Step, ...] = ()
    content: Content | None = None
    log_handlers: tuple[Any, ...] = ()
    error_log: ErrorLog = field(default_factory=lambda: ErrorLog(()))
    preread_buffer: int = 16384
    preread_timeout: float = 30.0
    proxy_protocol_timeout: float = 30.0
    handshake_timeout: float = 60.0
    tls: ServerTls | None = None
    kind = "stream server"
    satisfy_any = False
    auth_delay = 0.0
    log_subrequest = False

    def add(self, _phase: str, handler: Any) -> None:
        """See Location.add; the order is that of the calls."""
        self.early = (*self.early, handler)

    def add_log(self, handler: Any) -> None:
        """See Location.add_log."""
        self.log_handlers = (*self.log_handlers, handler)

    @property
    def name(self) -> bytes:
        """As $server_name gives it."""
        return self.names[0].shown if self.names else b""

    def root_of(self, _request: Any) -> bytes:
        """There is none; paths of logs do not depend on it."""
        return b"/"


class StreamService:
    """All of the block. See Gateway.services."""

    def __init__(self) -> None:
        self.ports: list[StreamPort] = []
        self.groups: dict[str, Group] = {}
        self._sessions: dict[asyncio.Task[None], Session] = {}

    @property
    def listens(self) -> list[ListenSpec]:
        """The addresses to listen on."""
        return [port.spec for port in self.ports]

    def start(
        self,
        gateway: Gateway,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        sockets: Mapping[ListenAddress, socket.socket],
    ) -> None:
        """Accept connections."""
        shared, most = gateway.main.worker_processes > 1, gateway.main.worker_connections

        def exhausted(error: OSError) -> None:
            text = f"accept4() failed ({error.errno}: {error.strerror})"
            gateway.error_log.line(log.CRIT, text.encode())

        def crowded() -> None:
            gateway.error_log.line(log.ALERT, b"%d worker_connections are not enough" % most)

        for port in self.ports:
            sock = sockets[port.spec.socket_key]
            if port.spec.udp:
                accept = self._datagram_acceptor(port, loop, clock)
                port.listener = DatagramListener(sock, loop, clock, accept, max_peers=most, crowded=crowded)
            else:
                port.listener = Listener(
                    sock,
                    loop,
                    clock,
                    self._acceptor(port, loop, clock),
                    max_connections=most,
                    shared=shared and not port.spec.reuseport,
                    exhausted=exhausted,
                )
            port.listener.start()

    def _acceptor(
        self, port: StreamPort, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> Callable[[socket.socket, Address], None]:
        tls = port.tls()

        def ended(task: asyncio.Task[None]) -> None:
            del self._sessions[task]
            if port.listener is not None:
                port.listener.released()

        def accept(sock: socket.socket, peer: Address) -> None:
            session = Session(port, port.server, clock)
            task = loop.create_task(session.run(sock, peer, tls))
            self._sessions[task] = session
            task.add_done_callback(ended)

        return accept

    def _datagram_acceptor(
        self, port: StreamPort, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> Callable[[DatagramPeer, bytes], None]:
        requests = port.server.proxy.requests

        def accept(peer: DatagramPeer, first: bytes) -> None:
            if requests:
                peer.keep_for(requests - 1)
            session = Session(port, port.server, clock)
            task = loop.create_task(session.run_datagrams(peer, first))
            self._sessions[task] = session
            task.add_done_callback(self._sessions.pop)

        return accept

    async def stop(self, deadline: float | None) -> None:
        """Stop accepting, and let sessions end by themselves for `deadline` seconds (None: as long as they last)."""
        for port in self.ports:
            if port.listener is not None:
                port.listener.close()
        for session in list(self._sessions.values()):
            if session.on_stop is not None:
                session.on_stop()
        if self._sessions:
            await asyncio.wait(list(self._sessions), timeout=deadline)
        for task in list(self._sessions):
            task.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        for group in self.groups.values():
            group.close()
