"""How a request ends that no content handler answered: special responses, error_page, internal redirects.

complete() gets the code a phase ended with and either ends the request or returns the steps to run next.
https://nginx.org/en/docs/http/ngx_http_core_module.html#error_page
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.pages import AS_400, CLOSING, page, refresh_page
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.edge.phases import Steps
    from headrace.edge.request import Request

MAX_REDIRECTS: Final = 10
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """One status of an error_page. overwrite: -1 keep the status, 0 take that of the page, else this one."""

    target: Value
    overwrite: int


def complete(request: Request, code: int | None) -> Steps | None:
    """Act on a code that is not OK or DONE; see phases for their meaning."""
    if code == phases.REDIRECT:
        return redirect(request)
    if code == phases.REFIND:
        return find_location(request)
    if code == phases.RELOCATE:
        return steps_of(request)
    if code is None:
        code = _nothing_found(request)
    if code in (phases.ERROR, 408, 444, 499):
        _terminate(request, code)
        return None
    if request.finished:
        return None
    if code >= 300 or code in (201, 204):
        return special(request, code)
    if not request.header_sent:
        request.status = code
    request.finish()
    return None


def _nothing_found(request: Request) -> int:
    if request.uri.endswith(b"/"):
        request.log_error(log.ERR, b'directory index of "%b" is forbidden' % request.location.path_of(request))
        return 403
    request.log_error(log.ERR, b"no handler found")
    return 404


def _terminate(request: Request, code: int) -> None:
    """Close without an answer."""
    if not request.header_sent and not request.finished:
        request.status = code if code > 0 else request.err_status or 500
    request.abandon()


def special(request: Request, code: int) -> Steps | None:
    """Answer with the special response of a status, through error_page where one is set."""
    exchange = request.exchange
    if request.header_sent:
        request.log_error(log.ERR, b"the answer has begun: it cannot become a %d, and is cut off" % code)
        request.abandon()
        return None
    if code in CLOSING:
        exchange.keep_alive = False
    request.err_status = code
    location = request.location
    if location.error_pages and not request.error_page and request.redirects <= MAX_REDIRECTS:
        found = location.error_pages.get(code)
        if found is not None:
            if not location.recursive_error_pages:
                request.error_page = True
            steps = _error_page(request, found)
            if steps is not None or request.finished:
                return steps
            code = request.err_status
    send_special(request, code)
    return None


def _error_page(request: Request, found: ErrorPage) -> Steps | None:
    target = evaluate(found.target, request)
    if found.overwrite >= 0:
        request.err_status = found.overwrite
    if target.startswith((b"/", b"@")):
        args: bytes | None = None
        if target.startswith(b"/"):
            target, mark, args = target.partition(b"?")
            args = args if mark else b""
            if request.method != b"HEAD":
                request.method = b"GET"
        request.target = (target, args)
        return redirect(request)
    request.err_status = found.overwrite if found.overwrite in REDIRECTS else 302
    request.location_out = target
    return None


def send_special(request: Request, code: int) -> None:
    """Send the page of a status, or an empty body when it has none."""
    body = page(code, request.location.server_token)
    if request.location.msie_refresh and code in (301, 302) and b"MSIE " in (request.header_in(b"user-agent") or b""):
        request.err_status = code = 200
        body, request.location_out = refresh_page(request.location_out or b""), None
    if code in AS_400:
        request.err_status = 400
    elif code == 201 or (body is None and code < 300):
        request.err_status = code
    if code < 300 or code not in REDIRECTS:
        request.location_out = None if code >= 400 or code < 300 else request.location_out
    request.last_modified = None
    kept = request.kept_headers
    if kept is not None and body is not None:
        for name in (b"ETag", b"Accept-Ranges", b"Content-Encoding"):
            kept.remove(name)
    request.respond(request.err_status, body or b"", b"text/html" if body else b"")


def redirect(request: Request) -> Steps | None:
    """Begin again with `request.target`."""
    assert request.target is not None
    (uri, args), request.target = request.target, None
    request.redirects += 1
    if request.redirects > MAX_REDIRECTS:
        request.log_error(log.ERR, b'rewrite or internal redirection cycle while internally redirecting to "%b"' % uri)
        return special(request, 500)
    request.internal = True
    request.uri_changed = request.uri_replaced = request.uri_behind_alias = False
    if uri.startswith(b"@"):
        location = request.server.named.get(uri)
        if location is None:
            request.log_error(log.ERR, b'could not find named location "%b"' % uri)
            return special(request, 500)
        request.location = location
        return steps_of(request)
    request.uri = uri
    if args is not None:
        request.args = args
    request.location = request.server.location
    return request.server.steps or find_location(request)


def find_location(request: Request) -> Steps | None:
    """The find_config phase: choose the location and check what holds for it before its phases run."""
    request.uri_changed = False
    location = request.server.find(request)
    if location.limited is not None and request.method not in location.open_methods:
        location = location.limited
    request.location = location
    if location.internal and not request.internal:
        return special(request, 404)
    limit = location.max_body
    exchange = request.exchange
    if exchange.settings is not location.http:
        exchange.adopt(location.http)
    body = exchange.body
    if body is not None and limit:
        length = max(exchange.head.content_length or 0, body.received)
        if length > limit:
            request.log_error(log.ERR, b"client intended to send too large body: %d bytes" % length)
            return special(request, 413)
    return steps_of(request)


def steps_of(request: Request) -> Steps:
    """What runs in the location of a request; the access phase is not for subrequests."""
    return request.location.steps if request.parent is None else request.location.inner_steps
