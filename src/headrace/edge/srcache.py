"""srcache: answers kept where another location keeps them, through two subrequests: one looks, one stores.

A kept answer is an HTTP answer as text: status line, header fields, an empty line, the body.
https://github.com/openresty/srcache-nginx-module
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import ProtocolError, parse_response_head
from headrace.edge import log, names, phases
from headrace.edge.ranges import http_time
from headrace.edge.subrequest import Subrequest, run_to_end
from headrace.edge.times import http_date
from headrace.edge.uri import normalise
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request
    from headrace.edge.variables import Getter

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
STATUSES: Final = frozenset((200, 301, 302, 307, 308))
HIDDEN: Final = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailers",
        b"transfer-encoding", b"upgrade", b"set-cookie",
    )
)  # fmt: skip
"""Fields that are not kept unless srcache_store_pass_header names them."""
_RANGES: Final = b"X-SRCache-Allow-Ranges"
_FETCH: Final = b"srcache_fetch_status"
_STORE: Final = b"srcache_store_status"
_EXPIRE: Final = b"srcache_expire"
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_MAX_AGE: Final = re.compile(rb"max-age=([^,; ]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Way:
    """A subrequest as it is configured."""

    method: bytes
    uri: Value
    args: Value | None

    def target(self, request: Request) -> tuple[bytes, bytes]:
        """The URI and the query string for this request."""
        path, _, args = evaluate(self.uri, request).partition(b"?")
        return normalise(path), args if self.args is None else evaluate(self.args, request)


@dataclass(slots=True)
class Caching:
    """What holds for one location; named after the directives. Sizes in bytes, 0 for no limit; times in seconds."""

    fetch: Way | None = None
    store: Way | None = None
    fetch_skip: Value | None = None
    store_skip: Value | None = None
    max_size: int = 0
    statuses: frozenset[int] = STATUSES
    methods: frozenset[bytes] = frozenset((b"GET", b"HEAD"))
    hidden: frozenset[bytes] = HIDDEN
    request_control: bool = False
    response_control: bool = True
    store_private: bool = False
    store_no_store: bool = False
    store_no_cache: bool = False
    store_ranges: bool = False
    ignore_encoding: bool = False
    default_expire: float = 60.0
    max_expire: float = 0.0

    async def look(self, request: Request) -> int | None:
        """The handler behind the access phase; what does not come here (`return`) is not stored either."""
        fetch = self.fetch
        if request.parent is not None or request.method not in self.methods:
            return None
        request.set_slot(_FETCH, b"BYPASS")
        if fetch is None or not self._may_look(request):
            return None
        waiting = request.read_body()
        if waiting is not None:
            await waiting
        uri, args = fetch.target(request)
        made = await run_to_end(request, uri, args, method=fetch.method)
        request.set_slot(_FETCH, b"MISS")
        if made.status != 200:
            return None
        if made.truncated:
            request.log_error(log.ERR, b"srcache_fetch: cache sent truncated response body")
            return None
        kept = parse(made.answer)
        if kept is None:
            request.log_error(log.ERR, b"srcache_fetch: cache sent invalid status line or header")
            return None
        request.set_slot(_FETCH, b"HIT")
        _give(request, *kept)
        return phases.DONE

    def _may_look(self, request: Request) -> bool:
        if self.request_control:
            control = b",".join(value for name, value in request.headers_in() if name.lower() == b"cache-control")
            if b"no-cache" in control.lower() or b"no-cache" in (request.header_in(b"pragma") or b"").lower():
                return False
        return self.fetch_skip is None or evaluate(self.fetch_skip, request) in (b"", b"0")

    def header(self, request: Request) -> None:
        """The header filter: an answer that is to be kept gets a body filter."""
        if self.store is None or request.parent is not None or request.get_slot(_FETCH) in (None, b"HIT"):
            return
        if not self._may_store(request):
            return
        request.set_slot(_STORE, b"STORE")
        request.body_filters = (*request.body_filters, Storing(self, self.store, request).body)

    def _may_store(self, request: Request) -> bool:
        if request.method == b"HEAD":
            return False
        if self.request_control and b"no-store" in (request.header_in(b"cache-control") or b"").lower():
            return False
        out = request.headers_out
        encoding = out.get(b"Content-Encoding")
        if encoding and not self.ignore_encoding:
            text = b'srcache_store skipped due to response header "Content-Encoding: %b"' % encoding
            request.log_error(log.WARN, text + b" (maybe you forgot to disable compression on the backend?)")
            return False
        if not self._lasts(request) or self.skips_store(request) or request.status not in self.statuses:
            return False
        return not self.max_size or (request.content_length or 0) + 15 <= self.max_size

    def skips_store(self, request: Request) -> bool:
        """srcache_store_skip says so."""
        return self.store_skip is not None and evaluate(self.store_skip, request) not in (b"", b"0")

    def _lasts(self, request: Request) -> bool:
        """The answer may be kept as its own header says; notes for how long."""
        seconds: float | None = None
        if self.response_control:
            for value in request.headers_out.get_all(b"Cache-Control"):
                low = value.lower()
                if (
                    (b"private" in low and not self.store_private)
                    or (b"no-store" in low and not self.store_no_store)
                    or (b"no-cache" in low and not self.store_no_cache)
                ):
                    return False
                found = _MAX_AGE.search(value)
                if found is not None and seconds is None:
                    if not found[1].isdigit() or not int(found[1]):
                        return False
                    seconds = int(found[1])
            expires = request.headers_out.get(b"Expires")
            if expires is not None and seconds is None:
                until = http_time(expires)
                seconds = 0 if until is None else until - int(time.time())
                if seconds <= 0:
                    return False
        seconds = self.default_expire if seconds is None else seconds
        if self.max_expire:
            seconds = min(seconds, self.max_expire)
        request.set_slot(_EXPIRE, b"%d" % seconds)
        return True


class Storing:
    """One answer on its way into the cache; what the client gets is not held back."""

    def __init__(self, caching: Caching, way: Way, request: Request) -> None:
        self._caching = caching
        self._way = way
        self._parts: list[bytes] = [head_of(request, caching.hidden)]
        self._size = len(self._parts[0])
        self._head_size = self._size
        self._dropped = request.status == 206 and not caching.store_ranges

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        if self._dropped:
            return data
        if data:
            self._parts.append(data)
            self._size += len(data)
        if self._caching.max_size and self._size > self._caching.max_size:
            self._drop(request)
        elif last:
            self._end(request)
        return data

    def _drop(self, request: Request) -> None:
        self._dropped = True
        self._parts.clear()
        request.set_slot(_STORE, b"BYPASS")

    def _end(self, request: Request) -> None:
        size, declared = self._size - self._head_size, request.content_length
        if declared is not None and size != declared:
            text = b"srcache_store: skipped because response body truncated: %d > %d" % (declared, size)
            request.log_error(log.ERR, text)
            self._drop(request)
            return
        if self._caching.skips_store(request):
            self._drop(request)
            return
        uri, args = self._way.target(request)
        made = Subrequest(request, uri, args, method=self._way.method)
        made.header_only = True
        made.give_body(b"".join(self._parts))
        made.start()


def head_of(request: Request, hidden: frozenset[bytes]) -> bytes:
    """The head of an answer as it is kept."""
    lines = [b"HTTP/1.1 %b\r\n" % names.status_text(request.status)]
    if request.content_type and b"content-type" not in hidden:
        lines.append(b"Content-Type: %b\r\n" % request.content_type)
    if request.last_modified is not None and b"last-modified" not in hidden:
        lines.append(b"Last-Modified: %b\r\n" % http_date(request.last_modified))
    if request.allow_ranges is not None:
        lines.append(_RANGES + b": 1\r\n")
    if request.location_out is not None and b"location" not in hidden:
        lines.append(b"Location: %b\r\n" % request.location_out)
    lines += [b"%b: %b\r\n" % field for field in request.headers_out if field[0].lower() not in hidden]
    lines.append(b"\r\n")
    return b"".join(lines)


def parse(text: bytes) -> tuple[ResponseHead, bytes] | None:
    """A kept answer: its head and its body; None when it is none."""
    end = _HEAD_END.search(text)
    if end is None:
        return None
    try:
        return parse_response_head(text[: end.end()], b"GET"), text[end.end() :]
    except ProtocolError:
        return None


def _give(request: Request, head: ResponseHead, body: bytes) -> None:
    """Answer with what was kept."""
    request.status = head.status
    for name, value in head.headers():
        low = name.lower()
        if low == b"content-type":
            request.content_type = value
        elif low == b"last-modified":
            request.last_modified = http_time(value)
        elif low not in (b"content-length", b"connection", b"keep-alive", _RANGES.lower()):
            request.headers_out.add(name, value)
    request.content_length = len(body)
    request.end_with(body)


def _variable(slot: bytes, default: bytes | None) -> tuple[str, Getter]:
    def get(request: Request) -> bytes | None:
        value = request.get_slot(slot)
        return default if value is None else value

    return slot.decode(), get


VARIABLES: Final = (_variable(_FETCH, b"BYPASS"), _variable(_STORE, b"BYPASS"), _variable(_EXPIRE, None))
"""The variables of the module by name."""
