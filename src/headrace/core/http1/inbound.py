"""The body of one request on its way from the connection to the handler.

The connection offers bytes, the handler takes decoded bytes; between them lie at most `body_buffer`
bytes: when a handler lags, reading pauses. The limit on decoded bytes holds however the body is taken,
and when nobody takes it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.core.clock import NEVER, Timed
from headrace.core.http1.body import ChunkedDecoder, LengthDecoder
from headrace.core.http1.frame import CONTINUE
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Exchange
    from headrace.core.http1.server import HttpConnection
    from headrace.core.http1.settings import ServerSettings
    from headrace.errors import Error


class RequestBody(Timed):
    """State of a body that is still to come, in part or whole.

    length: the declared bytes, None with chunked framing. size: decoded bytes that wait for the handler.
    received: decoded bytes so far. done: all came. error: why no more will come.
    expecting: the client waits for a 100 answer before it sends (RFC 9110 10.1.1).
    dropping: nobody wants the rest. The deadline of this object runs while somebody waits for bytes
    (body_timeout), or while the rest is dropped (lingering_timeout).
    """

    __slots__ = (
        "_clock",
        "_conn",
        "_decoder",
        "_limit",
        "_pieces",
        "_settings",
        "_since",
        "_waiter",
        "dropping",
        "error",
        "expecting",
        "keep_alive",
        "length",
        "received",
        "size",
    )

    def __init__(self, conn: HttpConnection, head: RequestHead) -> None:
        self.due = NEVER
        self.tick = 0
        self._conn = conn
        self._clock = conn.clock
        self._settings = conn.settings
        self._since = 0.0  # when somebody first waited, or the dropping began
        self.length = head.content_length
        self._decoder = ChunkedDecoder() if self.length is None else LengthDecoder(self.length)
        self._pieces: list[bytes] = []
        self._limit: int | None = None  # set while somebody collects or drops the body
        self._waiter: asyncio.Future[None] | None = None
        self.expecting = head.expect_continue
        self.keep_alive = True  # of the exchange, once the body comes
        self.error: Error | None = None
        self.dropping = False
        self.size = 0
        self.received = 0

    @property
    def done(self) -> bool:
        """Every byte of the body came."""
        return self._decoder.done and self.error is None

    @property
    def wanted(self) -> bool:
        """Whether more bytes may be read from the connection now."""
        return self._limit is not None or self.size < self._conn.settings.body_buffer

    def offer(self, data: bytes, at: int) -> int:
        """Take what belongs to the body from data[at:]; returns where it stopped. Faults go to `error`."""
        if self.error is not None:
            return len(data)
        pieces = self._pieces
        count = len(pieces)
        try:
            at = self._decoder.decode(data, at, pieces)
        except HttpError as error:
            self.fail(error)
            return len(data)
        fresh = sum(map(len, pieces[count:]))
        if fresh:
            self.received += fresh
            if self.expecting:
                self.go_ahead(self._conn.exchange)
            if self.dropping:
                pieces.clear()
            else:
                self.size += fresh
            if self._limit is not None and self.received > self._limit:
                self._end(_too_large(self.received))  # even if this was the end of it
                return len(data)
            if self._waiter is not None or self.dropping:
                self._progress()
        if self._waiter is not None and (self._decoder.done or (fresh and not self._collecting)):
            self._wake()
        return at

    def go_ahead(self, exchange: Exchange | None) -> None:
        """The client sends its body, told to or not: the connection can be kept after all."""
        self.expecting = False
        if exchange is not None and not exchange.headers_sent:
            exchange.keep_alive = self.keep_alive

    def fail(self, error: Error) -> None:
        """No more bytes will come."""
        if self.error is None and not self._decoder.done:
            self._end(error)

    def _end(self, error: Error) -> None:
        self.error = error
        self._wake()
        self._clock.cancel(self)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _progress(self) -> None:
        """Bytes came: the deadline is between two reads, but a body has no time without end."""
        settings = self._settings
        if self._decoder.done:
            self._clock.suspend(self)
            return
        took = self._clock.now() - self._since
        if self.dropping:
            left = settings.lingering_time - took
            self._clock.schedule(self, max(min(settings.lingering_timeout, left), 0.0))
        elif took > settings.body_timeout and self.received < settings.body_min_rate * took:
            self.expired()
        else:
            self._clock.schedule(self, settings.body_timeout)

    def expired(self) -> None:
        """The client is too slow."""
        self._conn.stats.timeouts += 1
        self.fail(HttpError(408, "client sent its body too slowly"))
        if self.dropping:
            self._conn.give_up()

    @property
    def _collecting(self) -> bool:
        return self._limit is not None and not self.dropping

    def check(self, limit: int) -> None:
        """Raise HttpError(413) when the body is known to be larger than `limit` bytes (0: no limit)."""
        size = self.received if self.length is None else self.length
        if limit and size > limit:
            raise _too_large(size)

    def now(self, limit: int) -> bytes | None:
        """The whole body if it is here, else None. Raises HttpError 400 or 413."""
        self.check(limit)
        if self.error is not None:
            raise self.error
        return self._take() if self._decoder.done else None

    async def read(self, limit: int) -> bytes:
        """The whole body (what is left of it after next()). Raises HttpError 400, 408, 413, ConnectionFailed."""
        self.check(limit)
        self._limit = limit or 1 << 62
        try:
            while not self.done:
                await self._wait()
        finally:
            self._limit = None
        return self._take()

    def some(self) -> bytes:
        """The bytes of the body that are here, b"" when there are none now."""
        data = self._take()
        if data and not self.done:
            self._ask()
        return data

    def raw(self) -> bytes:
        """What came of an unread body as it may stand on the wire, for who reads the connection itself.

        Chunked framing was taken off already and is put on again: the same chunks where each came whole.
        """
        pieces, self._pieces = self._pieces, []
        return self._decoder.frame(pieces)

    async def next(self, limit: int) -> bytes:
        """Some bytes of the body, b"" at its end. Raises as `read`."""
        self.check(limit)
        while not self.size:
            if self._decoder.done:
                return b""
            await self._wait()
            self.check(limit)
        data = self._take()
        if not self._decoder.done:
            self._ask()
        return data

    def _take(self) -> bytes:
        pieces = self._pieces
        self.size = 0
        if len(pieces) == 1:
            return pieces.pop()
        data = b"".join(pieces)
        pieces.clear()
        return data

    async def _wait(self) -> None:
        if self.error is not None:
            raise self.error
        if self._waiter is not None:
            raise RuntimeError("two readers of one request body")
        exchange = self._conn.exchange
        if exchange is not None:
            self._settings = exchange.settings
        self._since = self._since or self._clock.now()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            self._clock.schedule(self, self._settings.body_timeout)
            self._ask()
            await self._waiter
        finally:
            self._waiter = None
            self._clock.suspend(self)
        if self.error is not None and not self.size:
            raise self.error

    def invite(self) -> None:
        """The body is wanted, now or later: a client that waits for a word is told to go on."""
        if not self.done and self.error is None:
            self._ask()

    def _ask(self) -> None:
        """Tell a client that waits for it to go on, and let the connection read."""
        exchange = self._conn.exchange
        if self.expecting and exchange is not None and not exchange.headers_sent:
            self.go_ahead(exchange)
            self._conn.stream.write(CONTINUE)
        self._conn.steer()

    def drop(self, settings: ServerSettings) -> bool:
        """Nobody wants the rest: drop what comes. False when it is too large or broken to be read to its end."""
        limit = settings.max_body
        self._settings = settings
        self._since = self._clock.now()
        self.dropping = True
        self._pieces.clear()
        self.size = 0
        self._limit = limit or 1 << 62
        if self.error is not None or self.expecting:
            return False
        if max(self.received, self.length or 0) > self._limit:
            return False
        self._progress()
        return True


class WholeBody(RequestBody):
    """A body that came together with its head, as most do: nothing to decode, nothing to wait for."""

    __slots__ = ("_whole",)

    def __init__(self, whole: bytes) -> None:
        self._whole = whole
        self.length = self.received = len(whole)
        self.error = None
        self.expecting = False

    @property
    def done(self) -> bool:
        """It is here."""
        return True

    def fail(self, error: Error) -> None:
        """Nothing is missing."""

    def now(self, limit: int) -> bytes | None:
        """The whole body, b"" the second time. Raises HttpError 413."""
        if limit and self.received > limit:
            raise _too_large(self.received)
        whole, self._whole = self._whole, b""
        return whole

    async def read(self, limit: int) -> bytes:
        """As `now`."""
        return self.now(limit) or b""

    def some(self) -> bytes:
        """All of it, b"" the second time."""
        return self.now(0) or b""

    def invite(self) -> None:
        """It is here."""

    def raw(self) -> bytes:
        """As `some`."""
        return self.some()

    async def next(self, limit: int) -> bytes:
        """As `now`."""
        return self.now(limit) or b""


def _too_large(size: int) -> HttpError:
    return HttpError(413, f"client intended to send too large body: {size} bytes")


def open_body(exchange: Exchange, data: bytes, at: int) -> int:
    """Give the exchange its body and what is here of it; returns where in `data` that stopped."""
    length = exchange.head.content_length
    if length is not None and len(data) - at >= length:
        end = at + length
        exchange.body = WholeBody(data[at:end])
        return end
    body = exchange.body = RequestBody(exchange.conn, exchange.head)
    at = body.offer(data, at)
    if body.expecting:
        body.keep_alive = exchange.keep_alive
        exchange.keep_alive = False  # until the client sends its body
    return at
