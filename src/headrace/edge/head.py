"""The head of an answer: filters run, then the lines are put together in nginx's order.

Many answers of one second have the same head, so a head without fields of its own is kept for that second.
Order: Server, Date, Content-Type, Content-Length, Last-Modified, Location, Transfer-Encoding, Connection,
Keep-Alive, Vary, then the others as they were added.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headrace.edge import names
from headrace.edge.connection import is_tls, local_port, local_text
from headrace.edge.headers import escape
from headrace.edge.log import ERR
from headrace.edge.pages import page
from headrace.edge.ranges import apply_ranges, condition_status
from headrace.edge.times import http_date
from headrace.edge.uri import escape_path, host_only

if TYPE_CHECKING:
    from headrace.edge.filters import BodyFilter
    from headrace.edge.headers import HeadersOut
    from headrace.edge.location import Location
    from headrace.edge.request import Request

_heads: Final[dict[tuple[int, bytes, Location, int | None, bool, bool], bytes]] = {}
_heads_until: float = 0.0

_OK, _PRECONDITION_FAILED = 200, 412
DATED: Final = frozenset({200, 206, 304})
_BODYLESS: Final = frozenset({204, 304})
KEEP: Final = b"Connection: keep-alive\r\n"
CLOSE: Final = b"Connection: close\r\n"
MAX_HEADS: Final = 1024
_REPLACING: Final = frozenset({b"", b"server", b"date", b"connection"})
"""Fields that replace a line of every head."""
_LENGTHS: Final = frozenset(map(len, _REPLACING))


def _begin(
    status: int, content_type: bytes, server: bytes | None, date: bytes | None = None, reason: bytes = b""
) -> bytes:
    name = b"" if server is None else b"Server: %b\r\n" % server
    words = b"%d %b" % (status, reason) if reason else names.status_text(status)
    dated = b"" if date == b"" else b"Date: %b\r\n" % (date or http_date())
    text = b"HTTP/1.1 %b\r\n%b%b" % (words, name, dated)
    return text + b"Content-Type: %b\r\n" % escape(content_type) if content_type else text


def assemble(request: Request) -> bytes:
    """Run the header filters and return the head; decides framing, `header_only` and keep-alive as it goes."""
    location = request.location
    status = request.err_status or request.status or 200
    if status == _OK and request.last_modified is not None and request.may_have(b"if-"):
        status = _conditional(request, request.last_modified)
    request.status = status
    if request.content_type is None:
        request.content_type = location.known_types.get(request.uri) or location.content_type_of(request.uri)
    request.body_filters = location.body_filters if status != _PRECONDITION_FAILED else _refused(request)
    if location.header_filters:
        for header_filter in location.header_filters:
            header_filter(request)
        if request.postponed is not None:
            request.postponed.take_rest()
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
        if location.chunked and exchange.head.version == 11:
            request.chunked = True
        else:
            exchange.keep_alive = False
    keep = exchange.keep_alive
    if (
        request.location_out is None
        and request.last_modified is None
        and not request.vary
        and not request.no_server
        and not request.reason
    ):
        tail = b"" if request.kept_headers is None else _plain_fields(request.kept_headers)
        if tail is not None:
            head = _kept(request, status, length, keep=keep)
            return head if not tail else head[:-2] + tail
    return _long(request, status, keep=keep)


def _kept(request: Request, status: int, length: int | None, *, keep: bool) -> bytes:
    """The head without fields of its own, as others of this second have it."""
    global _heads_until  # noqa: PLW0603 - one cache a process, emptied every second
    now = time.time()
    if not _heads_until - 1.0 <= now < _heads_until or len(_heads) > MAX_HEADS:
        _heads_until = float(int(now) + 1)
        _heads.clear()
    key = (status, request.content_type or b"", request.location, length, keep, request.chunked)
    head = _heads.get(key)
    if head is None:
        head = _heads[key] = _long(request, status, keep=keep, bare=True)
    return head


def _plain_fields(fields: HeadersOut) -> bytes | None:
    """The lines of fields that only follow the others, with the empty line; None when one replaces another line."""
    lines = b""
    for name, value in fields:
        if len(name) in _LENGTHS and name.lower() in _REPLACING:
            return None
        lines += b"%b: %b\r\n" % (name, value)
    return lines + b"\r\n"


def again(request: Request) -> bytes:
    """The head of an answer whose length became known after it was assembled."""
    return _long(request, request.status, keep=request.exchange.keep_alive)


def _conditional(request: Request, modified: float) -> int:
    """The status of an answer whose handler said when it was modified, as nginx's not_modified filter decides it."""
    kept = request.kept_headers
    status = condition_status(request, int(modified), kept.get(b"ETag") if kept is not None else None)
    if status != _OK:
        request.allow_ranges = None
        if status == _PRECONDITION_FAILED:
            request.content_type = b"text/html"
            request.content_length = len(page(status, request.location.server_token) or b"")
    return status


def _refused(request: Request) -> tuple[BodyFilter, ...]:
    """What a handler sends for a request whose condition failed is replaced by the page of 412."""
    if request.err_status == _PRECONDITION_FAILED:
        return request.location.body_filters  # it is the page already

    def replace(request: Request, _data: bytes, last: bool) -> bytes:
        return (page(_PRECONDITION_FAILED, request.location.server_token) or b"") if last else b""

    return (replace,)


def _long(request: Request, status: int, *, keep: bool, bare: bool = False) -> bytes:
    """bare: without the fields that were added."""
    connection = KEEP + request.location.keepalive_header if keep else CLOSE
    server: bytes | None = None if request.no_server else request.location.server_token
    date = None
    tail: list[bytes] = []
    for field in () if bare else request.kept_headers or ():
        name = field[0].lower()
        if name == b"server":
            server = field[1]
        elif name == b"date":
            date = field[1]
        elif name:
            if name == b"connection":
                connection = b""
            tail.append(b"%b: %b\r\n" % field)
    lines = [_begin(status, request.content_type or b"", server, date, request.reason)]
    if request.content_length is not None:
        lines.append(b"Content-Length: %d\r\n" % request.content_length)
    if request.last_modified is not None and status in DATED:
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
    if location.server_name_in_redirect:
        host = request.server.name
    elif request.headers_in_changed:
        host = request.var(b"host") or local_text(conn)
    else:
        host = host_only(request.exchange.head.host) or local_text(conn)
    port = local_port(conn) if location.port_in_redirect else 0
    usual = 443 if tls else 80
    at = b":%d" % port if port and port != usual else b""
    return b"%b://%b%b%b" % (b"https" if tls else b"http", host, at, target)


def directory_target(request: Request) -> bytes:
    """The target of the redirect to the same path with a slash behind it."""
    path = escape_path(request.uri + b"/")
    return path + b"?" + request.args if request.args else path


def fitted(request: Request, body: bytes) -> bytes:
    """A whole body as the Content-Length of its head promises it, whatever a handler declared.

    What is too much would be read as the next answer, so it is cut; what is too little ends the connection, so that
    the next answer is not taken for the rest.
    """
    declared, found = request.content_length, len(body)
    if declared == found or declared is None or request.header_only:
        return body
    request.log_error(ERR, b"a body of %d bytes for a Content-Length of %d" % (found, declared))
    if found < declared:
        request.exchange.keep_alive = False
    return body[:declared]


def all_chunks(body: bytes) -> bytes:
    """A whole body in chunked framing (RFC 9112 7.1)."""
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
