"""memcached: one `get` a request. No I/O.

https://nginx.org/en/docs/http/ngx_http_memcached_module.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge.log import ERR, INFO
from headrace.edge.upstream.ask import Ask
from headrace.edge.upstream.reply import INVALID, PREMATURE, BadReply, Reading
from headrace.edge.upstream.routing import PassService

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.service import Route

_UNSAFE: Final = re.compile(rb"[\x00-\x20%\x7f]")
_VALUE: Final = re.compile(rb"VALUE ([^ ]+) ([0-9]+) ([0-9]+)(?: [0-9]+)?\r\n")
_TAIL: Final = b"\r\nEND\r\n"
NOT_FOUND: Final = parse_response_head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"GET")


class MemcachedReader(Reading):
    """See reply.Reader. key: that was asked for; flag: bits that mean the value is gzipped."""

    def __init__(self, key: bytes, flag: int, limit: int) -> None:
        super().__init__()
        self._key = key
        self._flag = flag
        self._limit = limit
        self._buffer = b""
        self._left = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See reply.Reader."""
        data = self._buffer + data
        self._buffer = b""
        if self.head is None:
            end = data.find(b"\n") + 1
            if not end:
                if len(data) >= self._limit:
                    raise BadReply("upstream sent too big header")
                self._buffer = data
                return []
            self._line(data[:end])
            data = data[end:]
        if self.done:
            return []
        pieces = []
        if self._left:
            piece = data[: self._left]
            self._left -= len(piece)
            data = data[len(piece) :]
            if piece:
                pieces.append(piece)
        if not self._left:
            if not _TAIL.startswith(data[: len(_TAIL)]):
                self.notes.append((ERR, b"memcached sent invalid trailer while reading upstream"))
                self.done = True
            elif len(data) >= len(_TAIL):
                self.done = True
                self.keep_alive = len(data) == len(_TAIL)
            else:
                self._buffer = data
        return pieces

    def _line(self, line: bytes) -> None:
        if line == b"END\r\n":
            self.notes.append((INFO, b'key: "%b" was not found by memcached' % self._key))
            self.head, self.length = NOT_FOUND, 0
            self.done = self.keep_alive = True
            return
        found = _VALUE.fullmatch(line)
        if found is None or found[1] != self._key:
            self.notes.append((ERR, b"memcached sent invalid response: %b" % line.rstrip()))
            raise BadReply(INVALID)
        raw = b"HTTP/1.1 200 OK\r\n%bContent-Length: %b\r\n\r\n" % (self.fields(found[2]), found[3])
        self.head = parse_response_head(raw, b"GET")
        self.length = self._left = int(found[3])

    def fields(self, flags: bytes) -> bytes:
        """Header fields that the flags of the value stand for."""
        return b"Content-Encoding: gzip\r\n" if self._flag and int(flags) & self._flag else b""

    def eof(self) -> list[bytes]:
        """See reply.Reader."""
        if self.done:
            return []
        raise BadReply(PREMATURE, premature=True)


def escape_key(key: bytes) -> bytes:
    """A key that is one word."""
    return _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], key)


class MemcachedService(PassService):
    """A location with memcached_pass. flag: of memcached_gzip_flag."""

    scheme = "memcached"
    schemes = {}  # noqa: RUF012 - an empty table
    flag = 0

    def handle(self, request: Request) -> Awaitable[int | None] | int:
        """The content handler: GET and HEAD only."""
        if request.method not in (b"GET", b"HEAD"):
            return 405
        if not request.get_slot(b"memcached_key"):
            request.log_error(ERR, b'the "$memcached_key" variable is not set')
            return 500
        if request.content_type is None:
            request.content_type = request.location.content_type_of(request.uri)
        return super().handle(request)

    def ask(self, request: Request, _route: Route, *, stream: bool) -> Ask:
        """See Service."""
        del stream
        key = escape_key(request.get_slot(b"memcached_key") or b"")
        return Ask(b"GET", key, head=b"get %b\r\n" % key)

    def reader(self, _request: Request, ask: Ask) -> MemcachedReader:
        """See Service."""
        return MemcachedReader(ask.uri, self.flag, self.settings.buffer_size)
