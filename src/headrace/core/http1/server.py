"""HttpConnection: the one server connection of HTTP/1, for the edge and for in_http.

Requests are answered in order, one at a time; what comes after the current one waits in the buffer,
unparsed, and reading pauses. A request that is answered inside `Handler.handle` costs no task, no
future, no timer and no parser object; a connection between requests holds no buffer.

    data_received -> parse_request_head -> Exchange -> Handler.handle -> Exchange.respond
                          ^                                                    |
                          +---------- the next request of the buffer ----------+
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final

from headrace.core.clock import NEVER, Timed
from headrace.core.http1.dispatch import drive, raised, refuse_head, report, spawn
from headrace.core.http1.exchange import Exchange
from headrace.core.http1.inbound import open_body
from headrace.core.http1.linger import hold_open
from headrace.core.http1.request import HeadScan, parse_request_head
from headrace.core.http1.settings import Handler, ServerSettings, ServerStats
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.proxy_protocol import ProxyHeader
    from headrace.core.stream import Stream

__all__ = ["Exchange", "Handler", "HttpConnection", "ServerSettings", "ServerStats"]

_serials = itertools.count(1)
next_serial = _serials.__next__
"""The number of the next connection of this process."""

# Where a connection is.
IDLE, BUSY, DROPPING, CLOSING, GONE = range(5)
FIRST_REQUEST: Final = 1.0
"""Seconds a connection without any request yet has for its first one, once the end was announced."""
_ANSWERING = (BUSY, DROPPING)


class HttpConnection(Timed):
    """One client connection, owner of its stream.

    requests: requests begun on it. pipelined: the number of the last one that came right behind another.
    serial: its number in this process. info: free for the handler. stats: the counters it takes part in (`settings`
    may be replaced). serving: a handler runs in `handle` right now. proxied: what a PROXY protocol header said.
    exchange: the request being answered, if any.
    """

    __slots__ = (
        "_buffer", "_eof", "_most", "_phase", "_resting", "_rules", "_scan", "_until", "clock", "closing",
        "exchange", "handler", "info", "pipelined", "proxied", "requests", "serial", "serving", "settings", "since",
        "stats", "stream",
    )  # fmt: skip

    def __init__(self, stream: Stream, handler: Handler, settings: ServerSettings, clock: Clock) -> None:
        self.due, self.tick = NEVER, 0
        self.stream = stream
        self.handler = handler
        self.settings = settings
        self.clock = clock
        self.requests = 0
        self.pipelined = 0
        self.serial = next(_serials)
        self.info: Any = None
        self.proxied: ProxyHeader | None = None
        self.serving = False
        self.closing = False
        self.exchange: Exchange | None = None
        self._buffer = b""
        self._scan: HeadScan | None = None
        self._eof = False
        self._phase = IDLE
        self._resting = False  # the deadline is that of a head, not that between requests
        self._rules = settings.rules
        self.since = now = clock.now()
        self._until = now + settings.keepalive_time
        self._most = settings.keepalive_requests if settings.keepalive_timeout > 0 else 0
        self.stats = stats = settings.stats
        stats.accepted += 1
        stats.connections += 1
        stream.send_timeout = settings.send_timeout
        clock.schedule(self, settings.header_timeout)
        stream.set_owner(self)
        stream.start_reading()

    @property
    def peer(self) -> Any:
        """The address of the client, as the stream tells it."""
        return self.stream.peer

    @property
    def idle(self) -> bool:
        """Between requests, with nothing received of the next one."""
        return self._phase == IDLE and not self._buffer

    def __repr__(self) -> str:
        return f"<HttpConnection *{self.serial} {self.stream.peer!r} requests={self.requests}>"

    def data_received(self, data: bytes) -> None:
        """Bytes of the client: answer the requests that are whole, until one is not answered at once."""
        if self._phase != IDLE:
            if self._phase in _ANSWERING:
                self._more(data)
            return
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        stream = self.stream
        rules = self._rules
        stats = self.stats
        handle = self.handler.handle
        scan, self._scan = self._scan, None
        at = 0
        while at < len(data):
            try:
                head = parse_request_head(data, at, rules, scan)
            except HttpError as error:
                self._refuse_head(data[at:], error)
                return
            if head is None:
                self._await_head(data[at:] if at else data, scan)
                return
            scan = None
            fields = head.fields
            clock_now = self.clock.now  # a slot that is called where it is read is looked up the slow way
            now = clock_now()
            self.requests += 1
            stats.requests += 1
            self.pipelined = self.requests if at else self.pipelined
            keep_alive = fields.keep_alive and self.requests < self._most and now < self._until
            exchange = Exchange(self, head, now, keep_alive)
            at += head.length
            if fields.chunked or fields.content_length:
                at = open_body(exchange, data, at)
            self.exchange = exchange
            self._phase = BUSY
            self.serving = True
            try:
                work = handle(exchange)
            except Exception as error:  # noqa: BLE001 - a handler's fault is answered with 500, and reported
                raised(self, exchange, error)
                work = None
            self.serving = False
            if work is not None:
                spawn(drive(self, work, exchange))
            if not exchange.finished:
                self._hold(data, at)
                return
            stats.answered += 1
            self.exchange = None
            if (
                not exchange.keep_alive or exchange.body is not None or stream.chain.length or stream.closed
            ) and not self._go_on(exchange, data, at):
                return
            self._phase = IDLE
            if self._resting and self.due <= now + self.settings.keepalive_timeout:
                self.since = now  # the deadline is looked at when it comes
            else:
                self._await_request()
        if self._eof:
            self._close()

    def eof_received(self) -> None:
        """The client has shut down its writing side: what it asked for is still answered."""
        self._eof = True
        phase = self._phase
        exchange = self.exchange
        if phase == BUSY:
            if exchange is not None and exchange.body is not None:
                exchange.body.fail(HttpError(400, "client prematurely closed connection"))
            if exchange is not None and exchange.abort_on_eof:
                self._aborted(exchange, None)
        elif phase != GONE:
            self._close()

    def connection_lost(self, error: Exception | None) -> None:
        """The stream is closed."""
        exchange = self.exchange
        if exchange is not None:
            self._aborted(exchange, error)
        self._leave()

    def _aborted(self, exchange: Exchange, error: Exception | None) -> None:
        if not exchange.finished and not exchange.aborted:
            self.stats.aborted += 1
            try:
                exchange.abort(error if isinstance(error, ConnectionFailed) else None)
            except Exception as failure:  # noqa: BLE001 - of on_abort: reported, the connection ends all the same
                report(self, exchange, failure)

    def _leave(self) -> None:
        if self._phase != GONE:
            self._phase = GONE
            self._buffer = b""
            self._scan = None
            self.stats.connections -= 1
            self.clock.cancel(self)
            self.stream.set_owner(None)
            self.handler.closed(self)

    def _hold(self, data: bytes, at: int) -> None:
        """The current request takes longer: keep the rest of the input."""
        if at < len(data):
            self._buffer = data[at:]
        self.steer()

    def steer(self) -> None:
        """Read on, or not: bytes of a body that is wanted, or the end of the client; no further requests."""
        if self._phase != BUSY:
            return
        body = self.exchange.body if self.exchange is not None else None
        ended = body is None or body.done or body.error is not None
        if not self._buffer if body is None or ended else body.wanted:
            self.stream.start_reading()
        else:
            self.stream.pause_reading()

    def _more(self, data: bytes) -> None:
        """Bytes while a request is answered, or while its body is dropped after the answer."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        body = self.exchange.body if self.exchange is not None else None
        at = 0 if body is None or body.done else body.offer(data, 0)
        if self._phase == BUSY:
            self._hold(data, at)
        elif self._phase == DROPPING and body is not None:
            self._buffer = data[at:]
            if body.error is not None:
                self.give_up()
            elif body.done:
                self.exchange = None
                self._next()

    def _await_head(self, data: bytes, scan: HeadScan | None) -> None:
        """A part of a head is here; its deadline counts from its first byte."""
        if self._eof:
            self._close()
            return
        self._buffer = data
        self._scan = scan or HeadScan(0, self.settings.rules)
        if self._resting:
            self._resting = False
            self.since = self.clock.now()
            self.clock.schedule(self, self.settings.header_timeout)

    def _await_request(self) -> None:
        self._resting = True
        self.since = self.clock.now()
        self.clock.schedule(self, self.settings.keepalive_timeout)

    def _refuse_head(self, raw: bytes, error: HttpError) -> None:
        """A head that is broken, too large or too slow: answer it, then close."""
        self._phase = BUSY
        exchange = refuse_head(self, raw, error)
        if exchange.finished:
            self.finish(exchange)

    def finish(self, exchange: Exchange) -> None:
        """The answer of the current exchange is complete. Called by the exchange, outside of `handle`."""
        if exchange is not self.exchange:
            return
        self.stats.answered += 1
        self.exchange = None
        if self._phase != BUSY:
            return
        data, self._buffer = self._buffer, b""
        if self._go_on(exchange, data, 0):
            self._buffer = data
            self._next()

    def _go_on(self, exchange: Exchange, data: bytes, at: int) -> bool:
        """After an answer: True when the next request may be served now. Else the rest of the input is kept."""
        stream = self.stream
        if stream.closed or self._phase == GONE:
            return False
        body = exchange.body
        if not exchange.keep_alive or self.closing:
            self._end(linger=exchange.linger or at < len(data) or (body is not None and not body.done))
            return False
        if body is not None and not body.done:
            self._buffer = data[at:]
            if self._eof or not body.drop(exchange.settings):
                self._end(linger=True)
            else:
                self.exchange = exchange
                self._phase = DROPPING
                stream.start_reading()
            return False
        if stream.chain.length:
            # A client that does not read gets no further answers into the chain.
            self._buffer = data[at:]
            self.steer()
            stream.chain.mark(self._drained)
            return False
        return True

    def _drained(self, error: BaseException | None) -> None:
        if error is None and self._phase == BUSY:
            self._next()

    def _next(self) -> None:
        """Wait for the next request; one that is here already is served from the loop, not from our caller."""
        self._phase = IDLE
        self._await_request()
        if self._buffer:
            asyncio.get_running_loop().call_soon(self._serve_buffered)
            return
        if self._eof or self.closing:
            self._close()
            return
        self.stream.start_reading()

    def _serve_buffered(self) -> None:
        if self._buffer and self._phase == IDLE and not self.stream.closed:
            data, self._buffer = self._buffer, b""
            self.stream.start_reading()
            self.pipelined = self.requests + 1
            self.data_received(data)

    def _end(self, *, linger: bool) -> None:
        """Close after the last answer; lingering, so that the client can read it while it still sends."""
        self._buffer = b""
        self._phase = CLOSING
        self.clock.suspend(self)
        if linger and self.settings.lingering_close and not self._eof and not self.stream.closed:
            hold_open(self.stream, self, self.settings, self.clock)
        else:  # in a moment: who waits for the end of the connection finds the request logged
            asyncio.get_running_loop().call_soon(self.stream.close)

    def give_up(self) -> None:
        """The unwanted rest of a body is broken, too large or too slow to be read to its end."""
        self.exchange = None
        self._end(linger=True)

    def _close(self) -> None:
        self._phase = CLOSING
        self._buffer = b""
        self.clock.suspend(self)
        self.stream.close()

    def use(self, settings: ServerSettings, exchange: Exchange) -> None:
        """Settings that hold from this request on, when its virtual server is known; heads keep their rules."""
        self._until += settings.keepalive_time - self.settings.keepalive_time
        self._most = settings.keepalive_requests if settings.keepalive_timeout > 0 and not self.closing else 0
        self.settings = exchange.settings = settings
        self.stream.send_timeout = settings.send_timeout
        if exchange.body is None or not exchange.body.expecting:
            exchange.keep_alive = (
                exchange.head.keep_alive and self.requests < self._most and self.clock.now() < self._until
            )

    def close_soon(self) -> None:
        """Graceful end: close now when idle, else after the current answer.

        The first request of a fresh connection, and one that has arrived unread, are still waited for, a moment.
        """
        self.closing = True
        self._most = 0
        exchange = self.exchange
        if exchange is not None:
            if not exchange.headers_sent:
                exchange.keep_alive = False
        elif self.idle:
            if self.requests and self.stream.probe() != "data":
                self._close()
            else:
                self.clock.schedule(self, min(FIRST_REQUEST, self.settings.header_timeout))

    def detach(self, exchange: Exchange) -> Stream:
        """Give the stream away (Exchange.upgrade)."""
        stream = self.stream
        exchange.keep_alive = False
        stream.flush()
        stream.pause_reading()
        buffered = self._buffer
        self._leave()
        self._buffer = buffered
        return stream

    def take_buffered(self) -> bytes:
        """Input that no request has taken."""
        data, self._buffer = self._buffer, b""
        return data

    def expired(self) -> None:
        """The deadline has come; for a keep-alive one it may have moved (moving it costs one field)."""
        if self._phase != IDLE:
            return
        if self._resting:
            left = self.since + self.settings.keepalive_timeout - self.clock.now()
            if left > 0.001:
                self.clock.schedule(self, left)
                return
        else:
            self.stats.timeouts += 1
            if self._buffer:
                self._refuse_head(self._buffer, HttpError(408, "client sent its header too slowly"))
                return
        self._close()
