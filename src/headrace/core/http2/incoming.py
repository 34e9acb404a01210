"""What each frame of a client does to its connection.

What a stream does wrong resets that stream; what breaks the connection's state raises Fault, which ends it. What costs
a client nothing (resets, pings, settings, empty frames) is weighed against the requests and bytes that it brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.dispatch import drive, raised, refuse, spawn
from headrace.core.http2 import frames as h2
from headrace.core.http2.body import Http2Body
from headrace.core.http2.exchange import Http2Exchange
from headrace.core.http2.frames import Fault
from headrace.core.http2.heads import partial_head, request_head, trailer_fields
from headrace.core.http2.stream import Http2Stream
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.http2.connection import Http2Connection
    from headrace.core.http2.hpack import Field

CONTINUATIONS: Final = 64
FREE_BYTES: Final = 1 << 20
"""What frames without use may cost before they are weighed against the others."""


def take_frame(conn: Http2Connection, kind: int, flags: int, number: int, payload: bytes) -> None:
    """Look at one frame; Fault ends the connection."""
    conn.spent += 9 + len(payload)
    if conn.spent // 8 > conn.used + FREE_BYTES:
        raise Fault(h2.ENHANCE_YOUR_CALM, "http2 flood detected")
    if conn.block is not None and (kind != h2.CONTINUATION or number != conn.block[0]):
        raise Fault(h2.PROTOCOL_ERROR, "client sent another frame while CONTINUATION was expected")
    if kind < len(_FRAMES):
        _FRAMES[kind](conn, flags, number, payload)


def _on_data(conn: Http2Connection, flags: int, number: int, payload: bytes) -> None:
    size = len(payload)
    if not number or number > conn.last:
        raise Fault(h2.PROTOCOL_ERROR, "client sent DATA frame with incorrect identifier")
    if size > conn.recv_window:
        raise Fault(h2.FLOW_CONTROL_ERROR, "client violated connection flow control")
    conn.recv_window -= size
    if conn.recv_window < h2.MAX_WINDOW // 4:
        conn.send(h2.window_frame(0, h2.MAX_WINDOW - conn.recv_window))
        conn.recv_window = h2.MAX_WINDOW
    data = h2.unpadded(flags, payload)
    conn.used += len(data)
    view = conn.streams.get(number)
    if view is None:
        return  # of a stream that was reset or answered
    if view.in_closed:
        view.reset(h2.STREAM_CLOSED)
        return
    if size > view.credit:
        view.reset(h2.FLOW_CONTROL_ERROR)
        return
    view.credit -= size
    _take_body(conn, view, data, end=bool(flags & h2.END_STREAM))


def _take_body(
    conn: Http2Connection, view: Http2Stream, data: bytes, *, end: bool, trailers: list[Field] | None = None
) -> None:
    view.in_closed = view.in_closed or end
    exchange = view.exchange
    body: Any = exchange.body if exchange is not None else None
    if body is not None:
        body.arrived(data, end=end, trailers=trailers)


def _on_headers(conn: Http2Connection, flags: int, number: int, payload: bytes) -> None:
    if not number & 1:
        raise Fault(h2.PROTOCOL_ERROR, f"client sent HEADERS frame with incorrect identifier {number}")
    block = h2.unpadded(flags, payload)
    if flags & h2.PRIORITY_FLAG:
        if len(block) < 5:
            raise Fault(h2.FRAME_SIZE_ERROR, "client sent HEADERS frame with incorrect length")
        if int.from_bytes(block[:4]) & h2.MAX_WINDOW == number:
            conn.late = number  # depends on itself: reset, but its block is decoded
            conn.send(h2.reset_frame(number, h2.PROTOCOL_ERROR))
        block = block[5:]
    if number not in conn.streams and number <= conn.last:
        raise Fault(h2.PROTOCOL_ERROR, f"client sent HEADERS frame with incorrect identifier {number}")
    if flags & h2.END_HEADERS:
        _on_block(conn, number, flags, block)
    else:
        conn.block = (number, flags, [block])


def _on_continuation(conn: Http2Connection, flags: int, number: int, payload: bytes) -> None:
    if conn.block is None:
        raise Fault(h2.PROTOCOL_ERROR, "client sent unexpected CONTINUATION frame")
    pieces = conn.block[2]
    pieces.append(payload)
    if len(pieces) > CONTINUATIONS or sum(map(len, pieces)) > conn.decoder.most_bytes:
        raise Fault(h2.ENHANCE_YOUR_CALM, "client sent too many CONTINUATION frames")
    if flags & h2.END_HEADERS:
        first, conn.block = conn.block[1], None
        _on_block(conn, number, first, b"".join(pieces))


def _on_block(conn: Http2Connection, number: int, flags: int, block: bytes) -> None:
    if not conn.leaving:
        conn.last = max(conn.last, number)
    fields = conn.decoder.decode(block)
    conn.used += len(block)
    end = bool(flags & h2.END_STREAM)
    view = conn.streams.get(number)
    if view is not None:
        _on_trailers(conn, view, fields, end=end)
        return
    if conn.leaving or conn.ended:
        return
    if number == conn.late:
        conn.late = 0
        return
    if max(len(conn.streams), conn.active) >= conn.settings.http2_streams or (
        not end and not conn.settled and conn.preread < h2.DEFAULT_WINDOW
    ):
        conn.send(h2.reset_frame(number, h2.REFUSED_STREAM))
        _count_in_vain(conn)
        return
    _begin(conn, number, fields, len(block), end=end)


def _on_trailers(conn: Http2Connection, view: Http2Stream, fields: list[Field], *, end: bool) -> None:
    if view.in_closed or not end:
        view.reset(h2.STREAM_CLOSED if view.in_closed else h2.PROTOCOL_ERROR)
        return
    try:
        trailers = trailer_fields(fields)
    except HttpError:
        view.reset(h2.PROTOCOL_ERROR)
        return
    _take_body(conn, view, b"", end=True, trailers=trailers)


def _begin(conn: Http2Connection, number: int, fields: list[Field], size: int, *, end: bool) -> None:
    settings, now = conn.settings, conn.clock.now()
    conn.requests += 1
    conn.stats.requests += 1
    conn.active += 1
    view = Http2Stream(conn, number, conn.peer_window, conn.preread)
    view.in_closed = end
    conn.streams[number] = view
    error: HttpError | None = None
    try:
        head = request_head(fields, settings)
    except HttpError as failure:
        head, error = partial_head(fields), failure
    head.length = size
    exchange = view.exchange = Http2Exchange(view, head, now)
    if not end:
        # Without a length it is what a chunked body is in HTTP/1; who sends it on has to frame it.
        head.fields.chunked = head.content_length is None
        body: Any = Http2Body(view, head)
        exchange.body = body
    elif error is None and head.content_length:
        error = HttpError(400, "client sent END_STREAM instead of the body that it declared", close=False)
    like: Any = view
    view.serving = True
    work = None
    if error is not None:
        refuse(like, exchange, error)
    else:
        try:
            work = conn.handler.handle(exchange)
        except Exception as failure:  # noqa: BLE001 - a handler's fault is answered with 500, and reported
            raised(like, exchange, failure)
    view.serving = False
    if work is not None:
        spawn(drive(like, work, exchange))
    most = settings.keepalive_requests if settings.keepalive_timeout > 0 else 0
    if conn.requests >= most or now >= conn.until:
        conn.leave()


def _on_reset(conn: Http2Connection, _flags: int, number: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise Fault(h2.FRAME_SIZE_ERROR, "client sent RST_STREAM frame with incorrect length")
    if not number or number > conn.last:
        raise Fault(h2.PROTOCOL_ERROR, "client sent RST_STREAM frame with incorrect identifier")
    view = conn.streams.pop(number, None)
    if view is None:
        return
    view.lost(ConnectionFailed("client canceled stream", kind="reset"))
    _count_in_vain(conn)


def _count_in_vain(conn: Http2Connection) -> None:
    """A request was refused or taken back: too many of those, and no more are looked at (CVE-2023-44487)."""
    conn.resets += 1
    if conn.resets > max(100, conn.settings.http2_streams) and conn.resets * 2 > conn.requests:
        raise Fault(h2.ENHANCE_YOUR_CALM, "client resets too many streams")


def _on_settings(conn: Http2Connection, flags: int, number: int, payload: bytes) -> None:
    if number:
        raise Fault(h2.PROTOCOL_ERROR, "client sent SETTINGS frame with incorrect identifier")
    if flags & h2.ACK:
        if payload:
            raise Fault(h2.FRAME_SIZE_ERROR, "client sent SETTINGS frame with the ACK flag and nonzero length")
        conn.settled = True
        return
    for name, value in h2.settings_of(payload):
        if name == h2.SET_WINDOW:
            _resize(conn, value)
        elif name == h2.SET_FRAME_SIZE:
            if not h2.FRAME_SIZE <= value <= h2.MAX_FRAME_SIZE:
                raise Fault(h2.PROTOCOL_ERROR, f"client sent SETTINGS frame with incorrect MAX_FRAME_SIZE {value}")
            conn.turns.frame_size = value
        elif name == h2.SET_ENABLE_PUSH and value > 1:
            raise Fault(h2.PROTOCOL_ERROR, f"client sent SETTINGS frame with incorrect ENABLE_PUSH {value}")
        elif name == h2.SET_HEADER_TABLE_SIZE:
            conn.resized = True
    conn.send(h2.frame(h2.SETTINGS, h2.ACK, 0))


def _resize(conn: Http2Connection, window: int) -> None:
    """SETTINGS_INITIAL_WINDOW_SIZE holds for the streams at hand too (RFC 9113 6.9.2)."""
    if window > h2.MAX_WINDOW:
        raise Fault(h2.FLOW_CONTROL_ERROR, "client sent SETTINGS frame with incorrect INITIAL_WINDOW_SIZE")
    change, conn.peer_window = window - conn.peer_window, window
    for view in list(conn.streams.values()):
        if not view.opened(change):
            raise Fault(h2.FLOW_CONTROL_ERROR, "client sent SETTINGS frame that makes a window too large")


def _on_push(_conn: Http2Connection, _flags: int, _number: int, _payload: bytes) -> None:
    """Refused by the reader."""


def _on_ping(conn: Http2Connection, flags: int, number: int, payload: bytes) -> None:
    if len(payload) != 8:
        raise Fault(h2.FRAME_SIZE_ERROR, "client sent PING frame with incorrect length")
    if number:
        raise Fault(h2.PROTOCOL_ERROR, "client sent PING frame with incorrect identifier")
    if not flags & h2.ACK:
        conn.send(h2.frame(h2.PING, h2.ACK, 0, payload))


def _on_goaway(conn: Http2Connection, _flags: int, number: int, payload: bytes) -> None:
    if len(payload) < 8:
        raise Fault(h2.FRAME_SIZE_ERROR, "client sent GOAWAY frame with incorrect length")
    if number:
        raise Fault(h2.PROTOCOL_ERROR, "client sent GOAWAY frame with incorrect identifier")


def _on_window(conn: Http2Connection, _flags: int, number: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise Fault(h2.FRAME_SIZE_ERROR, "client sent WINDOW_UPDATE frame with incorrect length")
    increment = int.from_bytes(payload) & h2.MAX_WINDOW
    if not number:
        if not increment:
            raise Fault(h2.PROTOCOL_ERROR, "client sent WINDOW_UPDATE frame with incorrect window increment 0")
        if not conn.turns.opened(increment):
            raise Fault(h2.FLOW_CONTROL_ERROR, "client violated connection flow control")
        return
    if number > conn.last:
        raise Fault(h2.PROTOCOL_ERROR, "client sent WINDOW_UPDATE frame with incorrect identifier")
    view = conn.streams.get(number)
    if view is None:
        return
    if not increment:
        view.reset(h2.PROTOCOL_ERROR)
    elif not view.opened(increment):
        view.reset(h2.FLOW_CONTROL_ERROR)


def _on_priority(conn: Http2Connection, _flags: int, number: int, payload: bytes) -> None:
    """Priorities are not followed (RFC 9113 5.3.2): streams take turns."""
    if len(payload) != 5:
        raise Fault(h2.FRAME_SIZE_ERROR, "client sent PRIORITY frame with incorrect length")
    if not number:
        raise Fault(h2.PROTOCOL_ERROR, "client sent PRIORITY frame with incorrect identifier")
    if int.from_bytes(payload[:4]) & h2.MAX_WINDOW == number:
        view = conn.streams.get(number)
        if view is not None:
            view.reset(h2.PROTOCOL_ERROR)


_FRAMES: Final[tuple[Callable[[Http2Connection, int, int, bytes], None], ...]] = (
    _on_data,
    _on_headers,
    _on_priority,
    _on_reset,
    _on_settings,
    _on_push,
    _on_ping,
    _on_goaway,
    _on_window,
    _on_continuation,
)
