"""The parsers: bytes -> events, for either direction. No I/O; the outcome does not depend on how bytes are cut.

`RequestParser` is the whole request grammar in one object, for tools, tests and in-memory use; a server
connection uses the same pieces (request.py, body.py) without it, so that an idle one holds no parser.

`ResponseParser` reads one response. It is strict where two readers could differ about the end of a
message (RFC 9112 6.3): a faulty Transfer-Encoding or Content-Length is a ProtocolError, never "read until
the peer closes".
"""

from __future__ import annotations

import re

from headrace.core.http1.body import ChunkedDecoder, CloseDecoder, Decoder, LengthDecoder
from headrace.core.http1.events import EndOfMessage, Event, Fields, ResponseHead
from headrace.core.http1.request import HeadRules, HeadScan, parse_request_head
from headrace.errors import Error, HttpError, Side

_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\r\n]*))?\r?\n")
_STATUS_BEGUN = re.compile(rb"HTTP/1\.[0-9] [1-9][0-9]{2}[ \r\n]")
_HEAD_END = re.compile(rb"\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\x00]*\r?")
_FRAMING_NAME = re.compile(rb"(?:content-length|transfer-encoding)[ \t]")
_BAD_BYTE = re.compile(rb"\x00|\r[^\n]")
_LENGTH = re.compile(rb"[0-9]{1,18}")

MAX_RESPONSE_HEAD = 65_536

# Peers answer with the same head again and again (those with a Date, for a second each). Heads are never
# changed, so the last few are kept.
_HEADS_KEPT = 64
_HEAD_KEPT_SIZE = 512
_heads: dict[tuple[bytes, bytes], ResponseHead] = {}


class ProtocolError(Error):
    """The peer's answer breaks HTTP: nothing that follows on the connection can be trusted."""

    kind = "protocol"
    side = Side.SERVER
    retryable = True


class RequestParser:
    """A stream of requests. error: the fault that ended it (HttpError, with the status to answer), or None.

    max_body: decoded bytes of one body, 0 for no limit.
    """

    def __init__(self, rules: HeadRules | None = None, *, max_body: int = 0) -> None:
        self.error: HttpError | None = None
        self._rules = rules or HeadRules()
        self._max_body = max_body
        self._buffer = b""
        self._scan: HeadScan | None = None
        self._body: Decoder | None = None
        self._received = 0

    @property
    def between(self) -> bool:
        """No part of a request was seen since the last whole one."""
        return self._body is None and not self._buffer and self.error is None

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. After a fault, which `error` tells, there are no more."""
        events: list[Event] = []
        if self.error is not None:
            return events
        data = self._buffer + data
        try:
            at = self._advance(data, events)
        except HttpError as error:
            self.error = error
            at = len(data)
        self._buffer = data[at:]
        return events

    def feed_eof(self) -> None:
        """The client sends no more. Inside of a request that is a fault."""
        if not self.between and self.error is None:
            self.error = HttpError(400, "client prematurely closed connection")

    def _advance(self, data: bytes, events: list[Event]) -> int:
        at = 0
        while at < len(data):
            if self._body is None:
                head = parse_request_head(data, at, self._rules, self._scan)
                if head is None:
                    if self._scan is None:
                        self._scan = HeadScan(0, self._rules)
                    return at
                self._scan = None
                events.append(head)
                at += head.length
                self._received = 0
                self._body = ChunkedDecoder() if head.chunked else LengthDecoder(head.content_length or 0)
            pieces: list[bytes] = []
            try:
                at = self._body.decode(data, at, pieces)
            finally:
                self._received += sum(map(len, pieces))
                events.extend(pieces)
            if self._max_body and self._received > self._max_body:
                raise HttpError(413, f"client intended to send too large body: {self._received} bytes")
            if not self._body.done:
                return at
            events.append(EndOfMessage(self._body.trailers))
            self._body = None
        return at


MAX_INTERIM = 100
"""Interim answers before the final one: a peer that only sends these would never be done."""


class ResponseParser:
    """One response to a request with `method`; interim answers (1xx, not 101) are skipped.

    started: bytes of a reply were seen. done: the message is whole. head: once it is known. leftover:
    bytes after the end of the message (a pool must not keep such a connection; after 101 they belong to
    the new protocol).
    """

    def __init__(self, method: bytes, *, max_head: int = MAX_RESPONSE_HEAD) -> None:
        self.started = False
        self.done = False
        self.head: ResponseHead | None = None
        self._method = method
        self._max_head = max_head
        self._buffer = b""
        self._searched = 0
        self._interim = 0
        self._body: Decoder | None = None

    @property
    def leftover(self) -> bytes:
        """Bytes that belong to no part of this response."""
        return self._buffer if self.done else b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises ProtocolError."""
        events: list[Event] = []
        if data:
            self.started = True
        data = self._buffer + data if self._buffer else data
        at = 0
        while self._body is None and not self.done:
            end = self._head_end(data, at)
            if end < 0:
                self._buffer = data[at:]
                return events
            head = _response_head(data[at:end], self._method)
            at = end
            self._searched = 0
            if head.status >= 200 or head.status == 101:
                self.head = head
                events.append(head)
                self._body = _decoder_of(head)
            else:
                self._interim += 1
                if self._interim > MAX_INTERIM:
                    raise ProtocolError("the peer sent too many interim answers")
        if self._body is not None and not self.done:
            pieces: list[bytes] = []
            try:
                at = self._body.decode(data, at, pieces)
            except HttpError as error:
                raise ProtocolError(error.message) from error
            events.extend(pieces)
            if self._body.done:
                self._end(events)
        self._buffer = data[at:]
        return events

    def feed_eof(self) -> list[Event]:
        """The peer sends no more. Raises ProtocolError when the response is not whole."""
        events: list[Event] = []
        if isinstance(self._body, CloseDecoder) and not self.done:
            self._end(events)
        elif not self.done:
            where = "in the middle of its answer" if self.started else "before its answer"
            raise ProtocolError(f"the peer closed the connection {where}", kind="incomplete")
        return events

    def _end(self, events: list[Event]) -> None:
        assert self._body is not None
        self.done = True
        events.append(EndOfMessage(self._body.trailers))

    def _head_end(self, data: bytes, at: int) -> int:
        """End of the head that begins at `at`, -1 while it is not complete."""
        match = _HEAD_END.search(data, at + max(self._searched - 3, 0))
        end = len(data) if match is None else match.end()
        if end - at > self._max_head:
            raise ProtocolError("the peer sent a too large response head")
        if match is None:
            begun = data[at : at + 13]
            if not (b"HTTP/1.0 200 "[: len(begun)] == begun or _plausible(begun)):
                raise ProtocolError("the peer sent no HTTP/1 response")
            self._searched = len(data) - at
            return -1
        return end


def _plausible(begun: bytes) -> bool:
    """Whether a status line can begin so."""
    return _STATUS_BEGUN.fullmatch(begun + b"HTTP/1.1 200 "[len(begun) :]) is not None


def _response_head(raw: bytes, method: bytes) -> ResponseHead:
    """Look up or parse a response head."""
    key = (raw, method)
    head = _heads.get(key)
    if head is None:
        head = parse_response_head(raw, method)
        if len(raw) <= _HEAD_KEPT_SIZE:
            if len(_heads) >= _HEADS_KEPT:
                _heads.clear()
            _heads[key] = head
    return head


def parse_response_head(raw: bytes, method: bytes) -> ResponseHead:
    """Parse a whole response head (empty line included). Raises ProtocolError."""
    match = _STATUS_LINE.match(raw)
    if match is None:
        raise ProtocolError("the peer sent an invalid status line")
    if _BAD_BYTE.search(raw):
        raise ProtocolError("the peer sent a NUL or a bare CR in its response head")
    head = ResponseHead.__new__(ResponseHead)
    head.raw = raw
    head.length = len(raw)
    head.version = 10 if match[1] == b"0" else 11
    head.status = int(match[2])
    head.reason = (match[3] or b"").strip()
    # RFC 9112 5.2: a user agent replaces a fold with a space. A line that is no field is not passed on.
    lines = _FOLD.sub(b" ", raw[match.end() :]).split(b"\n")
    for line in lines:
        if _FRAMING_NAME.match(line.lower()):
            raise ProtocolError("the peer sent white space before the colon of a framing field")
    head.fields = Fields(b"".join(line + b"\n" for line in lines if _FIELD.fullmatch(line)) + b"\r\n")
    _set_framing(head, method)
    return head


def _set_framing(head: ResponseHead, method: bytes) -> None:
    """RFC 9112 6.3 and 9.3 for responses."""
    connection = [token.strip(b" \t").lower() for token in (head.header(b"connection") or b"").split(b",")]
    keep_alive = b"close" not in connection and (head.version == 11 or b"keep-alive" in connection)
    codings = head.header_all(b"transfer-encoding")
    head.bodyless = method == b"HEAD" or head.status < 200 or head.status in {204, 304}
    head.chunked = False
    head.content_length = _length_of(head)
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise ProtocolError(f"the peer sent an unusable Transfer-Encoding: {b', '.join(codings)!r}")
        head.chunked = True
        # Both fields, or the field in HTTP/1.0: another reader may see another end, so no further use.
        keep_alive = keep_alive and head.content_length is None and head.version == 11
    if method == b"CONNECT" and 200 <= head.status < 300:
        head.bodyless = True
        keep_alive = False
    head.until_close = not (head.bodyless or head.chunked) and head.content_length is None
    head.keep_alive = keep_alive and not head.until_close and head.status != 101


def _length_of(head: ResponseHead) -> int | None:
    values = {part.strip(b" \t") for value in head.header_all(b"content-length") for part in value.split(b",")}
    if not values:
        return None
    value = values.pop()
    if values or not _LENGTH.fullmatch(value):
        raise ProtocolError("the peer sent an invalid Content-Length")
    return int(value)


def _decoder_of(head: ResponseHead) -> Decoder:
    if head.bodyless:
        return LengthDecoder(0)
    if head.chunked:
        return ChunkedDecoder()
    return CloseDecoder() if head.content_length is None else LengthDecoder(head.content_length)
