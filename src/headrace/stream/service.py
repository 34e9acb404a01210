"""The listeners of stream {}: part of the gateway, started and stopped with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.core.listener import Listener
from headrace.edge import log
from headrace.edge.log import ErrorLog
from headrace.stream.proxy import ProxySettings
from headrace.stream.session import Session

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Mapping

    from headrace.core.clock import Clock
    from headrace.core.owner import Address
    from headrace.core.tls_config import TlsConfig
    from headrace.edge.gateway import Gateway
    from headrace.edge.listen import Address as ListenAddress
    from headrace.edge.listen import ListenSpec
    from headrace.edge.upstream.peers import Group
    from headrace.edge.values import Value
    from headrace.edge.variables import Variables


@dataclass
class StreamServer:
    """One server: what its sessions do. early: the handlers before TLS (real address, limits, access).

    Families of edge compose it as they compose a location.
    """

    variables: Variables
    proxy: ProxySettings = field(default_factory=ProxySettings)
    answer: Value | None = None
    sets: list[tuple[bytes, Value]] = field(default_factory=list)
    early: tuple[Any, ...] = ()
    log_handlers: tuple[Any, ...] = ()
    error_log: ErrorLog = field(default_factory=lambda: ErrorLog(()))
    ssl_preread: bool = False
    preread_buffer: int = 16384
    preread_timeout: float = 30.0
    proxy_protocol_timeout: float = 30.0
    handshake_timeout: float = 60.0
    tls: TlsConfig | None = None
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

    def root_of(self, _request: Any) -> bytes:
        """There is none; paths of logs do not depend on it."""
        return b"/"


def _keep_name(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    connection.asked_name = name  # type: ignore[attr-defined]  # for TlsStream.asked_name


class StreamPort:
    """One listening socket of the block. local: the servers of single addresses, where it is a wildcard."""

    def __init__(self, spec: ListenSpec, server: StreamServer) -> None:
        self.spec = spec
        self.server = server
        self.listener: Listener | None = None

    def tls(self) -> TlsConfig | None:
        """What TLS connections use."""
        if not self.spec.tls or self.server.tls is None:
            return None
        # A server does not use server_hostname: it makes the context, and with it the callback, this port's own.
        config = replace(self.server.tls, server_hostname=f"stream {self.spec.text}")
        config.context().sni_callback = _keep_name
        return config


class StreamService:
    """All of the block. See Gateway.services."""

    def __init__(self) -> None:
        self.ports: list[StreamPort] = []
        self.groups: dict[str, Group] = {}
        self._sessions: set[asyncio.Task[None]] = set()

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
        shared = gateway.main.worker_processes > 1
        for port in self.ports:
            port.listener = Listener(
                sockets[port.spec.address],
                loop,
                clock,
                self._acceptor(port, loop, clock),
                max_connections=gateway.main.worker_connections,
                shared=shared and not port.spec.reuseport,
                exhausted=lambda error: gateway.error_log.line(
                    log.CRIT, f"accept4() failed ({error.errno}: {error.strerror})".encode()
                ),
            )
            port.listener.start()

    def _acceptor(
        self, port: StreamPort, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> Callable[[socket.socket, Address], None]:
        tls = port.tls()

        def ended(task: asyncio.Task[None]) -> None:
            self._sessions.discard(task)
            if port.listener is not None:
                port.listener.released()

        def accept(sock: socket.socket, peer: Address) -> None:
            task = loop.create_task(Session(port, port.server, clock).run(sock, peer, tls))
            self._sessions.add(task)
            task.add_done_callback(ended)

        return accept

    async def stop(self, deadline: float | None) -> None:
        """Stop accepting, and let sessions end by themselves for `deadline` seconds (None: as long as they last)."""
        for port in self.ports:
            if port.listener is not None:
                port.listener.close()
        if self._sessions:
            await asyncio.wait(list(self._sessions), timeout=deadline)
        for task in list(self._sessions):
            task.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        for group in self.groups.values():
            group.close()
