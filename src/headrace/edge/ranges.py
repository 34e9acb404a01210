"""Conditional requests and ranges of a representation with known length, date and tag (RFC 9110 13, 14)."""

from __future__ import annotations

import os
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    if not request.may_have(b"if-"):
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


def part_head(request: Request, boundary: bytes, start: int, end: int) -> bytes:
    """What stands before one range of several (RFC 9110 14.6)."""
    kind = b"Content-Type: %b\r\n" % request.part_type if request.part_type else b""
    return b"\r\n--%b\r\n%bContent-Range: bytes %d-%d/%d\r\n\r\n" % (boundary, kind, start, end - 1, request.whole)


def apply_ranges(request: Request) -> None:
    """The range filter: turn a 200 into a 206 when parts of it were asked for, and nothing changed its length.

    What has trailers goes out in chunks, whatever its length is.
    """
    _apply(request)
    if request.trailers is not None:
        request.content_length = None


def _apply(request: Request) -> None:
    assert request.allow_ranges is not None
    size, pieces = request.allow_ranges
    if request.range_refused:
        request.headers_out.set(b"Content-Range", b"bytes */%d" % size)
        return
    if request.status != 200 or request.content_length != size or request.body_filters:
        return
    out = request.headers_out
    if pieces is None:
        out.fields.append((b"Accept-Ranges", b"bytes"))
        return
    request.status = 206
    request.whole = size
    if len(pieces) == 1:
        start, end = pieces[0]
        request.content_length = end - start
        out.set(b"Content-Range", b"bytes %d-%d/%d" % (start, end - 1, size))
        return
    request.part_type = request.content_type or b""
    boundary = request.boundary = b"%020d" % int.from_bytes(os.urandom(8), "big")
    heads = sum(len(part_head(request, boundary, start, end)) + end - start for start, end in pieces)
    request.content_length = heads + len(boundary) + 8
    request.content_type = b"multipart/byteranges; boundary=" + boundary
