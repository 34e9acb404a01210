"""Redis as an upstream: requests as the configuration makes them, replies as they are. No I/O.

A reply is over when its last value is (RESP, https://redis.io/docs/latest/develop/reference/protocol-spec/): lines,
strings of a length, arrays of values. Nothing of it is kept: what is here of it goes on.
https://github.com/openresty/redis2-nginx-module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge.log import ERR
from headrace.edge.upstream.ask import Ask
from headrace.edge.upstream.reply import PREMATURE, BadReply, Reading
from headrace.edge.upstream.routing import PassService
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.service import Route

_HEAD: Final = parse_response_head(b"HTTP/1.1 200 OK\r\n\r\n", b"GET")
_LINE: Final = 64 * 1024
_LINES: Final = b"+-:"


class ReplyScan:
    """Finds the end of some replies. left: values that are still to come."""

    __slots__ = ("_line", "_skip", "left")

    def __init__(self, replies: int) -> None:
        self.left = replies
        self._line = b""
        self._skip = 0

    def take(self, data: bytes) -> int:
        """How many of the bytes belong to the replies. Raises BadReply."""
        at, end = 0, len(data)
        while at < end and (self.left or self._skip):
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            cut = data.find(b"\n", at)
            piece = data[at : cut + 1] if cut >= 0 else data[at:]
            at += len(piece)
            self._line += piece
            if cut >= 0:
                line, self._line = self._line, b""
                self._value(line)
            elif self._line[:1] not in b"+-:$*" or len(self._line) > _LINE:
                raise _invalid(self._line)
        return at

    @property
    def done(self) -> bool:
        """All of it came."""
        return not self.left and not self._skip

    def _value(self, line: bytes) -> None:
        kind, text = line[:1], line[1:-2]
        if not line.endswith(b"\r\n") or not kind:
            raise _invalid(line)
        self.left -= 1
        if kind in _LINES:
            return
        if kind not in b"$*" or not text.removeprefix(b"-").isdigit() or len(text) > 18:
            raise _invalid(line)
        size = int(text)
        if size < 0:
            return
        if kind == b"$":
            self._skip = size + 2
        else:
            self.left += size


def _invalid(line: bytes) -> BadReply:
    return BadReply(f"upstream sent invalid response: {line[:80]!r}")


class RedisReader(Reading):
    """See reply.Reader."""

    def __init__(self, replies: int) -> None:
        super().__init__()
        self._scan = ReplyScan(replies)

    def feed(self, data: bytes) -> list[bytes]:
        """See reply.Reader."""
        used = self._scan.take(data)
        self.head = _HEAD
        self.done = self._scan.done
        self.keep_alive = self.done and used == len(data)
        if used == len(data):
            return [data]
        return [data[:used]] if used else []

    def eof(self) -> list[bytes]:
        """See reply.Reader."""
        if self.done:
            return []
        raise BadReply(PREMATURE, premature=True)


class RedisService(PassService):
    """A location with redis2_pass. queries: words of each; raw: bytes as they are, and how many replies they have."""

    scheme = "redis2"
    schemes = {}  # noqa: RUF012 - an empty table
    queries: tuple[tuple[Value, ...], ...] = ()
    raw: tuple[Value, Value] | None = None

    def handle(self, request: Request) -> Awaitable[int | None] | int:
        """The content handler."""
        if not self.queries and self.raw is None:
            request.log_error(ERR, b"no redis2 query specified or the query is empty")
            return 500
        if self.raw is not None and not _count(self.raw[0], request):
            request.log_error(ERR, b'invalid number of queries in "redis2_raw_queries"')
            return 500
        if request.content_type is None:
            request.content_type = request.location.content_type_of(request.uri)
        return super().handle(request)

    def ask(self, request: Request, _route: Route, *, stream: bool) -> Ask:
        """See Service."""
        del stream
        if self.raw is not None:
            return Ask(b"GET", b"", head=evaluate(self.raw[1], request))
        return Ask(b"GET", b"", head=b"".join(_command(query, request) for query in self.queries))

    def reader(self, request: Request, _ask: Ask) -> RedisReader:
        """See Service."""
        return RedisReader(len(self.queries) if self.raw is None else _count(self.raw[0], request))


def _count(value: Value, request: Request) -> int:
    text = evaluate(value, request)
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _command(words: tuple[Value, ...], request: Request) -> bytes:
    texts = [evaluate(word, request) for word in words]
    return b"*%d\r\n%b" % (len(texts), b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))
