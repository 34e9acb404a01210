"""gzip: compress answers on the fly.

https://nginx.org/en/docs/http/ngx_http_gzip_module.html
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import (
    HSL,
    HSLI,
    MANY,
    BaseFamily,
    flag,
    flag_of,
    number_of,
    refused,
    size_of,
    spec,
    table,
)
from headrace.edge.ranges import http_time
from headrace.edge.regex import compile_regex
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

PROXIED: Final = ("off", "expired", "no-cache", "no-store", "private", "no_last_modified", "no_etag", "auth", "any")
_QUALITY: Final = re.compile(rb"[ \t]*;[ \t]*q=([0-9.]+)")


@dataclass(frozen=True)
class Gzip:
    """Settings of one location. level: zlib's 1 to 9. min_length: bytes. version: 10 or 11."""

    types: frozenset[bytes]
    any_type: bool
    level: int
    min_length: int
    version: int
    vary: bool
    proxied: frozenset[str]
    disable: tuple[re.Pattern[bytes], ...]

    def header(self, request: Request) -> None:
        """The header filter: decide, and change the header when the body will be compressed."""
        out = request.headers_out
        kind = (request.content_type or b"").partition(b";")[0].strip().lower()
        if (
            request.status not in (200, 403, 404)
            or out.get(b"content-encoding") is not None
            or not (self.any_type or kind in self.types)
            or (request.content_length is not None and request.content_length < self.min_length)
        ):
            return
        if self.vary:
            request.vary = True
        if not self.wanted(request):
            return
        request.content_length = None
        request.allow_ranges = None
        out.remove(b"Accept-Ranges")
        tag = out.get(b"etag")
        if tag is not None and not tag.startswith(b"W/"):
            out.set(b"ETag", b"W/" + tag)
        out.set(b"Content-Encoding", b"gzip")
        if request.method != b"HEAD":
            request.gzip = zlib.compressobj(self.level, zlib.DEFLATED, 31)
            request.body_filters = (*request.body_filters, self.body)

    def wanted(self, request: Request) -> bool:
        """Whether the client is to get a compressed answer."""
        head = request.exchange.head
        if (
            request.parent is not None
            or head.version < self.version
            or not accepts_gzip(request.header_in(b"accept-encoding"))
        ):
            return False
        if self.disable:
            agent = request.header_in(b"user-agent") or b""
            if any(pattern.search(agent) for pattern in self.disable):
                return False
        return request.header_in(b"via") is None or self._proxied(request)

    def _proxied(self, request: Request) -> bool:
        asked, out = self.proxied, request.headers_out
        if "any" in asked:
            return True
        if "off" in asked:
            return False
        if "auth" in asked and request.header_in(b"authorization") is not None:
            return True
        expires = out.get(b"expires")
        if expires is not None:
            return "expired" in asked and (http_time(expires) or 0) <= (http_time(out.get(b"date") or b"") or 1 << 40)
        control = (out.get(b"cache-control") or b"").lower()
        if control:
            return any(word in asked and word.encode() in control for word in ("no-cache", "no-store", "private"))
        if "no_last_modified" in asked and request.last_modified is None:
            return True
        return "no_etag" in asked and out.get(b"etag") is None

    @staticmethod
    def body(request: Request, data: bytes, last: bool) -> bytes:
        """The body filter; the last part brings the trailer of the stream."""
        packer = request.gzip
        if packer is None:
            return data
        packed: bytes = packer.compress(data) if data else b""
        if last:
            packed += packer.flush()
            request.gzip = None
        elif request.flushing:
            packed += packer.flush(zlib.Z_SYNC_FLUSH)
        return packed


def accepts_gzip(header: bytes | None) -> bool:
    """True when an Accept-Encoding header takes gzip."""
    return accepts(header, b"gzip")


def accepts(header: bytes | None, coding: bytes) -> bool:
    """True when an Accept-Encoding header takes a coding (RFC 9110 12.5.3); `*` does not count, as in nginx."""
    for item in (header or b"").lower().split(b","):
        name, mark, rest = item.partition(b";")
        if name.strip() == coding:
            match = _QUALITY.match(mark + rest)
            return match is None or match.group(1).strip(b"0.") != b""
    return False


class GzipFamily(BaseFamily):
    """gzip and what it may be told."""

    specs = table(
        flag("gzip", HSLI),
        flag("gzip_vary", HSL),
        spec("gzip_types", HSL, 1, MANY),
        spec("gzip_comp_level", HSL, 1),
        spec("gzip_min_length", HSL, 1),
        spec("gzip_http_version", HSL, 1),
        spec("gzip_proxied", HSL, 1, MANY),
        spec("gzip_disable", HSL, 1, MANY),
        spec("gzip_buffers", HSL, 2),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        value: object
        if name in ("gzip", "gzip_vary"):
            value = flag_of(directive)
        elif name == "gzip_types":
            value = frozenset(to_bytes(word).lower() for word in directive.args)
        elif name == "gzip_comp_level":
            value = number_of(directive)
            if not 1 <= value <= 9:
                raise ConfError("value must be between 1 and 9", directive.place)
        elif name == "gzip_min_length":
            value = size_of(directive)
        elif name == "gzip_http_version":
            value = {"1.0": 10, "1.1": 11}.get(directive.args[0])
            if value is None:
                raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        elif name == "gzip_proxied":
            value = self._proxied(directive)
        elif name == "gzip_disable":
            value = self._disable(directive)
        else:
            number_of(directive)
            value = size_of(directive, 1)
            scope.build.means_nothing(directive)
        scope.set_once(directive, value)
        return None

    @staticmethod
    def _proxied(directive: Directive) -> frozenset[str]:
        unknown = [word for word in directive.args if word not in PROXIED]
        if unknown:
            raise ConfError(f'invalid value "{unknown[0]}"', directive.place)
        return frozenset(directive.args)

    @staticmethod
    def _disable(directive: Directive) -> tuple[re.Pattern[bytes], ...]:
        if "degradation" in directive.args:
            raise refused(directive, '"gzip_disable degradation"')
        return tuple(
            compile_regex(r"MSIE [4-6]\." if word == "msie6" else word, directive.place, caseless=True)
            for word in directive.args
        )

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter where gzip is on; it adds the body filter to the answers it compresses."""
        if scope.get("gzip", False):
            location.add_header_filter("gzip", gzip_settings(scope).header)


def gzip_settings(scope: Scope) -> Gzip:
    """The settings in force on a level, whether gzip is on or not."""
    get = scope.get
    types: frozenset[bytes] = get("gzip_types", frozenset())
    return Gzip(
        types=types | {b"text/html"},
        any_type=b"*" in types,
        level=get("gzip_comp_level", 1),
        min_length=get("gzip_min_length", 20),
        version=get("gzip_http_version", 11),
        vary=get("gzip_vary", False),
        proxied=get("gzip_proxied", frozenset({"off"})),
        disable=get("gzip_disable", ()),
    )
