"""Http2Connection: the one owner of an HTTP/2 client's stream.

Frames come in and are looked at once (incoming.py); requests go to the same handler as those of HTTP/1. Everything
that is sent goes through the turns of the streams (turns.py). Here is the life of the connection: its deadlines, its
graceful end, its losses.

https://nginx.org/en/docs/http/ngx_http_v2_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.core.clock import NEVER, Timed
from headrace.core.failure import closed
from headrace.core.http1.linger import hold_open
from headrace.core.http1.server import next_serial
from headrace.core.http2 import frames as h2
from headrace.core.http2.frames import Fault, FrameReader
from headrace.core.http2.heads import HeadDecoder
from headrace.core.http2.incoming import take_frame
from headrace.core.http2.turns import Turns
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.core.http1.settings import Handler, ServerSettings
    from headrace.core.http2.stream import Http2Stream
    from headrace.core.proxy_protocol import ProxyHeader
    from headrace.core.stream import Stream

BACKLOG: Final = 262_144
"""Bytes that wait for the client before nothing more is read from it: its own answers hold its requests back."""


class Http2Connection(Timed):
    """See HttpConnection, whose interface towards the gateway this has. preread: http2_body_preread_size."""

    __slots__ = (
        "_cut", "_reader", "active", "block", "clock", "closing", "decoder", "ended", "handler", "info", "last",
        "late", "leaving", "peer_window", "preread", "proxied", "recv_window", "report", "requests", "resets",
        "resized", "serial", "settings", "settled", "since", "spent", "stats", "stream", "streams", "turns", "until",
        "used",
    )  # fmt: skip

    exchange = None
    serving = False

    def __init__(self, stream: Stream, handler: Handler, settings: ServerSettings, clock: Clock) -> None:
        self.due = NEVER
        self.tick = 0
        self.stream = stream
        self.handler = handler
        self.settings = settings
        self.clock = clock
        self.requests = 0
        self.serial = next_serial()
        self.info: Any = None
        self.proxied: ProxyHeader | None = None
        self.report: Callable[[str], None] | None = None
        self.closing = False
        self.preread = settings.http2_preread
        self.turns = Turns(stream, self._rest)
        self.peer_window = h2.DEFAULT_WINDOW
        self.settled = False  # the client has acknowledged our settings
        self.decoder = HeadDecoder.of(settings.rules)
        self._reader = FrameReader(max(self.decoder.most_bytes, h2.FRAME_SIZE))
        self.block: tuple[int, int, list[bytes]] | None = None  # stream, flags, pieces of a header block
        self.streams: dict[int, Http2Stream] = {}
        self.active = 0  # answers that are not complete, of streams that are gone too
        self.last = 0
        self.late = 0  # the stream whose head did not come in time
        self._cut = 0.0  # since when a part of a frame waits for its rest
        self.recv_window = h2.MAX_WINDOW
        self.resets = 0
        self.spent = 0  # bytes of all frames
        self.used = 0  # bytes of those that bring something
        self.leaving = False
        self.resized = False
        self.ended = False
        self.since = now = clock.now()
        self.until = now + settings.keepalive_time
        self.stats = stats = settings.stats
        stats.accepted += 1
        stats.connections += 1
        stream.send_timeout = settings.send_timeout
        values = {
            h2.SET_MAX_STREAMS: settings.http2_streams,
            h2.SET_WINDOW: self.preread,
            h2.SET_FRAME_SIZE: h2.MAX_FRAME_SIZE,
        }
        self.send(h2.settings_frame(values) + h2.window_frame(0, h2.MAX_WINDOW - h2.DEFAULT_WINDOW))
        clock.schedule(self, settings.header_timeout)
        stream.set_owner(self)
        stream.start_reading()

    @property
    def peer(self) -> Any:
        """The address of the client."""
        return self.stream.peer

    @property
    def frame_size(self) -> int:
        """Bytes of payload that the client takes in a frame."""
        return self.turns.frame_size

    @property
    def idle(self) -> bool:
        """No stream, and no part of a frame."""
        return not self.streams and self._reader.begun is None and self.block is None

    def __repr__(self) -> str:
        return f"<Http2Connection *{self.serial} {self.stream.peer!r} streams={len(self.streams)}>"

    # the owner of the stream

    def data_received(self, data: bytes) -> None:
        """Bytes of the client, after the preface."""
        self.turns.corked = True
        try:
            self._reader.feed(data)
            while not self.ended and (found := self._reader.next()) is not None:
                take_frame(self, *found)
        except Fault as fault:
            self._fail(fault)
        finally:
            self.turns.corked = False
            self.turns.run()
        if self.ended:
            return
        if self._reader.begun is None and self.block is None:
            self._cut = 0.0
            self._rest()
        elif not self._cut:
            self._cut = self.clock.now()
            self.clock.schedule(self, self.settings.header_timeout)
        if self.stream.chain.length > BACKLOG:
            self.stream.pause_reading()
            self.stream.chain.mark(self._caught_up)

    def _caught_up(self, error: BaseException | None) -> None:
        if error is None and not self.ended:
            self.stream.start_reading()

    def eof_received(self) -> None:
        """A client that closes its half is gone, as in nginx."""
        self._lose(ConnectionFailed("client prematurely closed connection", kind="closed"))
        self.ended = True
        self.stream.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The stream is closed."""
        self.ended = True
        self._lose(error if isinstance(error, ConnectionFailed) else closed())
        self.clock.cancel(self)
        self.stats.connections -= 1
        self.stream.set_owner(None)
        self.handler.closed(self)  # type: ignore[arg-type]

    def _lose(self, error: ConnectionFailed) -> None:
        streams, self.streams = self.streams, {}
        for view in streams.values():
            view.lost(error)

    def _fail(self, fault: Fault) -> None:
        """End the connection for what the client has done."""
        if self.ended:
            return
        if self.report is not None:
            self.report(fault.message)
        self.send(h2.goaway_frame(self.last, fault.code))
        self.leaving = True
        self._end()

    def _end(self) -> None:
        """Nothing more is said; what was said can still be read."""
        if self.ended:
            return
        self.ended = True
        self.turns.corked = False
        self.turns.run()
        self._lose(closed())
        self.clock.cancel(self)
        if self.settings.lingering_close and not self.stream.closed:
            hold_open(self.stream, self, self.settings, self.clock)
        else:
            self.stream.close()

    def close_soon(self) -> None:
        """Graceful end: no further streams, those at hand are served."""
        self.closing = True
        self.leave()
        if not self.streams:
            self._end()

    def leave(self) -> None:
        """Announce the end: further streams are not looked at."""
        if not self.leaving and not self.ended:
            self.leaving = True
            self.send(h2.goaway_frame(self.last, h2.NO_ERROR))

    def _rest(self) -> None:
        """Deadline of a connection without a part of a frame: that between requests, or none."""
        if self.ended:
            return
        if self.streams:
            self.clock.suspend(self)
        elif self.leaving:
            self._end()
        else:
            settings = self.settings
            self.since = self.clock.now()
            self.clock.schedule(self, settings.keepalive_timeout if self.requests else settings.header_timeout)

    def expired(self) -> None:
        """The client was idle for too long, or keeps the rest of a frame back."""
        if self.ended:
            return
        begun = self._reader.begun or (-1, 0)
        number = self.block[0] if self.block is not None else begun[1] if begun[0] == h2.HEADERS else 0
        if self._cut and self._cut > 0 and (number or self.streams):
            self._cut = -1.0  # the next time it is the end
            if number and not self.late:
                self.late = number
                self.stats.timeouts += 1
                self.send(h2.reset_frame(number, h2.PROTOCOL_ERROR))
            self.clock.schedule(self, max(self.settings.keepalive_timeout, self.settings.header_timeout))
            return
        if self._cut:
            self.stats.timeouts += 1
        self.leave()
        self._end()

    # what streams need

    def send(self, data: bytes) -> None:
        """Frames that no window holds back."""
        if not self.ended:
            self.turns.add(data)

    def wants_turn(self, view: Http2Stream) -> None:
        """A stream has bytes, or its end."""
        if view.closed:
            return
        if view.out_closed:
            self.out_closed(view)
        else:
            self.turns.join(view)

    def answered(self) -> None:
        """An answer is complete as far as its handler is concerned."""
        self.active -= 1
        self.stats.answered += 1

    def out_closed(self, view: Http2Stream) -> None:
        """The last frame of an answer is under way: the stream is done when its handler is."""
        if not view.ended or view.closed:
            return
        if view.in_closed:
            view.lost(closed())
            self.forget(view)
        else:
            view.reset(h2.NO_ERROR)  # the rest of the request is not wanted (RFC 9113 8.1)

    def forget(self, view: Http2Stream) -> None:
        """A stream is closed."""
        if self.streams.pop(view.number, None) is not None and not self.streams:
            self.turns.emptied()

    def table_update(self) -> bytes:
        """What a header block begins with after the client has changed the size of its table (RFC 7541 4.2)."""
        if not self.resized:
            return b""
        self.resized = False
        return b"\x20"
