"""Events -> bytes: heads, chunks, the Date field.

Nothing with CR, LF or NUL in a name, a value or a start line leaves this module: it raises FieldError, on
both sides of the wire, and never cuts a value short (response splitting, request smuggling).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from headrace.errors import Error, Side

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(rb"[\r\n\x00]")
_REQUEST_METHOD = _NAME
_REQUEST_TARGET = re.compile(rb"[^\x00-\x20\x7f]+")

LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# RFC 9110 15, with the words nginx uses where they differ: clients and tests look for them.
REASONS: dict[int, bytes] = {
    100: b"Continue",
    101: b"Switching Protocols",
    102: b"Processing",
    103: b"Early Hints",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    203: b"Non-Authoritative Information",
    204: b"No Content",
    205: b"Reset Content",
    206: b"Partial Content",
    300: b"Multiple Choices",
    301: b"Moved Permanently",
    302: b"Moved Temporarily",
    303: b"See Other",
    304: b"Not Modified",
    307: b"Temporary Redirect",
    308: b"Permanent Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    402: b"Payment Required",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Not Allowed",
    406: b"Not Acceptable",
    407: b"Proxy Authentication Required",
    408: b"Request Time-out",
    409: b"Conflict",
    410: b"Gone",
    411: b"Length Required",
    412: b"Precondition Failed",
    413: b"Request Entity Too Large",
    414: b"Request-URI Too Large",
    415: b"Unsupported Media Type",
    416: b"Requested Range Not Satisfiable",
    417: b"Expectation Failed",
    421: b"Misdirected Request",
    422: b"Unprocessable Content",
    426: b"Upgrade Required",
    428: b"Precondition Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Temporarily Unavailable",
    504: b"Gateway Time-out",
    505: b"HTTP Version Not Supported",
    507: b"Insufficient Storage",
}


class FieldError(Error):
    """A name, value or start line that would change the framing of a message."""

    kind = "bad_field"
    side = Side.US


def _refuse(what: str, data: bytes) -> FieldError:
    shown = data[:128].decode("latin-1").encode("unicode_escape").decode()
    return FieldError(f'{what} cannot be sent: "{shown}"')


def check_name(name: bytes) -> bytes:
    """`name` when it is a token (RFC 9110 5.1); raises FieldError."""
    if not _NAME.fullmatch(name):
        raise _refuse("a field name that is no token", name)
    return name


def check_value(value: bytes) -> bytes:
    """`value` when it holds no CR, LF or NUL; raises FieldError."""
    if _BAD_VALUE.search(value):
        raise _refuse("a field value with CR, LF or NUL", value)
    return value


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Field lines, without the empty line. Raises FieldError."""
    lines = []
    for name, value in fields:
        if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            check_name(name)
            check_value(value)
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


_status_lines: dict[int, bytes] = {status: b"HTTP/1.1 %d %b\r\n" % (status, text) for status, text in REASONS.items()}


def status_line(status: int, reason: bytes | None = None) -> bytes:
    """The status line with its line end; an unknown status gets no reason, as in nginx. Raises FieldError."""
    if reason is None:
        line = _status_lines.get(status)
        return line if line is not None else b"HTTP/1.1 %03d \r\n" % status
    return b"HTTP/1.1 %03d %b\r\n" % (status, check_value(reason))


def response_head(status: int, fields: Iterable[tuple[bytes, bytes]], *, reason: bytes | None = None) -> bytes:
    """A whole response head. Raises FieldError."""
    return b"%b%b\r\n" % (status_line(status, reason), encode_fields(fields))


def request_head(
    method: bytes, target: bytes, fields: Iterable[tuple[bytes, bytes]], *, version: bytes = b"1.1"
) -> bytes:
    """A whole request head; `fields` has the Host. Raises FieldError."""
    if not _REQUEST_METHOD.fullmatch(method):
        raise _refuse("a method that is no token", method)
    if not _REQUEST_TARGET.fullmatch(target):
        raise _refuse("a request target with white space or control characters", target)
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version, encode_fields(fields))


def chunk_size(size: int) -> bytes:
    """The size line before `size` bytes of a chunk; CRLF follows them. size > 0."""
    return b"%x\r\n" % size


def chunk(data: bytes) -> bytes:
    """One chunk; b"" for no data (an empty chunk would end the body)."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def last_chunk(trailers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """The end of a chunked body. Raises FieldError."""
    return b"0\r\n%b\r\n" % encode_fields(trailers)


_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


def http_date(second: int) -> bytes:
    """IMF-fixdate of seconds since 1970 (RFC 9110 5.6.7)."""
    year, month, day, hour, minute, sec, weekday, _, _ = time.gmtime(second)
    return b"%b, %02d %b %04d %02d:%02d:%02d GMT" % (_DAYS[weekday], day, _MONTHS[month - 1], year, hour, minute, sec)


class Prefix:
    """The beginning of many answers: status line, fixed fields and Date, rebuilt when the second changes.

    `at(second)` + the fields that differ + an empty line is a head.
    """

    __slots__ = ("_before", "_bytes", "_second")

    def __init__(self, status: int, fields: Iterable[tuple[bytes, bytes]] = (), *, reason: bytes | None = None) -> None:
        self._before = status_line(status, reason) + encode_fields(fields) + b"Date: "
        self._second = -1
        self._bytes = b""

    def at(self, second: int) -> bytes:
        """The bytes for an answer given at `second` (since 1970)."""
        if second != self._second:
            self._second = second
            self._bytes = b"%b%b\r\n" % (self._before, http_date(second))
        return self._bytes
