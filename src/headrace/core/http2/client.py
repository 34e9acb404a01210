"""The client's side of a connection (RFC 9113): one exchange at a time, no I/O.

What comes is fed to `receive`, which returns what it means for the exchange at hand; what has to go out in answer to
it (acknowledgements, windows) waits in `replies` until it is taken. Whoever has the connection owns this object too:
it lives as long as the connection does, idle or not, since the tables and windows of both sides do.

Server push is turned off. A server may end its answer before the request is complete (8.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core.http2 import frames as h2
from headrace.core.http2.frames import Fault, FrameReader
from headrace.core.http2.heads import HeadDecoder

if TYPE_CHECKING:
    from headrace.core.http2.hpack import Field

CONTINUATIONS: Final = 64
CHATTER: Final = 1000
"""SETTINGS and PING frames that a server may send in one exchange."""
MAX_NUMBER: Final = 1 << 30
"""The stream after which a connection is not used again (their numbers end at 2^31)."""
_STARTS: Final = (
    h2.PREFACE
    + h2.settings_frame({h2.SET_ENABLE_PUSH: 0, h2.SET_WINDOW: h2.MAX_WINDOW})
    + h2.window_frame(0, h2.MAX_WINDOW - h2.DEFAULT_WINDOW)
)


class Headers:
    """A header block: the head of the answer, an interim one, or the trailers. end: nothing follows it."""

    __slots__ = ("end", "fields")

    def __init__(self, fields: list[Field], *, end: bool) -> None:
        self.fields = fields
        self.end = end


class ClientConnection:
    """See the module. limit: bytes that a head may have.

    number: the stream of the exchange. room: bytes of body that the server takes now. answered: the answer is complete.
    usable: another exchange may follow. replies: frames that have to go out.
    """

    __slots__ = (
        "_block", "_chatter", "_conn_room", "_credit", "_decoder", "_most", "_reader", "_recv_window", "_reset",
        "_stream_room", "answered", "closing", "frame_size", "limit", "number", "peer_window", "replies",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.number = -1
        self.frame_size = h2.FRAME_SIZE
        self.peer_window = h2.DEFAULT_WINDOW
        self.answered = True
        self.closing = False
        self.replies: list[bytes] = []
        self._reader = FrameReader(who="upstream")
        self._decoder = HeadDecoder(limit, limit, 1000)
        self._block: tuple[int, list[bytes]] | None = None
        self._conn_room = h2.DEFAULT_WINDOW
        self._stream_room = 0
        self._recv_window = h2.MAX_WINDOW
        self._credit = h2.MAX_WINDOW
        self._chatter = 0
        self._reset = False

    # what goes

    def begin(self, block: bytes, *, end: bool) -> bytes:
        """The frames that open the next exchange. end: the request has no body."""
        opening = _STARTS if self.number < 0 else b""
        self.number += 2
        self._stream_room = self.peer_window
        self._credit = h2.MAX_WINDOW
        self._chatter = 0
        self._reset = self.answered = False
        return opening + h2.header_frames(self.number, block, h2.END_STREAM if end else 0, self.frame_size)

    @property
    def room(self) -> int:
        """Bytes of the request body that the server takes now."""
        return max(min(self._conn_room, self._stream_room), 0)

    def data(self, piece: bytes, *, end: bool) -> bytes:
        """Frames for a piece of the body that is not larger than `room`. end: it is the last."""
        size = len(piece)
        self._conn_room -= size
        self._stream_room -= size
        most = self.frame_size
        if size <= most:
            return h2.frame(h2.DATA, h2.END_STREAM if end else 0, self.number, piece)
        return b"".join(
            h2.frame(h2.DATA, h2.END_STREAM if end and at + most >= size else 0, self.number, piece[at : at + most])
            for at in range(0, size, most)
        )

    def take_replies(self) -> bytes:
        """The frames that have to go out, b"" when there are none."""
        replies, self.replies = self.replies, []
        return b"".join(replies)

    # what comes

    @property
    def usable(self) -> bool:
        """The exchange is over and another may follow."""
        return (
            self.answered
            and not self.closing
            and self._block is None
            and self._reader.begun is None
            and self.number < MAX_NUMBER
        )

    def receive(self, data: bytes) -> list[Headers | bytes]:
        """What the bytes mean for the exchange: heads and pieces of the body. Raises Fault: no answer is to be had."""
        events: list[Headers | bytes] = []
        self._reader.feed(data)
        while (found := self._reader.next()) is not None:
            kind, flags, number, payload = found
            if self._block is not None and (kind != h2.CONTINUATION or number != self.number):
                raise Fault(h2.PROTOCOL_ERROR, f"upstream sent unexpected http2 frame: {kind}")
            if kind in (h2.DATA, h2.HEADERS, h2.CONTINUATION, h2.RST_STREAM):
                if number != self.number:
                    self._of_another(kind, number, payload)
                    continue
                if self.answered and kind != h2.RST_STREAM:
                    raise Fault(h2.STREAM_CLOSED, f"upstream sent frame for closed stream {number}")
            if kind == h2.DATA:
                self._on_data(flags, payload, events)
            elif kind == h2.HEADERS:
                self._on_headers(flags, payload, events)
            elif kind == h2.CONTINUATION:
                self._on_continuation(flags, payload, events)
            elif kind == h2.RST_STREAM:
                self._on_reset(payload)
            elif kind == h2.SETTINGS:
                self._on_settings(flags, payload)
            elif kind == h2.PING:
                self._on_ping(flags, payload)
            elif kind == h2.GOAWAY:
                self._on_goaway(payload)
            elif kind == h2.WINDOW_UPDATE:
                self._on_window(number, payload)
        return events

    def _of_another(self, kind: int, number: int, payload: bytes) -> None:
        """A frame of a stream that is over, or of none: only an end may come late."""
        if kind != h2.RST_STREAM or not number or number > self.number or len(payload) != 4:
            raise Fault(h2.PROTOCOL_ERROR, f"upstream sent frame for unknown stream {number}")

    def _on_data(self, flags: int, payload: bytes, events: list[Headers | bytes]) -> None:
        size = len(payload)
        if size > self._recv_window or size > self._credit:
            raise Fault(h2.FLOW_CONTROL_ERROR, "upstream violated flow control")
        self._recv_window -= size
        self._credit -= size
        if self._recv_window < h2.MAX_WINDOW // 4:
            self.replies.append(h2.window_frame(0, h2.MAX_WINDOW - self._recv_window))
            self._recv_window = h2.MAX_WINDOW
        data = _unpadded(flags, payload)
        if data:
            events.append(data)
        if flags & h2.END_STREAM:
            self.answered = True
            events.append(Headers([], end=True))
        elif self._credit < h2.MAX_WINDOW // 4:
            self.replies.append(h2.window_frame(self.number, h2.MAX_WINDOW - self._credit))
            self._credit = h2.MAX_WINDOW

    def _on_headers(self, flags: int, payload: bytes, events: list[Headers | bytes]) -> None:
        block = _unpadded(flags, payload)
        if flags & h2.PRIORITY_FLAG:
            if len(block) < 5:
                raise Fault(h2.FRAME_SIZE_ERROR, "upstream sent HEADERS frame with incorrect length")
            block = block[5:]
        self._take_block(flags, [block], events, ended=bool(flags & h2.END_HEADERS))

    def _on_continuation(self, flags: int, payload: bytes, events: list[Headers | bytes]) -> None:
        if self._block is None:
            raise Fault(h2.PROTOCOL_ERROR, "upstream sent unexpected CONTINUATION frame")
        first, pieces = self._block
        self._take_block(first, [*pieces, payload], events, ended=bool(flags & h2.END_HEADERS))

    def _take_block(self, flags: int, pieces: list[bytes], events: list[Headers | bytes], *, ended: bool) -> None:
        if len(pieces) > CONTINUATIONS or sum(map(len, pieces)) > self._decoder.most_bytes:
            raise Fault(h2.ENHANCE_YOUR_CALM, "upstream sent too big header")
        if not ended:
            self._block = flags, pieces
            return
        self._block = None
        try:
            fields = self._decoder.decode(b"".join(pieces))
        except Fault as fault:
            large = fault.code == h2.ENHANCE_YOUR_CALM
            reason = "too big header" if large else f"invalid http2 header block: {fault.__cause__}"
            raise Fault(fault.code, f"upstream sent {reason}") from fault
        end = bool(flags & h2.END_STREAM)
        self.answered = end
        events.append(Headers(fields, end=end))

    def _on_reset(self, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(h2.FRAME_SIZE_ERROR, f"upstream sent rst stream frame with invalid length: {len(payload)}")
        code = int.from_bytes(payload)
        if not self.answered or code:
            raise Fault(code, f"upstream rejected request with error {code}")
        if self._reset:
            raise Fault(h2.STREAM_CLOSED, f"upstream sent frame for closed stream {self.number}")
        self._reset = True

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & h2.ACK:
            if payload:
                raise Fault(h2.FRAME_SIZE_ERROR, "upstream sent settings frame with ack flag and nonzero length")
            return
        self._count()
        if len(payload) % 6:
            raise Fault(h2.FRAME_SIZE_ERROR, f"upstream sent settings frame with invalid length: {len(payload)}")
        for name, value in h2.settings_of(payload):
            if name == h2.SET_WINDOW:
                if value > h2.MAX_WINDOW:
                    raise Fault(h2.FLOW_CONTROL_ERROR, f"upstream sent settings frame with too large window: {value}")
                self._stream_room += value - self.peer_window
                self.peer_window = value
                if self._stream_room > h2.MAX_WINDOW:
                    raise Fault(h2.FLOW_CONTROL_ERROR, "upstream sent settings frame with too large window change")
            elif name == h2.SET_FRAME_SIZE:
                if not h2.FRAME_SIZE <= value <= h2.MAX_FRAME_SIZE:
                    raise Fault(h2.PROTOCOL_ERROR, f"upstream sent settings frame with invalid frame size: {value}")
                self.frame_size = min(value, h2.FRAME_SIZE)  # larger ones would only hold other frames up
        self.replies.append(h2.frame(h2.SETTINGS, h2.ACK, 0))

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise Fault(h2.FRAME_SIZE_ERROR, f"upstream sent ping frame with invalid length: {len(payload)}")
        if not flags & h2.ACK:
            self._count()
            self.replies.append(h2.frame(h2.PING, h2.ACK, 0, payload))

    def _count(self) -> None:
        self._chatter += 1
        if self._chatter > CHATTER:
            raise Fault(h2.ENHANCE_YOUR_CALM, "upstream sent too many settings or ping frames")

    def _on_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise Fault(h2.FRAME_SIZE_ERROR, f"upstream sent goaway frame with invalid length: {len(payload)}")
        last, code = int.from_bytes(payload[:4]) & h2.MAX_WINDOW, int.from_bytes(payload[4:8])
        self.closing = True
        if last < self.number:
            raise Fault(code, f"upstream sent goaway with error {code}")

    def _on_window(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(h2.FRAME_SIZE_ERROR, f"upstream sent window update frame with invalid length: {len(payload)}")
        increment = int.from_bytes(payload) & h2.MAX_WINDOW
        if number and number != self.number:
            return  # of an exchange that is over
        if not increment:
            raise Fault(h2.PROTOCOL_ERROR, "upstream sent window update frame with no increment")
        if number:
            self._stream_room += increment
        else:
            self._conn_room += increment
        if max(self._stream_room, self._conn_room) > h2.MAX_WINDOW:
            raise Fault(h2.FLOW_CONTROL_ERROR, "upstream sent too large window update")


def _unpadded(flags: int, payload: bytes) -> bytes:
    try:
        return h2.unpadded(flags, payload)
    except Fault as fault:
        raise Fault(fault.code, "upstream sent http2 frame with invalid padding") from fault
