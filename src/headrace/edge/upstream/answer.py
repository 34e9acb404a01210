"""What of an upstream's head goes to the client, and what it tells the gateway (X-Accel-...). No I/O.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass_header, #proxy_ignore_headers
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import names
from headrace.edge.log import ERR
from headrace.edge.pace import pace
from headrace.edge.ranges import http_time, offer_ranges
from headrace.edge.upstream.rewrites import rewrite_cookie, rewrite_location, rewrite_refresh
from headrace.edge.uri import normalise
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.settings import Settings
    from headrace.edge.upstream.visit import Visit

KEPT: Final = 128
HOP: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"content-type"))
"""Fields that speak of the connection to the upstream, or that the answer has a place of its own for."""
THROUGH_REDIRECT: Final = frozenset(
    (b"set-cookie", b"content-disposition", b"cache-control", b"expires", b"accept-ranges")
)
"""Fields that an X-Accel-Redirect carries over to the answer it leads to; and Content-Type."""


@dataclass(slots=True)
class Orders:
    """What the upstream wants of the gateway. redirect: X-Accel-Redirect; rate: bytes a second, 0 for no limit.

    buffering: None as configured.
    """

    redirect: bytes | None = None
    rate: int = 0
    buffering: bool | None = None
    charset: bytes | None = None


NO_ORDERS: Final = Orders()


def orders_of(head: ResponseHead, settings: Settings) -> Orders:
    """Read the X-Accel fields, but for those that are ignored."""
    if b"\nx-accel-" not in head.fields.low:
        return NO_ORDERS
    orders = Orders()
    ignored = settings.ignored
    if b"x-accel-redirect" not in ignored:
        orders.redirect = head.header(b"x-accel-redirect")
    rate = head.header(b"x-accel-limit-rate")
    if rate is not None and b"x-accel-limit-rate" not in ignored and rate.isdigit():
        orders.rate = int(rate)
    word = (head.header(b"x-accel-buffering") or b"").lower()
    if b"x-accel-buffering" not in ignored and word in (b"yes", b"no"):
        orders.buffering = word == b"yes"
    if b"x-accel-charset" not in ignored:
        orders.charset = head.header(b"x-accel-charset")
    return orders


def with_charset(content_type: bytes, charset: bytes | None) -> bytes:
    """A content type with the charset the upstream names for it."""
    if not charset or charset.lower() == b"off" or not content_type or b"charset=" in content_type.lower():
        return content_type
    return content_type + b"; charset=" + charset


def take_head(request: Request, head: ResponseHead, settings: Settings, orders: Orders, length: int | None) -> None:
    """Make the upstream's head that of the answer. length: of the body in bytes, None when it is not known."""
    request.status = head.status
    reason = head.reason
    if names.REASONS.get(head.status) != reason:
        request.reason = reason
    content_type = head.fields.get(b"content-type") if b"\ncontent-type:" in head.fields.low else None
    if content_type is None:
        content_type = request.content_type
    charset = orders.charset
    if charset and request.location.charset_filter and charset.lower() != b"off":
        request.charset, charset = charset, None
    request.content_type = with_charset(content_type or b"", charset)
    request.content_length = length
    if settings.own_server:
        request.no_server = b"server" not in settings.hidden and b"\nserver:" not in head.fields.low
    known = settings.known.get(head)
    if known is not None:
        request.headers_out.fields.extend(known)
        return
    out = request.headers_out
    before = len(out)
    if _take_fields(request, head, settings) and not before:
        if len(settings.known) >= KEPT:
            settings.known.clear()
        settings.known[head] = list(out)


def _take_fields(request: Request, head: ResponseHead, settings: Settings) -> bool:
    """Take the fields over; True when any request would get the same."""
    hidden = settings.hidden
    out = request.headers_out
    if settings.own_server and b"date" not in hidden and b"\ndate:" not in head.fields.low:
        out.add(b"Date", b"")
    redirects = bool(settings.redirects)
    cookies = bool(settings.cookie_domains or settings.cookie_paths or settings.cookie_flags)
    plain = True
    for name, value in head.headers():
        low = name.lower()
        if low in hidden or low in HOP:
            continue
        if cookies and low == b"set-cookie":
            plain = False
            out.add(name, rewrite_cookie(request, settings, value))
        elif redirects and low == b"location":
            plain = False
            rewritten = rewrite_location(request, settings, value)
            if rewritten is None:
                out.add(name, value)
            else:
                request.location_out = rewritten
        elif redirects and low == b"refresh":
            plain = False
            out.add(name, rewrite_refresh(request, settings, value))
        else:
            out.add(name, value)
    return plain


def answered_here(visit: Visit, orders: Orders) -> int | None:
    """What stands for the upstream's answer, where the gateway answers in its place; else None."""
    request, settings, head = visit.request, visit.settings, visit.head
    if orders.redirect is not None:
        visit.done()
        if orders.rate:
            pace(request, orders.rate)
        return follow(request, head, settings, orders.redirect)
    if settings.intercept_errors and head.status >= 300 and head.status in request.location.error_pages:
        if head.status == 401:
            for value in head.header_all(b"www-authenticate"):
                request.headers_out.add(b"WWW-Authenticate", value)
        if visit.cacher is not None:
            visit.cacher.keep_error(head)
        visit.done()
        return head.status
    if settings.intercept_404 and head.status == 404:
        visit.done()
        request.content_type = None
        return 404
    return None


def take_answer(visit: Visit, orders: Orders) -> bool:
    """Make what the upstream answers that of the request; False: the answer is 416."""
    request, settings, head, reader = visit.request, visit.settings, visit.head, visit.reader
    take_head(request, head, settings, orders, reader.length)
    if settings.pass_trailers:
        _pass_trailers(request, reader)
    if not settings.force_ranges and (visit.cacher is None or not visit.cacher.store):
        return True
    request.whole_body = True
    return upstream_ranges(request, head, reader.length, force=settings.force_ranges)


def upstream_ranges(request: Request, head: ResponseHead, size: int | None, *, force: bool) -> bool:
    """Let parts of an upstream's answer be had; False: the answer is 416. force: also if it does not offer them."""
    if request.parent is not None or request.status != 200 or size is None:
        return True
    offered = force or (head.header(b"accept-ranges") or b"").lower() == b"bytes"
    if not offered:
        return True
    request.headers_out.remove(b"Accept-Ranges")
    modified = request.last_modified
    if modified is None:
        modified = http_time(head.header(b"last-modified") or b"")
    return offer_ranges(request, size, -1 if modified is None else int(modified), head.header(b"etag"))


def _pass_trailers(request: Request, reader: Reader) -> None:
    """Let the trailers of the upstream follow the body, where the client understands them."""
    if request.parent is not None or (reader.done and not reader.trailers):
        return
    if request.exchange.head.version == 20 or b"trailers" in (request.header_in(b"te") or b"").lower():
        request.trailers = lambda: reader.trailers


def follow(request: Request, head: ResponseHead, settings: Settings, target: bytes) -> int:
    """Go where X-Accel-Redirect says; returns what a handler returns."""
    take_through_redirect(request, head, settings)
    if request.method != b"HEAD":
        request.method = b"GET"
    if target.startswith(b"@"):
        return request.internal_redirect(target)
    path, _, args = target.partition(b"?")
    try:
        return request.internal_redirect(normalise(path if path.startswith(b"/") else b"/" + path), args)
    except HttpError:
        request.log_error(ERR, b'upstream sent unsafe "X-Accel-Redirect": "%b"' % target)
        return 404


def take_through_redirect(request: Request, head: ResponseHead, settings: Settings) -> None:
    """Keep what an X-Accel-Redirect carries over."""
    content_type = head.header(b"content-type")
    if content_type is not None:
        request.content_type = content_type
    for name, value in head.headers():
        low = name.lower()
        if low in THROUGH_REDIRECT and low not in settings.hidden:
            text = rewrite_cookie(request, settings, value) if low == b"set-cookie" else value
            request.headers_out.add(name, text)
