"""The answer of an HTTP upstream: bytes -> head, body. No I/O.

As nginx: what does not begin with `HTTP/` is taken for an answer of HTTP/0.9, interim answers are skipped, a head
has to fit into proxy_buffer_size. As core.http1: what two readers could understand in two ways is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from headrace.core.http1.body import ChunkedDecoder, CloseDecoder, Decoder, LengthDecoder
from headrace.core.http1.parse import MAX_INTERIM, ProtocolError, parse_response_head
from headrace.edge.log import ERR
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_PLAIN_HEAD: Final = b"HTTP/1.0 200 OK\r\n\r\n"
_KEPT: Final = 128
_KEPT_SIZE: Final = 512
_heads: Final[dict[tuple[bytes, bytes], ResponseHead]] = {}
"""Upstreams answer with the same head again and again."""

INVALID: Final = "upstream sent invalid header"
TOO_BIG: Final = "upstream sent too big header"
NO_HTTP: Final = "upstream sent no valid HTTP/1.0 header"
PREMATURE: Final = "upstream prematurely closed connection"
BAD_CHUNK: Final = "upstream sent invalid chunked response"


class BadReply(Exception):
    """An answer that cannot be used; the message is the beginning of nginx's line. premature: it ended too early."""

    def __init__(self, message: str, *, premature: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.premature = premature


class Failed(Exception):
    """A try that gave no answer. kind: a word of proxy_next_upstream; message: for the log, b"" when it is logged."""

    def __init__(self, kind: str, status: int, message: str, level: int = ERR) -> None:
        super().__init__(message)
        self.level = level
        self.kind = kind
        self.status = status
        self.message = message


class Reader(Protocol):
    """Reads one answer, of whatever protocol.

    head: None until it is whole. done: the answer is whole. keep_alive: the connection may carry another request
    when it is done. length: of the body in bytes, None when it is not known beforehand. notes: messages for the error
    log, taken away by who logs them.
    """

    head: ResponseHead | None
    done: bool
    keep_alive: bool
    length: int | None
    trailers: list[tuple[bytes, bytes]]
    notes: list[tuple[int, bytes]]

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body that `data` completes. Raises BadReply."""
        ...

    def eof(self) -> list[bytes]:
        """The upstream sends no more: no pieces. Raises BadReply when the answer is not whole."""
        ...


class Reading:
    """What a Reader of any protocol knows, before the first byte."""

    __slots__ = ("done", "head", "keep_alive", "length", "notes", "trailers")

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.done = False
        self.keep_alive = False
        self.length: int | None = None
        self.trailers: list[tuple[bytes, bytes]] = []
        self.notes: list[tuple[int, bytes]] = []


class HttpReader(Reading):
    """See Reader. method: of the request as the upstream got it."""

    __slots__ = ("_body", "_buffer", "_interim", "_limit", "_method", "_until_close", "extra")

    def __init__(self, method: bytes, limit: int) -> None:
        super().__init__()
        self.extra = b""
        """What came behind the answer: bytes of the new protocol after 101."""
        self._method = method
        self._limit = limit
        self._buffer = b""
        self._body: Decoder | None = None
        self._interim = 0
        self._until_close = False

    def feed(self, data: bytes) -> list[bytes]:
        """See Reader."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        at = 0
        while self._body is None:
            end = self._find_head(data, at)
            if end < 0:
                return []
            at = end
        pieces: list[bytes] = []
        try:
            at = self._body.decode(data, at, pieces)
        except HttpError as error:
            raise BadReply(BAD_CHUNK) from error
        if self._body.done:
            self._end(data[at:] if at < len(data) else b"")
        elif at < len(data):
            self._buffer = data[at:]
        return pieces

    def eof(self) -> list[bytes]:
        """See Reader."""
        if self.done:
            return []
        if self._until_close and self._body is not None:
            self.done = True
            return []
        raise BadReply(PREMATURE, premature=True)

    def _end(self, rest: bytes) -> None:
        assert self._body is not None
        assert self.head is not None
        self.done = True
        self.trailers = self._body.trailers
        self.extra = rest
        if rest and self.head.status != 101:
            self.keep_alive = False
            what = b'more data than specified in "Content-Length" header' if self.length else b"unsolicited data"
            self.notes.append((5, b"upstream sent %b while reading upstream" % what))

    def _find_head(self, data: bytes, at: int) -> int:
        """The end of the head that begins at `at`, -1 while there is none."""
        begun = data[at : at + 5]
        if not b"HTTP/".startswith(begun) and begun != b"HTTP/":
            if at:
                raise BadReply(INVALID)
            self.notes.append((4, NO_HTTP.encode() + b" while reading response header from upstream"))
            self._take(parse_response_head(_PLAIN_HEAD, b"GET"))
            return at
        match = _HEAD_END.search(data, at)
        if match is None:
            if len(data) - at >= self._limit:
                raise BadReply(TOO_BIG)
            self._buffer = data[at:]
            return -1
        end = match.end()
        if end - at > self._limit:
            raise BadReply(TOO_BIG)
        raw = data[at:end] if at or end < len(data) else data
        head = _heads.get((raw, self._method))
        if head is None:
            head = self._parse(raw)
        if head.status < 200 and head.status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadReply(INVALID)
        else:
            self._take(head)
        return end

    def _parse(self, raw: bytes) -> ResponseHead:
        try:
            head = parse_response_head(raw, self._method)
        except ProtocolError as error:
            self.notes.append((4, error.message.encode("utf-8", "surrogateescape")))
            raise BadReply(INVALID) from error
        if len(raw) <= _KEPT_SIZE:
            if len(_heads) >= _KEPT:
                _heads.clear()
            _heads[raw, self._method] = head
        return head

    def _take(self, head: ResponseHead) -> None:
        self.head = head
        self.length = head.content_length if not head.chunked else None
        self.keep_alive = head.keep_alive
        self._until_close = head.until_close
        if head.bodyless:
            self._body = LengthDecoder(0)
        elif head.chunked:
            self._body = ChunkedDecoder()
        elif head.content_length is None:
            self._body = CloseDecoder()
        else:
            self._body = LengthDecoder(head.content_length)
