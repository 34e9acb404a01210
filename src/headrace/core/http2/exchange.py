"""Http2Exchange: one request and its answer, with the interface of core.http1.exchange.

The head of an answer is the text that HTTP/1.1 would send, made by the same code for both; only here it becomes a
header block. What framing it names means nothing: END_STREAM ends a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.http1.exchange import Exchange
from headrace.core.http2.frames import END_STREAM, INTERNAL_ERROR, PROTOCOL_ERROR
from headrace.core.http2.heads import answer_block
from headrace.core.http2.hpack import encode_fields
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Framing
    from headrace.core.http2.stream import Http2Stream
    from headrace.core.stream import Stream

_BODYLESS = frozenset({b"204", b"304"})


class Http2Exchange(Exchange):
    """See Exchange. `conn` is the view that this request has of the connection: see Http2Stream."""

    __slots__ = ("_view",)

    def __init__(self, view: Http2Stream, head: RequestHead, start: float) -> None:
        conn: Any = view
        super().__init__(conn, head, start, keep_alive=True)
        self._view = view

    def respond(self, head: bytes, body: bytes = b"") -> None:
        """Answer completely; see Exchange.respond."""
        if self.headers_sent:
            raise RuntimeError("the answer has begun already")
        self.headers_sent = self.finished = True
        if body and (self.head.method == b"HEAD" or head[9:12] in _BODYLESS):
            body = b""
        self.bytes_sent += len(head) + len(body)
        view = self._view
        view.send_head(answer_block(head), END_STREAM if not body else 0)
        view.chain.append(body)
        view.finish(self)

    def interim(self, head: bytes) -> None:
        """Send an interim answer (103, ...) before the final one."""
        if not self.headers_sent:
            self.bytes_sent += len(head)
            self._view.send_head(answer_block(head), 0)

    def start_response(self, head: bytes, *, framing: Framing) -> None:
        """Begin an answer whose body follows by `send`; see Exchange.start_response."""
        if self.headers_sent:
            raise RuntimeError("the answer has begun already")
        self.headers_sent = True
        self._mute = self.head.method == b"HEAD" or framing == "none" or head[9:12] in _BODYLESS
        self.bytes_sent += len(head)
        self._view.send_head(answer_block(head), 0)

    def finish(self, trailers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """The answer is complete; trailers become the last header block. Does nothing the second time."""
        if self.finished:
            return
        if not self.headers_sent:
            raise RuntimeError("an answer without a head")
        self.finished = True
        fields = [(name.lower(), value) for name, value in trailers]
        if fields and not self._mute:
            self._view.trailers = encode_fields(fields)
        self._view.finish(self)

    def close(self) -> None:
        """End the exchange without (the rest of) an answer: the stream is reset, the connection goes on."""
        if self.finished:
            return
        self.finished = True
        error = self.body.error if self.body is not None else None
        late = isinstance(error, HttpError) and error.status == 408
        self._view.reset(PROTOCOL_ERROR if late else INTERNAL_ERROR)
        self._view.finish(self)

    def upgrade(self) -> Stream:
        """A request does not own the connection."""
        raise ConnectionFailed("an HTTP/2 request cannot take over the connection")

    def take_buffered(self) -> bytes:
        """See upgrade."""
        return b""
