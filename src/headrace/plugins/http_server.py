"""A small HTTP server for plugins that answer questions (figures, remote control), not for those that take events.

    server = PageServer(context, sock, transport, answer, log)
    server.start() ... await server.quiesce() ... server.stop()

`answer(method, path, query, head)` returns a `Page`, or an awaitable of one; an error in it is a 500 with its text.
GET and HEAD only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.frame import REASONS
from headrace.core.http1.linger import evict_idle
from headrace.core.http1.server import HttpConnection, ServerSettings
from headrace.core.listener import Listener
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    import logging
    import socket
    from collections.abc import Awaitable, Callable, Coroutine

    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Exchange
    from headrace.pipeline.context import Context
    from headrace.plugins.transport import Transport

    Answer = Callable[[bytes, RequestHead], "Page | Awaitable[Page]"]
    """(path without the query, the whole head) -> the answer."""

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a client's TLS handshake."""
EVICTED: Final = 8
"""Idle connections that are closed when descriptors run out."""
TEXT: Final = b"text/plain"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. encoding: Content-Encoding, b"" for none."""

    status: int
    body: bytes
    content_type: bytes = TEXT
    encoding: bytes = b""

    def head(self, *, keep_alive: bool) -> bytes:
        """Status line and fields."""
        coding = b"Content-Encoding: " + self.encoding + b"\r\n" if self.encoding else b""
        connection = b"keep-alive" if keep_alive else b"close"
        return b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%bContent-Length: %d\r\nConnection: %s\r\n\r\n" % (
            self.status,
            REASONS.get(self.status, b"Error"),
            self.content_type,
            coding,
            len(self.body),
            connection,
        )


NOT_FOUND: Final = Page(404, b"404 Not Found\n")


class _Pages:
    """The handler of all connections."""

    def __init__(self, answer: Answer, log: logging.Logger) -> None:
        self._answer = answer
        self._log = log
        self.connections: set[HttpConnection] = set()
        self._empty: asyncio.Event | None = None

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        head = exchange.head
        if head.method not in {b"GET", b"HEAD"}:
            raise HttpError(405, "only GET is answered", close=False)
        page = self._answer(head.target.partition(b"?")[0], head)
        if isinstance(page, Page):
            self._respond(exchange, page)
            return None
        return self._later(exchange, page)

    async def _later(self, exchange: Exchange, page: Awaitable[Page]) -> None:
        self._respond(exchange, await page)

    @staticmethod
    def _respond(exchange: Exchange, page: Page) -> None:
        exchange.respond(page.head(keep_alive=exchange.keep_alive), page.body)

    def refuse(self, exchange: Exchange, error: HttpError) -> None:
        if error.close:
            exchange.keep_alive = False
        self._respond(exchange, Page(error.status, f"{error.message}\n".encode("utf-8", "replace")))

    def closed(self, conn: HttpConnection) -> None:
        self.connections.discard(conn)
        if self._empty is not None and not self.connections:
            self._empty.set()

    async def all_closed(self) -> None:
        if self.connections:
            self._empty = asyncio.Event()
            await self._empty.wait()


class PageServer:
    """One listening socket and its connections. sock: open already. transport: opened by its owner."""

    def __init__(
        self, context: Context, sock: socket.socket, transport: Transport, answer: Answer, log: logging.Logger
    ) -> None:
        self._context = context
        self._sock = sock
        self._transport = transport
        self._log = log
        self._pages = _Pages(answer, log)
        self._settings = ServerSettings(keepalive_timeout=60.0, max_body=1 << 16, on_error=self._report)
        self._listener: Listener | None = None
        self._shaking: set[asyncio.Task[None]] = set()

    @property
    def stats(self) -> dict[str, int]:
        """Requests, connections now and ever."""
        stats = self._settings.stats
        return {"requests": stats.requests, "connections": stats.connections, "accepted": stats.accepted}

    def start(self) -> None:
        """Accept connections from now on."""
        context = self._context
        self._listener = Listener(
            self._sock,
            context.loop,
            context.clock,
            self._accept,
            shared=context.settings.workers > 1,
            exhausted=self._out_of_descriptors,
        )
        self._listener.start()

    def _report(self, exchange: Exchange, error: BaseException) -> None:
        self._log.error("cannot answer %r: %r", exchange.head.target, error)

    def _out_of_descriptors(self, error: OSError) -> None:
        closed = evict_idle(self._pages.connections, EVICTED)
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
        self._pages.connections.add(HttpConnection(stream, self._pages, self._settings, self._context.clock))

    async def quiesce(self) -> None:
        """Accept nothing new; connections close, busy ones after their answer."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in list(self._shaking):
            task.cancel()
        for connection in list(self._pages.connections):
            connection.close_soon()
        await self._pages.all_closed()

    def stop(self) -> None:
        """Cut what is still open."""
        for connection in list(self._pages.connections):
            connection.stream.abort()
