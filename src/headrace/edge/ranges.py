"""Conditional requests and ranges of a representation with known length, date and tag (RFC 9110 13, 14)."""

from __future__ import annotations

import itertools
import os
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.edge.request import Request

MAX_RANGES: Final = 1 << 31
_SPEC: Final = re.compile(rb"[ \t]*([0-9]*)[ \t]*-[ \t]*([0-9]*)[ \t]*")


def http_time(text: bytes) -> int | None:
    """Seconds since the epoch of an HTTP date, None when it is none."""
    try:
        return int(parsedate_to_datetime(text.decode("latin-1")).timestamp())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def condition_status(request: Request, modified: int, tag: bytes | None) -> int:
    """304 or 412 when the request's conditions say so, else 200 (RFC 9110 13.2.2, as nginx orders them)."""
    if request.unconditional or not request.may_have(b"if-"):
        return 200
    since = request.header_in(b"if-unmodified-since")
    if since is not None and modified > (http_time(since) or 0):
        return 412
    match = request.header_in(b"if-match")
    if match is not None and not tag_matches(match, tag, weak=False):
        return 412
    since = request.header_in(b"if-modified-since")
    none_match = request.header_in(b"if-none-match")
    if since is None and none_match is None:
        return 200
    if since is not None and not _unmodified(request, since, modified):
        return 200
    if none_match is not None and not tag_matches(none_match, tag, weak=True):
        return 200
    return 304


def _unmodified(request: Request, since: bytes, modified: int) -> bool:
    how = request.location.if_modified_since
    at = http_time(since)
    if how == "off" or at is None:
        return False
    return at == modified or (how == "before" and at >= modified)


def tag_matches(listed: bytes, tag: bytes | None, *, weak: bool) -> bool:
    """True when a list of entity tags names this one (`*` names any)."""
    if listed.strip() == b"*":
        return True
    if tag is None:
        return False
    wanted = tag.removeprefix(b"W/") if weak else tag
    for item in listed.split(b","):
        item = item.strip()  # noqa: PLW2901 - the same thing without blanks
        if (item.removeprefix(b"W/") if weak else item) == wanted:
            return True
    return False


def requested_ranges(request: Request, size: int, modified: int, tag: bytes | None) -> list[tuple[int, int]] | None:
    """The (start, end) pairs to send; None: the whole; an empty list: nothing can be satisfied (416)."""
    header = request.header_in(b"range") if request.may_have(b"range") else None
    if header is None or len(header) < 7 or header[:6].lower() != b"bytes=":
        return None
    condition = request.header_in(b"if-range")
    if condition is not None:
        if condition.startswith((b'"', b"W/")):
            if condition != tag:
                return None
        elif http_time(condition) != modified:
            return None
    limit = request.location.max_ranges
    if not limit:
        return None
    found = parse_ranges(header[6:], size)
    return None if found is not None and len(found) > limit else found


def parse_ranges(text: bytes, size: int) -> list[tuple[int, int]] | None:
    """Parse byte ranges against a size; see requested_ranges. More bytes asked for than there are: the whole."""
    found: list[tuple[int, int]] = []
    total = 0
    for item in text.split(b","):
        match = _SPEC.fullmatch(item)
        if match is None:
            return []
        first, last = match.groups()
        if first:
            start = int(first)
            end = min(int(last) + 1, size) if last else size
            if last and int(last) < start:
                return []
        elif last:
            start, end = max(size - int(last), 0), size
        else:
            return []
        if start < end:
            found.append((start, end))
            total += end - start
    return found if total <= size else None


class Parts:
    """The parts of a body to send: (start, end) pairs, each behind its head where there are several (RFC 9110 14.6).

    heads: as many; tail: what follows the last part. length: bytes of all of it.
    """

    __slots__ = ("boundary", "heads", "length", "pieces", "tail")

    def __init__(self, pieces: list[tuple[int, int]], size: int, content_type: bytes) -> None:
        self.pieces = pieces
        self.heads = [b""] * len(pieces)
        self.boundary = self.tail = b""
        if len(pieces) > 1:
            self.boundary = b"%020d" % int.from_bytes(os.urandom(8), "big")
            kind = b"Content-Type: %b\r\n" % content_type if content_type else b""
            start = b"\r\n--%b\r\n%bContent-Range: bytes " % (self.boundary, kind)
            self.heads = [b"%b%d-%d/%d\r\n\r\n" % (start, first, end - 1, size) for first, end in pieces]
            self.tail = b"\r\n--%b--\r\n" % self.boundary
        self.length = sum(end - first for first, end in pieces) + sum(map(len, self.heads)) + len(self.tail)

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Head, start and end of each part."""
        return ((head, *piece) for head, piece in zip(self.heads, self.pieces, strict=True))


def apply_ranges(request: Request) -> None:
    """The range filter: turn a 200 into a 206 when parts of it were asked for, and nothing changed its length.

    What has trailers goes out in chunks, whatever its length is.
    """
    _apply(request)
    if request.trailers is not None:
        request.content_length = None


def offer_ranges(request: Request, size: int, modified: int, tag: bytes | None) -> bool:
    """Let parts of an answer of this size be had; False: what is asked for is not there, the answer is 416."""
    pieces = requested_ranges(request, size, modified, tag)
    request.allow_ranges = (size, pieces)
    if pieces is None or pieces:
        return True
    request.content_length, request.range_refused = None, True
    return False


def _apply(request: Request) -> None:
    assert request.allow_ranges is not None
    size, pieces = request.allow_ranges
    if request.range_refused:
        request.headers_out.set(b"Content-Range", b"bytes */%d" % size)
        return
    if request.status != 200 or request.content_length != size:
        return
    out = request.headers_out
    if request.may_have(b"if-range"):  # filters may have changed what it is about
        pieces = _asked_again(request, size)
    filtered = request.whole_body or bool(request.body_filters)
    if pieces is not None and filtered and not _ascend(pieces):
        pieces = None  # a body that comes by once is not gone through twice
    if pieces is None:
        out.fields.append((b"Accept-Ranges", b"bytes"))
        return
    request.status = 206
    parts = Parts(pieces, size, request.content_type or b"")
    request.content_length = parts.length
    if parts.boundary:
        request.content_type = b"multipart/byteranges; boundary=" + parts.boundary
    else:
        start, end = pieces[0]
        out.set(b"Content-Range", b"bytes %d-%d/%d" % (start, end - 1, size))
    if filtered:
        request.body_filters = (*request.body_filters, RangeFilter(parts).body)
    else:
        request.parts = parts


def _asked_again(request: Request, size: int) -> list[tuple[int, int]] | None:
    kept = request.kept_headers
    modified, tag = request.last_modified, None
    if kept is not None:
        tag = kept.get(b"ETag")
        date = kept.get(b"Last-Modified")
        if modified is None and date is not None:
            modified = http_time(date)
    return requested_ranges(request, size, -1 if modified is None else int(modified), tag) or None


def _ascend(pieces: list[tuple[int, int]]) -> bool:
    return all(one[1] <= other[0] for one, other in itertools.pairwise(pieces))


class RangeFilter:
    """The last body filter of an answer whose parts were asked for: lets them through, each behind its head."""

    def __init__(self, parts: Parts) -> None:
        self._left = list(parts)
        self._tail = parts.tail
        self._at = 0

    def body(self, _request: Request, data: bytes, _last: bool) -> bytes:
        """The body filter."""
        begin, end = self._at, self._at + len(data)
        self._at = end
        left = self._left
        out: list[bytes] = []
        while left and left[0][1] < end:
            head, start, stop = left[0]
            if start >= begin:
                out.append(head)
            out.append(data[max(start - begin, 0) : stop - begin])
            if stop > end:
                break
            left.pop(0)
            if not left:
                out.append(self._tail)
        return out[0] if len(out) == 1 else b"".join(out)
