"""FastCGI, SCGI and uwsgi: the bytes of a request, and the records of a FastCGI answer. No I/O.

https://fastcgi-archives.github.io/FastCGI_Specification.html, https://python.ca/scgi/protocol.txt,
https://uwsgi-docs.readthedocs.io/en/latest/Protocol.html
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.upstream.ask import Ask, body_length
from headrace.edge.upstream.cgi import CgiReader, Params
from headrace.edge.upstream.reply import PREMATURE, BadReply
from headrace.edge.upstream.routing import PassService

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.service import Route
    from headrace.edge.upstream.settings import Settings

BEGIN, END, PARAMS, STDIN, STDOUT, STDERR = 1, 3, 4, 5, 6, 7
_HEADER: Final = struct.Struct("!BBHHBx")
_MAX: Final = 65535


def record(kind: int, data: bytes) -> bytes:
    """One record of request 1."""
    return _HEADER.pack(1, kind, 1, len(data), 0) + data


def wrap_stdin(size: int) -> tuple[bytes, bytes]:
    """The framing of a piece of the request body."""
    return _HEADER.pack(1, STDIN, 1, size, 0), b""


def _length(size: int) -> bytes:
    return bytes((size,)) if size < 128 else struct.pack("!I", size | 0x80000000)


def encode_params(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Name-value pairs in records, with the empty record behind them."""
    data = b"".join(b"%b%b%b%b" % (_length(len(name)), _length(len(text)), name, text) for name, text in pairs)
    records = [record(PARAMS, data[at : at + _MAX]) for at in range(0, len(data), _MAX)]
    return b"".join((*records, record(PARAMS, b"")))


class FastcgiReader(CgiReader):
    """The answer within records; what an application says on its standard error goes to the log."""

    def __init__(self, method: bytes, limit: int, *, catch: tuple[bytes, ...] = ()) -> None:
        super().__init__(method, limit)
        self._input = b""
        self._catch = catch
        self._stdout_closed = False

    def feed(self, data: bytes) -> list[bytes]:
        """See reply.Reader."""
        data = self._input + data
        at, pieces = 0, []
        while len(data) - at >= 8 and not self.done:
            version, kind, _, size, padding = _HEADER.unpack_from(data, at)
            if version != 1 or kind not in (END, STDOUT, STDERR):
                raise BadReply(f"upstream sent unexpected FastCGI record: {kind if version == 1 else version}")
            end = at + 8 + size
            if len(data) < end + padding:
                if kind != STDOUT or self.head is None:
                    break
                end, padding, size = self._part(data, at, size, padding)
                if end < 0:
                    break
                pieces += self.take(data[at + 8 : end])
                data = _HEADER.pack(1, STDOUT, 1, size, padding) + data[end:]
                at = 0
                break
            content = data[at + 8 : end]
            at = end + padding
            if kind == STDOUT and content:
                pieces += self.take(content)
            elif kind == STDOUT:
                self._stdout_closed = True
            elif kind == STDERR and content:
                self._said(content)
            elif kind == END:
                if self.head is None or (self.left or 0) > 0:
                    raise BadReply(PREMATURE.replace("connection", "FastCGI stdout"), premature=True)
                self.done = True
        self._input = data[at:]
        return pieces

    @staticmethod
    def _part(data: bytes, at: int, size: int, padding: int) -> tuple[int, int, int]:
        """Of a record that is not whole: where what is here of its content ends, its padding, what is left of it."""
        here = min(len(data) - at - 8, size)
        return (-1, 0, 0) if here < 4096 or here == size else (at + 8 + here, padding, size - here)

    def _said(self, text: bytes) -> None:
        shown = text.rstrip(b"\r\n\0 ")
        self.notes.append((4, b'FastCGI sent in stderr: "%b" while reading response header from upstream' % shown))
        if self.head is None and any(word in text for word in self._catch):
            raise BadReply("FastCGI sent in stderr what fastcgi_catch_stderr names")

    def eof(self) -> list[bytes]:
        """See reply.Reader."""
        if self._stdout_closed or (self.head is not None and self.left == 0):
            return super().eof()
        raise BadReply(PREMATURE, premature=True)


_CONDITIONS: Final = frozenset(
    (b"HTTP_IF_MODIFIED_SINCE", b"HTTP_IF_UNMODIFIED_SINCE", b"HTTP_IF_NONE_MATCH", b"HTTP_IF_MATCH", b"HTTP_RANGE",
     b"HTTP_IF_RANGE")
)  # fmt: skip


def _conditions(request: Request, pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The client's conditions and ranges are answered from the cache: the application gets the cache's own."""
    cacher = request.upstream.cacher
    found = [pair for pair in pairs if pair[0] not in _CONDITIONS]
    for name, field in ((b"HTTP_IF_MODIFIED_SINCE", b"last-modified"), (b"HTTP_IF_NONE_MATCH", b"etag")):
        text = cacher.condition(field)
        if text:
            found.append((name, text))
    return found


class CgiService(PassService):
    """A location with fastcgi_pass, scgi_pass or uwsgi_pass."""

    def __init__(self, settings: Settings, params: Params, groups: dict[str, Group], scheme: str) -> None:
        super().__init__(settings, groups)
        self.params = params
        self.scheme = scheme
        self.schemes = {"uwsgi": 0, "suwsgi": 0} if scheme == "uwsgi" else {}
        self.options: dict[str, Any] = {}

    def may_stream(self, request: Request) -> bool:
        """See Service: SCGI and uwsgi say the length first."""
        return self.settings.pass_body and (self.scheme == "fastcgi" or not request.exchange.head.chunked)

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """See Service."""
        ask = request.upstream.ask = Ask(request.method, b"")
        if stream:
            ask.stream = True
            ask.length = request.exchange.head.content_length
        elif self.settings.pass_body:
            ask.length = body_length(request)
            ask.file = request.body_file
            ask.body = request.body or b""
        pairs = self.params.pairs(request)
        if request.upstream.cacher is not None and request.upstream.cacher.store:
            pairs = _conditions(request, pairs)
        if self.scheme == "fastcgi":
            flags = 1 if self.options.get("keep_conn") else 0
            ask.head = record(BEGIN, struct.pack("!HB5x", 1, flags)) + encode_params(pairs)
            ask.wrap, ask.tail = wrap_stdin, record(STDIN, b"")
        elif self.scheme == "scgi":
            pairs = [(b"CONTENT_LENGTH", b"%d" % (ask.length or 0)), *(p for p in pairs if p[0] != b"CONTENT_LENGTH")]
            text = b"".join(b"%b\0%b\0" % (name, value.replace(b"\0", b"")) for name, value in pairs)
            ask.head = b"%d:%b," % (len(text), text)
        else:
            data = b"".join(
                struct.pack("<H", len(name)) + name + struct.pack("<H", len(value)) + value for name, value in pairs
            )
            one, two = self.options.get("modifier1", 0), self.options.get("modifier2", 0)
            ask.head = struct.pack("<BHB", one, len(data), two) + data
        return ask

    def reader(self, _request: Request, ask: Ask) -> CgiReader:
        """See Service."""
        if self.scheme == "fastcgi":
            reader = FastcgiReader(ask.method, self.settings.buffer_size, catch=self.options.get("catch_stderr", ()))
            reader.keep_alive = bool(self.options.get("keep_conn"))
            return reader
        return CgiReader(ask.method, self.settings.buffer_size)
