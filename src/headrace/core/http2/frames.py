"""Frames: what comes is cut into frames, and frames are made of what goes. No I/O, no state but the cut.

RFC 9113 4 and 6. A frame that is larger than we allow is refused when its header is here.
"""

from __future__ import annotations

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

(
    NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR,
    REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM,
) = range(12)  # fmt: skip

SET_HEADER_TABLE_SIZE, SET_ENABLE_PUSH, SET_MAX_STREAMS, SET_WINDOW, SET_FRAME_SIZE = 1, 2, 3, 4, 5

FRAME_SIZE: Final = 16_384
PIECE: Final = 4096
"""Bytes of a large DATA frame that are worth looking at before more of it is here."""
MAX_FRAME_SIZE: Final = (1 << 24) - 1
MAX_WINDOW: Final = (1 << 31) - 1
DEFAULT_WINDOW: Final = 65_535

_HEAD: Final = struct.Struct(">HBBBI")
Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""


class Fault(Exception):
    """The peer has broken the protocol; `code` is what GOAWAY or RST_STREAM tell it.

    stream: 0 when it concerns the whole connection.
    """

    def __init__(self, code: int, message: str, stream: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.stream = stream


class FrameReader:
    """Cuts what comes into frames. At most one frame is held, and of a large DATA frame a piece at a time.

    size: the largest payload that is taken of other frames, in bytes. who: the peer, as messages name it.
    """

    __slots__ = ("_at", "_cut", "_data", "size", "who")

    def __init__(self, size: int = FRAME_SIZE, who: str = "client") -> None:
        self._data = b""
        self._at = 0
        self._cut: tuple[int, int, int, int] | None = None  # of a large frame: flags, stream, bytes left, padding
        self.size = size
        self.who = who

    def feed(self, data: bytes) -> None:
        """Take bytes of the client; call `next` until it has no more."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next(self) -> Frame | None:
        """The next whole frame; Fault FRAME_SIZE_ERROR."""
        data, at = self._data, self._at
        if self._cut is not None:
            return self._piece(self._cut)
        if len(data) - at < 9:
            return None
        high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
        length = high << 8 | low
        if kind == PUSH_PROMISE:
            raise Fault(PROTOCOL_ERROR, f"{self.who} sent PUSH_PROMISE frame")
        if length > FRAME_SIZE and kind == DATA:
            return self._open(flags, stream & MAX_WINDOW, length)
        if length > self.size:
            raise Fault(FRAME_SIZE_ERROR, f"{self.who} sent a too large frame: {length} bytes")
        end = at + 9 + length
        if len(data) < end:
            return None
        self._at = end
        return kind, flags, stream & MAX_WINDOW, data[at + 9 : end]

    def _open(self, flags: int, stream: int, left: int) -> Frame | None:
        """Begin a large DATA frame: it becomes small ones, with the padding and the end in the last of them."""
        data, at = self._data, self._at + 9
        padding = -1
        if flags & PADDED:
            if len(data) == at:
                return None
            padding = data[at]
            at, left = at + 1, left - 1 - padding
        self._at = at
        return self._piece((flags, stream, left, padding))

    def _piece(self, cut: tuple[int, int, int, int]) -> Frame | None:
        flags, stream, left, padding = self._cut = cut
        data, at = self._data, self._at
        here = len(data) - at
        if left:
            size = min(left, FRAME_SIZE, here)
            if not size or (size < left and size < PIECE):
                return None  # a few octets are no frame
            self._at = at + size
            last = size == left and padding < 0
            self._cut = None if last else (flags, stream, left - size, padding)
            return DATA, flags & END_STREAM if last else 0, stream, data[at : at + size]
        if here < padding:
            return None
        self._at = at + padding
        self._cut = None
        return DATA, flags, stream, bytes((padding,)) + data[at : at + padding]

    @property
    def begun(self) -> tuple[int, int] | None:
        """Kind and stream of a frame of which a part is here, (-1, 0) for a part of its header; None without one."""
        left = len(self._data) - self._at
        if self._cut is not None:
            return DATA, self._cut[1]
        if not left:
            return None
        if left < 9:
            return -1, 0
        _high, _low, kind, _flags, stream = _HEAD.unpack_from(self._data, self._at)
        return kind, stream & MAX_WINDOW


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 255, kind, flags, stream) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    """SETTINGS with these values."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *item) for item in values.items()))


def window_frame(stream: int, increment: int) -> bytes:
    """WINDOW_UPDATE; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def reset_frame(stream: int, code: int) -> bytes:
    """RST_STREAM."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def goaway_frame(last: int, code: int) -> bytes:
    """GOAWAY: streams after `last` were not looked at."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


def header_frames(stream: int, block: bytes, flags: int, size: int) -> bytes:
    """HEADERS, and CONTINUATION when the block is larger than the frames that the client takes."""
    if len(block) <= size:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    pieces = [frame(HEADERS, flags, stream, block[:size])]
    for at in range(size, len(block), size):
        last = END_HEADERS if at + size >= len(block) else 0
        pieces.append(frame(CONTINUATION, last, stream, block[at : at + size]))
    return b"".join(pieces)


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload without padding (RFC 9113 6.1); Fault PROTOCOL_ERROR when it is all padding and more."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise Fault(FRAME_SIZE_ERROR, "client sent a padded frame without the length of its padding")
    if payload[0] >= len(payload):
        raise Fault(PROTOCOL_ERROR, "client sent a padded frame with incorrect length")
    return payload[1 : len(payload) - payload[0]]


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """The pairs of a SETTINGS frame in order; Fault for a payload that is none."""
    if len(payload) % 6:
        raise Fault(FRAME_SIZE_ERROR, f"client sent SETTINGS frame with incorrect length {len(payload)}")
    return list(struct.iter_unpack(">HI", payload))
