"""A listening socket with HTTP connections behind it, plain or TLS: for sources that take or answer requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.core.http1.linger import evict_idle
from headrace.core.http1.server import HttpConnection
from headrace.core.listener import Listener
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    import logging
    import socket
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.core.http1.server import Handler as RequestHandler
    from headrace.core.http1.settings import ServerSettings
    from headrace.pipeline.context import Context
    from headrace.plugins.transport import Transport

    class Handler(RequestHandler, Protocol):
        """The handler of all connections, which it forgets when they are closed."""

        connections: set[HttpConnection]

        async def all_closed(self) -> None:
            """Return when there is no connection any more."""
            ...


HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a client's TLS handshake."""


class HttpListener:
    """sock: open already. transport: opened by its owner. evicted: idle connections closed without descriptors.

    serve: makes the connection of a stream that was accepted.
    """

    def __init__(
        self,
        context: Context,
        sock: socket.socket,
        transport: Transport,
        handler: Handler,
        settings: ServerSettings,
        *,
        log: logging.Logger,
        evicted: int,
        serve: Callable[[Stream, Any, ServerSettings, Clock], HttpConnection] = HttpConnection,
    ) -> None:
        self._context = context
        self._transport = transport
        self._handler = handler
        self._settings = settings
        self._log = log
        self._evicted = evicted
        self._connection = serve
        self._shaking: set[asyncio.Task[None]] = set()
        self._listener = Listener(
            sock,
            context.loop,
            context.clock,
            self._accept,
            shared=context.settings.workers > 1,
            exhausted=self._out_of_descriptors,
        )

    @property
    def accepted(self) -> int:
        """Connections that came so far."""
        return self._listener.accepted

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.start()

    def _out_of_descriptors(self, error: OSError) -> None:
        closed = evict_idle(self._handler.connections, self._evicted)
        self._log.error("no connection can be accepted: %s; %d idle ones are closed", error.strerror, closed)

    def _accept(self, sock: socket.socket, address: Any) -> None:
        self._transport.prepare(sock)
        context = self._context
        if self._transport.tls is None:
            self._serve(Stream(sock, context.loop, context.clock, peer=address))
            return
        secure = TlsStream(sock, context.loop, context.clock, self._transport.tls, peer=address)
        task = context.loop.create_task(self._shake(secure))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)

    async def _shake(self, stream: TlsStream) -> None:
        try:
            await stream.handshake(HANDSHAKE_TIMEOUT)
        except ConnectionFailed as error:
            self._log.debug("TLS handshake failed: %s", error.message)
            return
        except asyncio.CancelledError:
            stream.abort()
            raise
        self._serve(stream)

    def _serve(self, stream: Stream) -> None:
        self._handler.connections.add(self._connection(stream, self._handler, self._settings, self._context.clock))

    async def quiesce(self) -> None:
        """Accept nothing new; idle connections close, busy ones after their answer."""
        self._listener.close()
        for task in list(self._shaking):
            task.cancel()
        for connection in list(self._handler.connections):
            connection.close_soon()
        await self._handler.all_closed()

    def stop(self) -> None:
        """Cut what is still open."""
        for connection in list(self._handler.connections):
            connection.stream.abort()
