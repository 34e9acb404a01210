"""Http2Stream: what one request sees of its connection.

It stands for the HttpConnection and for the Stream that handlers of HTTP/1 know: its chain holds the unsent bytes of
this answer alone, closing it resets the stream, and its deadline is that of a client which opens no window.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from headrace.core.chain import Chain
from headrace.core.clock import NEVER, Timed, Waiter
from headrace.core.failure import closed
from headrace.core.http1.dispatch import report
from headrace.core.http2.frames import (
    CANCEL,
    END_STREAM,
    MAX_WINDOW,
    PROTOCOL_ERROR,
    header_frames,
    reset_frame,
    window_frame,
)

if TYPE_CHECKING:
    from headrace.core.http1.settings import ServerSettings
    from headrace.core.http2.body import Http2Body
    from headrace.core.http2.connection import Http2Connection
    from headrace.core.http2.exchange import Http2Exchange
    from headrace.core.owner import Address
    from headrace.errors import ConnectionFailed

_WINDOW = 65_536  # what a reader is given at least


class Http2Stream(Timed):
    """One stream (RFC 9113 5), half of it a connection for its request.

    carrier: the connection. number: its identifier. chain: body bytes of the answer that are in no frame yet.
    window: bytes that the client takes. credit: bytes that we still take of the client.
    head_sent, ended, out_closed: the answer has begun; is complete; its last frame is under way. in_closed: the
    request is complete. trailers: the header block that ends the answer. queued: it waits for its turn.
    """

    __slots__ = (
        "carrier", "chain", "closed", "credit", "ended", "error", "exchange", "head_sent", "in_closed", "number",
        "out_closed", "queued", "requests", "send_timeout", "serving", "settings", "trailers", "window",
    )  # fmt: skip

    closing = False
    eof = False

    def __init__(self, carrier: Http2Connection, number: int, window: int, credit: int) -> None:
        self.due = NEVER
        self.tick = 0
        self.carrier = carrier
        self.number = number
        self.window = window
        self.credit = credit
        self.chain = Chain()
        self.settings: ServerSettings = carrier.settings
        self.send_timeout: float | None = self.settings.send_timeout
        self.requests = carrier.requests
        self.exchange: Http2Exchange | None = None
        self.serving = False
        self.head_sent = False
        self.ended = False
        self.in_closed = False
        self.out_closed = False
        self.closed = False
        self.queued = False
        self.trailers = b""
        self.error: ConnectionFailed | None = None

    # as the connection of an exchange

    @property
    def stream(self) -> Http2Stream:
        """A request has no stream of bytes but this one."""
        return self

    @property
    def clock(self) -> Any:
        """See HttpConnection."""
        return self.carrier.clock

    @property
    def serial(self) -> int:
        """See HttpConnection."""
        return self.carrier.serial

    @property
    def info(self) -> Any:
        """See HttpConnection."""
        return self.carrier.info

    @property
    def proxied(self) -> Any:
        """See HttpConnection."""
        return self.carrier.proxied

    @property
    def handler(self) -> Any:
        """See HttpConnection."""
        return self.carrier.handler

    @property
    def stats(self) -> Any:
        """See HttpConnection."""
        return self.carrier.stats

    @property
    def peer(self) -> Address:
        """The address of the client."""
        return self.carrier.stream.peer

    @property
    def local(self) -> Address:
        """Our address."""
        return self.carrier.stream.local

    def use(self, settings: ServerSettings, exchange: Http2Exchange) -> None:
        """Settings that hold for this request from here on."""
        self.settings = exchange.settings = settings
        self.send_timeout = settings.send_timeout

    def finish(self, exchange: Http2Exchange) -> None:
        """The answer of the exchange is complete. Called by the exchange, once."""
        if self.ended:
            return
        self.ended = True
        self.carrier.answered()
        self.carrier.wants_turn(self)

    def steer(self) -> None:
        """Open the stream's window as far as the body is wanted."""
        body = self._body()
        if self.in_closed or self.closed or body is None or body.error is not None or not body.wanted:
            return
        room = max(_WINDOW, self.carrier.preread) - self.credit
        if room >= _WINDOW // 2:
            self.credit += room
            self.carrier.send(window_frame(self.number, room))

    def give_up(self) -> None:
        """Nobody drops the rest of a body here: the stream is reset instead."""

    def _body(self) -> Http2Body | None:
        body: Http2Body | None = cast("Any", self.exchange).body if self.exchange is not None else None
        return body

    # as the stream of a connection

    def send_head(self, block: bytes, flags: int) -> None:
        """Send a header block. flags: END_STREAM when nothing follows."""
        if self.closed or self.out_closed:
            return
        carrier = self.carrier
        if flags & END_STREAM:
            self.out_closed = True
        else:
            self.head_sent = True
        carrier.send(header_frames(self.number, carrier.table_update() + block, flags, carrier.frame_size))

    def write(self, data: bytes) -> None:
        """Body bytes of the answer."""
        self.append(data)
        self.flush()

    def append(self, data: bytes) -> None:
        """Body bytes that wait for `flush`."""
        if not self.closed:
            self.chain.append(data)

    def flush(self) -> None:
        """Take part in the turns of the connection."""
        if self.chain.length and not self.closed:
            self.carrier.wants_turn(self)

    async def drained(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - on the wheel
        """Wait until all bytes so far are in frames. Raises Timeout, ConnectionFailed."""
        self.flush()
        if not self.chain.length and self.chain.error is None:
            return
        waiter = Waiter(asyncio.get_running_loop(), "send()")
        self.chain.mark(waiter.wake)
        if timeout is not None:
            self.clock.schedule(waiter, timeout)
        try:
            await waiter.future
        finally:
            self.clock.cancel(waiter)

    def start_reading(self) -> None:
        """Frames come whoever reads; the window holds the client back."""

    pause_reading = start_reading

    def shutdown_write(self) -> None:
        """The answer ends with END_STREAM."""

    def close(self) -> None:
        """See abort."""
        self.abort()

    def abort(self) -> None:
        """Reset the stream; unsent bytes are dropped."""
        self.reset(CANCEL)

    def reset(self, code: int) -> None:
        """Send RST_STREAM and forget the stream, unless it is complete in both directions."""
        if self.closed:
            return
        if not (self.out_closed and self.in_closed):
            self.carrier.send(reset_frame(self.number, code))
        self.lost(closed())
        self.carrier.forget(self)

    def lost(self, error: ConnectionFailed) -> None:
        """The stream is no more: tell who waits for it."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self.clock.cancel(self)
        exchange = self.exchange
        try:
            if exchange is not None:
                if exchange.body is not None:
                    exchange.body.fail(error)
                if not exchange.finished and not exchange.aborted:
                    self.stats.aborted += 1
                    exchange.abort(error)
            self.chain.fail(error)
        except Exception as failure:  # noqa: BLE001 - of a callback: reported, the other streams go on
            conn: Any = self
            if exchange is not None:
                report(conn, exchange, failure)

    def opened(self, increment: int) -> bool:
        """The client takes more; False when that is more than it can say (RFC 9113 6.9.1)."""
        self.window += increment
        if self.window > MAX_WINDOW:
            return False
        if self.window > 0 and (self.chain.length or self.ended):
            self.carrier.wants_turn(self)
        return True

    def waits(self) -> None:
        """Nothing can be sent until the client opens a window: it has send_timeout for that."""
        if self.send_timeout and self.due == NEVER:
            self.clock.schedule(self, self.send_timeout)

    def expired(self) -> None:
        """The client has opened no window for too long."""
        self.stats.timeouts += 1
        self.reset(PROTOCOL_ERROR)
