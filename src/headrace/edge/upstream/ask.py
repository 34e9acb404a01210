"""The request as an HTTP upstream gets it. No I/O.

Order and rules are nginx's: the fields of proxy_set_header, the default ones that it does not name, then the client's
but for those that either names; a field with an empty value is not sent. No value can break out of its line.
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_set_header
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from headrace.edge.headers import escape
from headrace.edge.uri import escape_path, split_target
from headrace.edge.values import Value, evaluate
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace.edge.request import Request

DEFAULTS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"Host", "$proxy_host"),
    (b"Connection", "close"),
    (b"Content-Length", "$proxy_internal_body_length"),
    (b"Transfer-Encoding", "$proxy_internal_chunked"),
    (b"TE", ""),
    (b"Keep-Alive", ""),
    (b"Expect", ""),
    (b"Upgrade", ""),
)
"""What is sent unless the configuration names it; empty: not handed on."""
CACHED: Final[tuple[tuple[bytes, str], ...]] = (
    (b"If-Modified-Since", "$upstream_cache_last_modified"),
    (b"If-Unmodified-Since", ""),
    (b"If-None-Match", "$upstream_cache_etag"),
    (b"If-Match", ""),
    (b"Range", ""),
    (b"If-Range", ""),
)
"""What is sent beside DEFAULTS when the answer may be kept: conditions are the cache's, not the client's."""
_BREAKS: Final = re.compile(rb"[\x00-\x20\x7f]")
_KEPT: Final = 256


class Ask:
    """What is sent: head, then the body: bytes, a file, or (chunks) as it comes from the client.

    length: of the body in bytes, None without one. method: as the upstream sees it. stream: the body is handed on while
    it arrives; chunked: in chunks of ours.
    """

    body: bytes = b""
    file: str | None = None
    tail: bytes = b""
    """What follows the body."""
    wrap: Callable[[int], tuple[bytes, bytes]] | None = None
    """What stands before and behind a piece of the body of so many bytes."""
    length: int | None = None
    stream: bool = False
    chunked: bool = False

    def __init__(self, method: bytes, uri: bytes, head: bytes = b"", *, tail: bytes = b"") -> None:
        self.method = method
        self.uri = uri
        self.head = head
        if tail:
            self.tail = tail


class FieldPlan:
    """The header fields to send: those of the configuration, compiled, and the names they hide of the client's."""

    def __init__(
        self, fields: Iterable[tuple[bytes, Value]], *, pass_headers: bool, framing: Collection[Value] = ()
    ) -> None:
        """framing: values that are empty when there is no body."""
        self.fields = tuple(fields)
        self.named = frozenset(name.lower() for name, _ in self.fields)
        self.pass_headers = pass_headers
        self._known: dict[bytes, bytes] = {}
        self._parts = tuple(
            b"%b: %b\r\n" % (name, escape(value)) if isinstance(value, bytes) else (name, value)
            for name, value in self.fields
            if value != b""
        )

        bare = [part for part in self._parts if isinstance(part, bytes) or part[1] not in framing]
        self._bare = b"".join(part for part in bare if isinstance(part, bytes)) if _constant(bare) else None

    def bodyless_lines(self, request: Request) -> bytes:
        """As `lines`, of a request without a body."""
        if self._bare is None:
            return self.lines(request)
        return self._bare + self._passed(request) if self.pass_headers else self._bare

    def lines(self, request: Request) -> bytes:
        """All field lines, each with its CRLF."""
        out = []
        for part in self._parts:
            if isinstance(part, bytes):
                out.append(part)
                continue
            name, value = part
            text = value(request)
            if text:
                out.append(b"%b: %b\r\n" % (name, escape(text)))
        if self.pass_headers:
            out.append(self._passed(request))
        return b"".join(out)

    def _passed(self, request: Request) -> bytes:
        if request.headers_in_changed:
            return self._join(request.headers_in())
        text = request.exchange.head.fields.text
        known = self._known.get(text)
        if known is None:
            known = self._join(request.headers_in())
            if len(text) < 2048:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[text] = known
        return known

    def _join(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        named = self.named
        return b"".join(
            b"%b: %b\r\n" % (escape(name), escape(value)) for name, value in fields if name.lower() not in named
        )


def _constant(parts: Iterable[object]) -> bool:
    return all(isinstance(part, bytes) for part in parts)


def chunked(size: int) -> tuple[bytes, bytes]:
    """The framing of a piece as one chunk."""
    return b"%x\r\n" % size, b"\r\n"


def body_length(request: Request) -> int | None:
    """Bytes of the request body once it is read; None when the request has none."""
    if request.body_file is not None:
        return file_size(request.body_file)
    if request.body:
        return len(request.body)
    if request.header_in(b"content-length") is None and not (
        request.exchange.body is not None and request.exchange.head.chunked and request.parent is None
    ):
        return None
    return 0


def file_size(path: str) -> int:
    """Bytes of a body that was spooled to a file."""
    return os.stat(path).st_size


def unparsed(request: Request) -> bytes | None:
    """The target as the client sent it, when the URI of the request is still that one."""
    if request.parent is not None:
        return None
    target = request.exchange.head.target
    path, _, args = target.partition(b"?")
    if path == request.uri and args == request.args and b"%" not in path:
        return target
    try:
        same = split_target(target, merge_slashes=request.location.merge_slashes) == (request.uri, request.args)
    except HttpError:
        return None
    return target if same and target.startswith(b"/") else None


def request_uri(request: Request, prefix: bytes, location: bytes) -> bytes:
    """The URI for the upstream. prefix: of proxy_pass, b"" without; location: the part of the URI that it replaces."""
    if not prefix:
        target = unparsed(request)
        if target is not None:
            return safe_target(target)
    valid = not request.uri_replaced
    skip = min(len(location), len(request.uri)) if valid and prefix else 0
    path = request.uri[skip:]
    if request.internal or request.parent is not None or b"%" in request.exchange.head.target.partition(b"?")[0]:
        path = escape_path(path)
    uri = (prefix if valid else b"") + path
    if request.args:
        uri += b"?" + request.args
    return safe_target(uri)


def safe_target(target: bytes) -> bytes:
    """A request target that cannot end its line or be read as two words; whole otherwise."""
    return _BREAKS.sub(lambda match: b"%%%02X" % match.group()[0], target) if _BREAKS.search(target) else target


def safe_method(value: Value, request: Request) -> bytes:
    """The method that a configuration makes: one word."""
    return safe_target(evaluate(value, request))
