"""gzip_static: files that are compressed beforehand; gunzip: for clients that take none.

https://nginx.org/en/docs/http/ngx_http_gzip_static_module.html, ngx_http_gunzip_module.html
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, BaseFamily, flag, flag_of, number_of, size_of, spec, table
from headrace.edge.families.gzip import Gzip, gzip_settings
from headrace.edge.precompressed import sender
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.filters import HeaderFilter
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class GzipStaticFamily(BaseFamily):
    """What is stored or comes compressed."""

    specs = table(spec("gzip_static", HSL, 1), flag("gunzip", HSL), spec("gunzip_buffers", HSL, 2))

    @staticmethod
    def _do_gzip_static(scope: Scope, directive: Directive) -> None:
        if directive.args[0] not in ("off", "on", "always"):
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        scope.set_once(directive, directive.args[0])

    @staticmethod
    def _do_gunzip(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    @staticmethod
    def _do_gunzip_buffers(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, (number_of(directive), size_of(directive, 1)))
        scope.build.means_nothing(directive)

    def compose(self, scope: Scope, location: Location) -> None:
        """Files: before the plain ones. Answers that come compressed: before what changes bodies."""
        how = scope.get("gzip_static", "off")
        if how != "off":
            settings = gzip_settings(scope)
            send = sender(b"gzip", b".gz", wanted=settings.wanted, vary=settings.vary, always=how == "always")
            location.add(phases.CONTENT, send)
        if scope.get("gunzip", False):
            location.add_header_filter("gunzip", _unpacker(gzip_settings(scope)))


def _unpacker(settings: Gzip) -> HeaderFilter:
    def header(request: Request) -> None:
        encoding = request.kept_headers.get(b"content-encoding") if request.kept_headers is not None else None
        if encoding is None or encoding.lower() != b"gzip":
            return
        if settings.vary:
            request.vary = True
        if settings.wanted(request):
            return
        out = request.headers_out
        out.remove(b"Content-Encoding")
        request.content_length = None
        request.allow_ranges = None
        out.remove(b"Accept-Ranges")
        tag = out.get(b"etag")
        if tag is not None and not tag.startswith(b"W/"):
            out.set(b"ETag", b"W/" + tag)
        if not request.header_only and request.method != b"HEAD":
            request.body_filters = (*request.body_filters, _Unpacking().body)

    return header


class _Unpacking:
    """One answer on its way: members of a gzip file, one after the other (RFC 1952)."""

    def __init__(self) -> None:
        self._unpacker: Any = zlib.decompressobj(31)

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        out = b""
        try:
            while data:
                if self._unpacker.eof:
                    self._unpacker = zlib.decompressobj(31)
                out += self._unpacker.decompress(data)
                data = self._unpacker.unused_data
        except zlib.error as error:
            request.log_error(log.ERR, b"inflate() failed: " + str(error).encode())
            request.exchange.keep_alive = False
            request.abandon()
            return b""
        if last and not self._unpacker.eof:
            request.log_error(log.ERR, b"premature end of a compressed answer")
        return out
