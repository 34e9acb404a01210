"""The head of an answer: filters run, then the lines are put together in nginx's order.

Status line, Server, Date and Content-Type are the same for many answers of one second, so they are made once.
Order: Server, Date, Content-Type, Content-Length, Last-Modified, Location, Transfer-Encoding, Connection,
Keep-Alive, Vary, then the others as they were added.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headrace.edge import names
from headrace.edge.connection import is_tls, local_port
from headrace.edge.headers import escape
from headrace.edge.ranges import apply_ranges
from headrace.edge.times import http_date
from headrace.edge.uri import escape_path

if TYPE_CHECKING:
    from headrace.edge.request import Request

_prefixes: Final[dict[tuple[int, bytes, bytes], bytes]] = {}
_prefix_until: float = 0.0

DATED: Final = frozenset({200, 206, 304})
_BODYLESS: Final = frozenset({204, 304})
KEEP: Final = b"Connection: keep-alive\r\n"
CLOSE: Final = b"Connection: close\r\n"
MAX_PREFIXES: Final = 512


def _prefix(status: int, content_type: bytes, server: bytes) -> bytes:
    global _prefix_until  # noqa: PLW0603 - one cache a process, emptied every second
    now = time.time()
    if not _prefix_until - 1.0 <= now < _prefix_until or len(_prefixes) > MAX_PREFIXES:
        _prefix_until = float(int(now) + 1)
        _prefixes.clear()
    key = (status, content_type, server)
    text = _prefixes.get(key)
    if text is None:
        text = b"HTTP/1.1 %b\r\nServer: %b\r\nDate: %b\r\n" % (names.status_text(status), server, http_date())
        if content_type:
            text += b"Content-Type: %b\r\n" % escape(content_type)
        _prefixes[key] = text
    return text


def assemble(request: Request) -> bytes:
    """Run the header filters and return the head; decides framing, `header_only` and keep-alive as it goes."""
    location = request.location
    status = request.err_status or request.status or 200
    request.status = status
    if request.content_type is None:
        request.content_type = location.content_type_of(request.uri)
    request.body_filters = location.body_filters
    if location.header_filters:
        for header_filter in location.header_filters:
            header_filter(request)
        status = request.status
    if request.allow_ranges is not None:
        apply_ranges(request)
        status = request.status
    exchange = request.exchange
    length = request.content_length
    if status < 200 or status in _BODYLESS:
        request.header_only = True
        request.content_type = b""
        request.content_length = length = None
    elif request.method == b"HEAD":
        request.header_only = True
    elif length is None:
        if exchange.can_chunk and location.chunked:
            request.chunked = True
        else:
            exchange.keep_alive = False
    connection = KEEP if exchange.keep_alive else CLOSE
    if location.keepalive_header and exchange.keep_alive:
        connection += location.keepalive_header
    if status not in DATED:
        request.last_modified = None
    if (
        request.kept_headers is None
        and request.location_out is None
        and request.last_modified is None
        and not request.vary
    ):
        head = _prefix(status, request.content_type or b"", location.server_token)
        if length is not None:
            return b"%bContent-Length: %d\r\n%b\r\n" % (head, length, connection)
        return head + (b"Transfer-Encoding: chunked\r\n" if request.chunked else b"") + connection + b"\r\n"
    return _long(request, status, connection)


def _long(request: Request, status: int, connection: bytes) -> bytes:
    server, date = request.location.server_token, None
    tail: list[bytes] = []
    for field in request.kept_headers or ():
        name = field[0].lower()
        if name == b"server":
            server = field[1]
        elif name == b"date":
            date = field[1]
        elif name:
            if name == b"connection":
                connection = b""
            tail.append(b"%b: %b\r\n" % field)
    head = _prefix(status, request.content_type or b"", server)
    if date is not None:
        head = head.replace(http_date(), date, 1)
    lines = [head]
    if request.content_length is not None:
        lines.append(b"Content-Length: %d\r\n" % request.content_length)
    if request.last_modified is not None:
        lines.append(b"Last-Modified: %b\r\n" % http_date(request.last_modified))
    target = request.location_out
    if target is not None:
        rewritten = request.location_out = absolute_location(request, target)
        line = b"Location: %b\r\n" % escape(rewritten)
        if rewritten != target:
            lines.append(line)
        else:
            tail.insert(0, line)
    if request.chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    lines.append(connection)
    if request.vary:
        lines.append(b"Vary: Accept-Encoding\r\n")
    lines += tail
    lines.append(b"\r\n")
    return b"".join(lines)


def absolute_location(request: Request, target: bytes) -> bytes:
    """The Location for a path: with scheme, host and port unless absolute_redirect is off.

    https://nginx.org/en/docs/http/ngx_http_core_module.html#absolute_redirect
    """
    location = request.location
    if not target.startswith(b"/") or not location.absolute_redirect:
        return target
    conn = request.exchange.conn
    tls = is_tls(conn)
    host = request.server.name if location.server_name_in_redirect else (request.var(b"host") or b"localhost")
    port = local_port(conn) if location.port_in_redirect else 0
    usual = 443 if tls else 80
    at = b":%d" % port if port and port != usual else b""
    return b"%b://%b%b%b" % (b"https" if tls else b"http", host, at, target)


def directory_target(request: Request) -> bytes:
    """The target of the redirect to the same path with a slash behind it."""
    path = escape_path(request.uri + b"/")
    return path + b"?" + request.args if request.args else path
