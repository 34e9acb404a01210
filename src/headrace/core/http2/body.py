"""The body of a request: frames offer bytes, the handler takes them, and what it took moves the stream's window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.http1.inbound import RequestBody
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.http1.events import RequestHead
    from headrace.core.http2.stream import Http2Stream


class FrameDecoder:
    """DATA frames hold body bytes as they are; the flag END_STREAM ends them."""

    __slots__ = ("done", "left", "trailers")

    def __init__(self) -> None:
        self.done = False
        self.left = 0
        self.trailers: list[tuple[bytes, bytes]] = []

    @staticmethod
    def frame(pieces: list[bytes]) -> bytes:
        """The pieces as they stand on the wire."""
        return b"".join(pieces)

    @staticmethod
    def decode(data: bytes, at: int, out: list[bytes]) -> int:
        """Take all of it."""
        if at < len(data):
            out.append(data[at:] if at else data)
        return len(data)


class Http2Body(RequestBody):
    """See RequestBody; the connection calls `arrived`."""

    __slots__ = ()

    _decoder: Any

    def __init__(self, stream: Http2Stream, head: RequestHead) -> None:
        conn: Any = stream
        super().__init__(conn, head)
        self.length = head.content_length
        self._decoder = FrameDecoder()
        self.expecting = False

    def arrived(self, data: bytes, *, end: bool, trailers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Bytes of the body, or its end. A length that is not the declared one is an error 400 of the reader."""
        coming = self.received + len(data)
        if self.length is not None and (coming > self.length or (end and coming != self.length)):
            self.fail(HttpError(400, f"client sent a body of {coming} bytes, declared were {self.length}", close=False))
            return
        if end:
            self._decoder.done = self.error is None
            self._decoder.trailers = trailers or []
        self.offer(data, 0)
        if not end and (self._limit is not None or self._waiter is not None):
            self._conn.steer()
