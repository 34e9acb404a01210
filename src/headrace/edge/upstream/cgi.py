"""What FastCGI, SCGI and uwsgi share: parameters in, an answer in the manner of CGI out (RFC 3875 6). No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import ProtocolError, parse_response_head
from headrace.edge.upstream.reply import INVALID, PREMATURE, TOO_BIG, BadReply, Reading
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2}[^\r\n]*)\r?\n")
_STATUS: Final = re.compile(rb"^status:[ \t]*([1-9][0-9]{2}[^\r\n]*)\r?\n", re.IGNORECASE | re.MULTILINE)
_LOCATION: Final = re.compile(rb"^location:", re.IGNORECASE | re.MULTILINE)
_FRAMING: Final = re.compile(rb"^(?:transfer-encoding|connection|keep-alive):[^\n]*\n", re.IGNORECASE | re.MULTILINE)


class Params:
    """The parameters of a location, compiled. fields: name, value, and whether an empty one is left out."""

    def __init__(self, fields: Iterable[tuple[bytes, Value, bool]], *, pass_headers: bool) -> None:
        self.fields = tuple(fields)
        self.named = frozenset(name for name, _, _ in self.fields)
        self.pass_headers = pass_headers

    def pairs(self, request: Request) -> list[tuple[bytes, bytes]]:
        """What is sent for a request: the parameters, then the client's fields as HTTP_NAME."""
        found = []
        for name, value, skip in self.fields:
            text = evaluate(value, request)
            if text or not skip:
                found.append((name, text))
        if self.pass_headers:
            joined: dict[bytes, bytes] = {}
            for name, text in request.headers_in():
                key = b"HTTP_" + name.upper().replace(b"-", b"_")
                if key in self.named:
                    continue
                mark = b"; " if key == b"HTTP_COOKIE" else b", "
                joined[key] = joined[key] + mark + text if key in joined else text
            found += joined.items()
        return found


class CgiReader(Reading):
    """See reply.Reader: a head with a Status field, or an HTTP head; the body ends with the connection."""

    def __init__(self, method: bytes, limit: int) -> None:
        super().__init__()
        self.left: int | None = None
        self._method = method
        self._limit = limit
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """See reply.Reader."""
        pieces = self.take(data)
        if self.left == 0:
            self.done = True
        return pieces

    def take(self, data: bytes) -> list[bytes]:
        """Bytes of the answer: head, then body."""
        if self.head is None:
            data = self._buffer + data
            match = _HEAD_END.search(data)
            if match is None:
                if len(data) >= self._limit:
                    raise BadReply(TOO_BIG)
                self._buffer = data
                return []
            if match.end() > self._limit:
                raise BadReply(TOO_BIG)
            self._buffer = b""
            self.head = self._parse(data[: match.end()])
            self.length = self.left = self.head.content_length
            if self.head.bodyless and self.head.status != 101:
                self.left = 0
            data = data[match.end() :]
        if self.left is not None and len(data) > self.left:
            self.notes.append(
                (5, b'upstream sent more data than specified in "Content-Length" header while reading upstream')
            )
            data = data[: self.left]
        if self.left is not None:
            self.left -= len(data)
        return [data] if data else []

    def _parse(self, raw: bytes) -> ResponseHead:
        line = _STATUS_LINE.match(raw)
        if line is not None:
            status, fields = line[1], raw[line.end() :]
        else:
            found = _STATUS.search(raw)
            status = found[1] if found else b"302 Moved Temporarily" if _LOCATION.search(raw) else b"200 OK"
            fields = raw
        fields = _FRAMING.sub(b"", fields)
        try:
            head = parse_response_head(b"HTTP/1.1 %b\r\n%b" % (status, fields), self._method)
        except ProtocolError as error:
            self.notes.append((4, error.message.encode("utf-8", "surrogateescape")))
            raise BadReply(INVALID) from error
        if line is None and not head.headers() and fields.strip():
            raise BadReply(INVALID)
        return head

    def eof(self) -> list[bytes]:
        """See reply.Reader."""
        if self.head is None or (self.left is not None and self.left > 0):
            raise BadReply(PREMATURE, premature=True)
        self.done = True
        return []
