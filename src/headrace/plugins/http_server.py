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
from headrace.core.http1.server import ServerSettings
from headrace.errors import HttpError
from headrace.plugins.http_listener import HttpListener

if TYPE_CHECKING:
    import logging
    import socket
    from collections.abc import Awaitable, Callable, Coroutine

    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Exchange
    from headrace.core.http1.server import HttpConnection
    from headrace.pipeline.context import Context
    from headrace.plugins.transport import Transport

    Answer = Callable[[bytes, RequestHead], "Page | Awaitable[Page]"]
    """(path without the query, the whole head) -> the answer."""

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
        self._log = log
        pages = _Pages(answer, log)
        self._settings = ServerSettings(keepalive_timeout=60.0, max_body=1 << 16, on_error=self._report)
        self._listener = HttpListener(context, sock, transport, pages, self._settings, log=log, evicted=EVICTED)
        self.start = self._listener.start
        self.quiesce = self._listener.quiesce
        self.stop = self._listener.stop

    @property
    def stats(self) -> dict[str, int]:
        """Requests, connections now and ever."""
        stats = self._settings.stats
        return {"requests": stats.requests, "connections": stats.connections, "accepted": stats.accepted}

    def _report(self, exchange: Exchange, error: BaseException) -> None:
        self._log.error("cannot answer %r: %r", exchange.head.target, error)
