"""slice: a large answer fetched in pieces, each by a request of its own for a range (`$slice_range`).

The first piece tells how long the whole is; the others are asked for by subrequests, one after the other, and their
bodies follow the first one's. What the client itself asked a range for is cut out of them.
https://nginx.org/en/docs/http/ngx_http_slice_module.html
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, BaseFamily, size_of, spec, table
from headrace.edge.postpone import place, postponed
from headrace.edge.ranges import parse_ranges
from headrace.edge.subrequest import Subrequest

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

_CONTENT_RANGE: Final = re.compile(rb"bytes[ ]+([0-9]+)-([0-9]+)/([0-9]+)")
_FIRST: Final = re.compile(rb"bytes=[ ]*([0-9]+)-[ ]*[0-9]*[ ]*$")


class Slices:
    """One answer in pieces; all in bytes.

    start: where the piece that is asked for now begins. end: of what is wanted. size: of a piece. total: length of
    the whole, -1 until it is known.
    """

    def __init__(self, request: Request, size: int) -> None:
        self.size = size
        self.end = 0
        self.total = -1
        self.tag: bytes | None = None
        match = _FIRST.match(request.header_in(b"range") or b"")
        self.start = int(match.group(1)) // size * size if match is not None else 0

    @property
    def wanted(self) -> bytes:
        """The value of a Range field for the piece."""
        return b"bytes=%d-%d" % (self.start, self.start + self.size - 1)


class SliceFamily(BaseFamily):
    """slice."""

    specs = table(spec("slice", HSL, 1))

    @staticmethod
    def _do_slice(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, size_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter where pieces have a size."""
        scope.build.variables.define("slice_range", _range)
        if scope.get("slice", 0):
            location.add_header_filter("slice", _header)
            location.add_header_filter("postpone", place)


def _range(request: Request) -> bytes | None:
    size: int = request.location.settings.get("slice", 0)
    if not size:
        return None
    if request.slices is None:
        request.slices = Slices(request.main, size)
    return request.slices.wanted


def _header(request: Request) -> None:
    slices = request.slices
    if slices is None:
        return
    inner = request.parent is not None and request.parent.slices is slices
    if request.status != 206:
        request.slices = slices if inner else None
        if inner:
            _fail(request, b"unexpected status code %d in slice response" % request.status)
        return
    out = request.headers_out
    match = _CONTENT_RANGE.match(out.get(b"content-range") or b"")
    first, last, total = (int(text) for text in match.groups()) if match is not None else (-1, -1, -1)
    tag = out.get(b"etag")
    if first != slices.start or last + 1 != min(slices.start + slices.size, total):
        _fail(request, b"unexpected range in slice response: %d-%d" % (first, last + 1))
        return
    if inner:
        if tag != slices.tag or total != slices.total:
            _fail(request, b"etag mismatch in slice response")
        return
    slices.total, slices.tag, slices.end = total, tag, total
    out.remove(b"Content-Range")
    _choose(request, slices, total)
    request.allow_ranges = None
    postponed(request)
    request.body_filters = (*request.body_filters, _Pieces(request, slices, max(0, request.slice_from - first)).body)


def _choose(request: Request, slices: Slices, total: int) -> None:
    """The whole, or the one range that the client asked for."""
    header = request.header_in(b"range") or b""
    found = parse_ranges(header[6:], total) if header.lower().startswith(b"bytes=") else None
    request.headers_out.remove(b"Accept-Ranges")
    if found is None or len(found) != 1:
        request.status, request.content_length = 200, total
        request.headers_out.set(b"Accept-Ranges", b"bytes")
        return
    (start, slices.end) = found[0]
    request.slice_from, request.content_length = start, slices.end - start
    request.headers_out.set(b"Content-Range", b"bytes %d-%d/%d" % (start, slices.end - 1, total))


def _fail(request: Request, message: bytes) -> None:
    """A piece that does not fit: the answer cannot go on."""
    request.log_error(log.ERR, message)
    request.main.abandon()


class _Pieces:
    """The body of the first piece, and behind it those of the others."""

    def __init__(self, request: Request, slices: Slices, skip: int) -> None:
        self._slices = slices
        self._skip = skip
        self._left = request.content_length or 0
        self._inner: Location | None = None

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        data = self._cut(data)
        slices = self._slices
        if last and self._left and slices.start + slices.size < slices.end:
            parts = postponed(request)
            if data:
                parts.put(data)
            self._next(request)
            return b""
        return data

    def _cut(self, data: bytes) -> bytes:
        if self._skip:
            skipped = min(self._skip, len(data))
            data, self._skip = data[skipped:], self._skip - skipped
        data = data[: self._left]
        self._left -= len(data)
        return data

    def _next(self, request: Request) -> None:
        """Ask for the next piece: in the same location, from its content on."""
        slices = self._slices
        slices.start += slices.size
        if self._inner is None:
            location = request.location
            self._inner = copy.copy(location)
            self._inner.inner_steps = tuple(step for step in location.steps if step[0] == phases.CONTENT)
        made = Subrequest(request, request.uri, request.args, method=request.method, done=self._ended)
        made.share_vars(request)
        made.slices = slices
        made.enter(self._inner)
        postponed(request).begin(made)

    def _ended(self, made: Subrequest) -> None:
        request = made.parent
        assert request is not None
        if request.finished:
            return
        data = self._cut(made.answer)
        made.collected = [data]
        if made.truncated or (self._left and not data):
            _fail(made, b"a piece of the answer is cut off")
            return
        if self._left:
            self._next(request)
        postponed(request).settle()
