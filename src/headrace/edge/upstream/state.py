"""What is remembered of a request's visits to upstreams, for variables and for the error log.

https://nginx.org/en/docs/http/ngx_http_upstream_module.html#variables
Times are in seconds, with milliseconds in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import Ask
    from headrace.edge.upstream.cache.cacher import Cacher

    Getter = Callable[[Request], bytes | None]


FORWARDED: Final = b"x-forwarded-for"


class Try:
    """One peer asked. times: None until the event; status: 0 until an answer or a failure has one."""

    addr = b""
    status = 0
    connect_time: float | None = None
    header_time: float | None = None
    response_time: float | None = None
    length = 0
    received = 0
    sent = 0


class State:
    """All visits of a request. tries: those of one visit after the other; None stands between two visits.

    ask: what is being asked. head: of the last answer. trailers: behind its body. scheme, uri: of the last request, for
    the error log. host, port: for $proxy_host and $proxy_port. stage: what is being done while a script runs.
    """

    ask: Ask | None = None
    head: ResponseHead | None = None
    trailers: Sequence[tuple[bytes, bytes]] = ()
    scheme = b"http://"
    uri = b""
    stage = b""
    host: bytes | None = None
    port: bytes | None = None
    cache_status: bytes | None = None
    cacher: Cacher | None = None

    def __init__(self) -> None:
        self.tries: list[Try | None] = []

    def begin(self) -> None:
        """Another visit of the same request begins."""
        if self.tries:
            self.tries.append(None)
            self.head = None
            self.cacher = None
            self.trailers = ()

    def next_try(self) -> Try:
        """Another peer is asked."""
        made = Try()
        self.tries.append(made)
        return made

    def described(self) -> bytes:
        """What the error log writes behind `upstream:`."""
        last = self.tries[-1] if self.tries else None
        return b"" if last is None or not last.addr else b"%b%b%b" % (self.scheme, last.addr, self.uri)

    def suffix(self) -> bytes:
        """What stands behind the request in lines of the error log."""
        where = self.described()
        return b', upstream: "%b"' % where if where else b""


def state_of(request: Request) -> State:
    """The state of a request that is about to visit an upstream."""
    found: State | None = request.upstream
    if found is None:
        found = request.upstream = State()
    return found


def _each(show: Callable[[Try], bytes]) -> Getter:
    def get(request: Request) -> bytes | None:
        state: State | None = request.upstream
        if state is None or not state.tries:
            return None
        out: list[bytes] = []
        mark = b""
        for one in state.tries:
            if one is None:
                mark = b" : "
                continue
            out += [mark, show(one)]
            mark = b", "
        return b"".join(out)

    return get


def _time(seconds: float | None) -> bytes:
    return b"-" if seconds is None else b"%.3f" % max(seconds, 0.0)


def _head_field(name: str) -> Getter:
    key = name.replace("_", "-").encode("latin-1")

    def get(request: Request) -> bytes | None:
        state: State | None = request.upstream
        return None if state is None or state.head is None else state.head.header(key)

    return get


def _cookie(name: str) -> Getter:
    pattern = re.compile(re.escape(name.encode("latin-1")) + rb" *= *([^;]*)", re.IGNORECASE)

    def get(request: Request) -> bytes | None:
        state: State | None = request.upstream
        if state is None or state.head is None:
            return None
        for field in state.head.header_all(b"set-cookie"):
            found = pattern.match(field)
            if found is not None:
                return found[1]
        return None

    return get


def _trailer(name: str) -> Getter:
    key = name.replace("_", "-").encode("latin-1")

    def get(request: Request) -> bytes | None:
        state: State | None = request.upstream
        values = [value for found, value in (state.trailers if state else ()) if found.lower() == key]
        return b", ".join(values) if values else None

    return get


def _of_state(name: str) -> Getter:
    def get(request: Request) -> bytes | None:
        found: bytes | None = getattr(request.upstream, name, None)
        return found

    return get


def _forwarded(request: Request) -> bytes:
    before = [value for name, value in request.headers_in() if name.lower() == FORWARDED]
    return b", ".join((*before, request.var(b"remote_addr") or b""))


def _condition(name: bytes) -> Getter:
    def get(request: Request) -> bytes | None:
        cacher = request.upstream.cacher if request.upstream is not None else None
        return cacher.condition(name) or None if cacher is not None else None

    return get


VARIABLES: Final[dict[str, Getter]] = {
    "upstream_addr": _each(lambda one: one.addr or b"-"),
    "upstream_status": _each(lambda one: b"%d" % one.status if one.status else b"-"),
    "upstream_connect_time": _each(lambda one: _time(one.connect_time)),
    "upstream_header_time": _each(lambda one: _time(one.header_time)),
    "upstream_response_time": _each(lambda one: _time(one.response_time)),
    "upstream_response_length": _each(lambda one: b"%d" % one.length),
    "upstream_bytes_received": _each(lambda one: b"%d" % one.received),
    "upstream_bytes_sent": _each(lambda one: b"%d" % one.sent),
    "proxy_host": _of_state("host"),
    "proxy_port": _of_state("port"),
    "proxy_add_x_forwarded_for": _forwarded,
    "upstream_cache_last_modified": _condition(b"last-modified"),
    "upstream_cache_etag": _condition(b"etag"),
    "upstream_cache_status": _of_state("cache_status"),
}
PREFIXES: Final[tuple[tuple[str, Callable[[str], Getter]], ...]] = (
    ("upstream_http_", _head_field),
    ("upstream_cookie_", _cookie),
    ("upstream_trailer_", _trailer),
)
