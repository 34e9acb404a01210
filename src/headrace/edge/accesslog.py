"""access_log and log_format: a format is compiled once to a function of the request.

https://nginx.org/en/docs/http/ngx_http_log_module.html
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from gzip import compress
from typing import TYPE_CHECKING, Final

from headrace.edge.connection import client_text
from headrace.edge.corevars import claimed_user
from headrace.edge.log import CRIT, ERR, sinks
from headrace.edge.values import Value, evaluate, split_value

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.edge.log import LogFile, Record
    from headrace.edge.logcache import LogCache
    from headrace.edge.request import Request
    from headrace.edge.variables import Getter, Variables
    from headrace.errors import Place

COMBINED: Final = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
)

_DEFAULT: Final = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_JSON: Final = re.compile(rb'[\x00-\x1f"\\]')
_NOTHING: Final = re.compile(rb"(?!)")
_JSON_SHORT: Final = {10: b"\\n", 13: b"\\r", 9: b"\\t", 8: b"\\b", 12: b"\\f", 34: b'\\"', 92: b"\\\\"}

Format = Callable[["Request"], bytes]


def _escape_default(text: bytes) -> bytes:
    return _DEFAULT.sub(lambda match: b"\\x%02X" % match.group()[0], text)


def _escape_json(text: bytes) -> bytes:
    return _JSON.sub(lambda match: _JSON_SHORT.get(match.group()[0]) or b"\\u%04X" % match.group()[0], text)


def compile_format(text: str, variables: Variables, place: Place | None, escape: str = "default") -> Format:
    """Compile a log_format; escape is "default", "json" or "none". The result ends its line."""
    pieces: list[bytes | Getter] = split_value(text, variables, place)
    getters = tuple(piece for piece in pieces if not isinstance(piece, bytes))
    template = b"".join(piece.replace(b"%", b"%%") if isinstance(piece, bytes) else b"%b" for piece in pieces) + b"\n"
    empty = b"-" if escape == "default" else b""
    unsafe, replace = {
        "default": (_DEFAULT, _escape_default),
        "json": (_JSON, _escape_json),
        "none": (_NOTHING, _escape_default),
    }[escape]
    search = unsafe.search

    def line(request: Request) -> bytes:
        values = []
        for getter in getters:
            value = getter(request)
            values.append(empty if value is None else value)
        if search(b"".join(values)):
            values = [replace(value) for value in values]
        return template % tuple(values)

    return line


class AccessLog:
    """One access_log of a level of the configuration.

    condition: from `if=`; an empty value or "0" keeps the request out. buffer: bytes that lines are gathered up to
    (0: each line is written at once). flush: seconds after which gathered lines are written at the latest.
    gzip: level at which what is gathered is compressed, 0: not.
    """

    def __init__(
        self,
        file: LogFile,
        line: Format,
        *,
        condition: Value | None = None,
        buffer: int = 0,
        flush: float = 0.0,
        gzip: int = 0,
    ) -> None:
        self.gzip = gzip
        self.file = file
        self.line = line
        self.condition = condition
        self.buffer = buffer
        self.flush_after = flush
        self.clock: Clock | None = None
        self._lines: list[bytes] = []
        self._size = 0

    def log(self, request: Request) -> None:
        """Write the line of a request that has ended."""
        if self.condition is not None and evaluate(self.condition, request) in (b"", b"0"):
            return
        line = self.line(request)
        if not self.buffer:
            self.file.write(line)
            return
        if self._size + len(line) > self.buffer:
            self.flush()
        if not self._lines and self.flush_after and self.clock is not None:
            self.clock.deadline(self.flush_after, self.flush)
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Write the gathered lines."""
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            text = b"".join(lines)
            self.file.write(compress(text, self.gzip) if self.gzip else text)


class PathLog:
    """An access log whose path has variables: opened for each line, or kept in a cache.

    A file that cannot be opened loses the line.
    """

    def __init__(
        self, path: Value, line: Format, *, condition: Value | None = None, cache: LogCache | None = None
    ) -> None:
        self.path = path
        self.cache = cache
        self.line = line
        self.condition = condition

    def log(self, request: Request) -> None:
        """Write the line of a request that has ended."""
        if self.condition is not None and evaluate(self.condition, request) in (b"", b"0"):
            return
        path = evaluate(self.path, request)
        root = request.location.root_of(request)
        if not os.path.isdir(root):
            text = b'testing "%b" existence failed (2: No such file or directory) while logging request'
            request.log_error(ERR, text % root)
            return
        try:
            if self.cache is not None:
                self.cache.write(path, self.line(request))
                return
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = f"failed ({error.errno}: {error.strerror})".encode()
            request.log_error(CRIT, b'open() "%b" %b while logging request' % (path, reason))
            return
        try:
            os.write(fd, self.line(request))
        finally:
            os.close(fd)


class PipelineLog:
    """An access log into the pipeline of the same process: `access_log pipeline:TAG [FORMAT]`.

    line: None sends the record of record_of. A format's line becomes a record of its own when it is a JSON object,
    else the field "message" of one.
    """

    def __init__(self, tag: str, line: Format | None, *, condition: Value | None = None) -> None:
        self.tag = tag
        self.line = line
        self.condition = condition

    def log(self, request: Request) -> None:
        """Hand over the record of a request that has ended."""
        if self.condition is not None and evaluate(self.condition, request) in (b"", b"0"):
            return
        at, record = record_of(request) if self.line is None else (time.time_ns(), _parsed(self.line(request)))
        for sink in sinks:
            sink(self.tag, at, record)


def _parsed(line: bytes) -> Record:
    text = line[:-1].decode("utf-8", "surrogateescape")
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            return {"message": text}
        if isinstance(found, dict):
            return found
    return {"message": text}


def record_of(request: Request) -> tuple[int, Record]:
    """What the log bridge tells about a request: the end in ns since the epoch, and fields of nginx's names."""
    exchange = request.exchange
    record: Record = {
        "remote_addr": _text(client_text(request)),
        "remote_user": _text(claimed_user(request)),
        "host": _text(request.header_in(b"host")),
        "server_name": _text(request.server.name),
        "method": _text(request.method),
        "uri": _text(request.uri),
        "args": _text(request.args),
        "request": _text(request.var(b"request")),
        "status": request.status,
        "bytes_sent": exchange.bytes_sent,
        "body_bytes_sent": max(exchange.bytes_sent - request.head_size, 0),
        "request_length": request.received(),
        "request_time": round(request.elapsed(), 6),
        "http_referer": _text(request.header_in(b"referer")),
        "http_user_agent": _text(request.header_in(b"user-agent")),
    }
    return time.time_ns(), record


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "surrogateescape")
