"""Send an open regular file: conditions, ranges, then the bytes by the cheapest way.

A small file goes out with its head in one write; a large one by sendfile from the chain; one that filters must see
is read in pieces, with the client's pace. The descriptor is closed when its last byte has left.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.ranges import condition_status, part_head, requested_ranges
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request

SMALL: Final = 32768
PIECE: Final = 65536


def send_file(request: Request, fd: int, info: os.stat_result) -> int | Awaitable[int | None]:
    """Answer with an open regular file, whose descriptor this takes over."""
    size, modified = info.st_size, int(info.st_mtime)
    request.content_length = size
    request.last_modified = modified
    tag = b'"%x-%x"' % (modified, size) if request.location.etag else None
    if tag is not None:
        request.headers_out.fields.append((b"ETag", tag))
    status = condition_status(request, modified, tag)
    if status != 200:
        os.close(fd)
        if status == 412:
            return 412
        request.status = 304
        request.finish()
        return phases.DONE
    pieces = requested_ranges(request, size, modified, tag)
    if pieces is not None and not pieces:
        os.close(fd)
        request.content_length = None
        request.range_refused = True
        request.allow_ranges = (size, [])
        return 416
    request.allow_ranges = (size, pieces)
    request.status = 200
    if request.method == b"HEAD":
        os.close(fd)
        request.finish()
        return phases.DONE
    request.send_header()
    if request.status != 206:
        pieces = None
    if request.body_filters or not (request.location.sendfile or size <= SMALL):
        return _send_read(request, fd, pieces if pieces is not None else [(0, size)])
    if pieces is None and size <= SMALL:
        try:
            data = os.pread(fd, size, 0) if size else b""
        finally:
            os.close(fd)
        if len(data) < size:
            return phases.ERROR
        request.output(data)
        request.finish()
        return phases.DONE
    _send_pieces(request, fd, pieces if pieces is not None else [(0, size)])
    request.finish()
    return phases.DONE


def _send_pieces(request: Request, fd: int, pieces: list[tuple[int, int]]) -> None:
    boundary = request.boundary
    for start, end in pieces:
        if boundary:
            request.output(part_head(request, boundary, start, end))
        request.output_file(fd, start, end - start)
    if boundary:
        request.output(b"\r\n--%b--\r\n" % boundary)
        request.push()
    request.exchange.conn.stream.chain.mark(lambda _error: os.close(fd))


async def _send_read(request: Request, fd: int, pieces: list[tuple[int, int]]) -> int:
    """Read and send, for filters or `sendfile off`, no faster than the client takes it."""
    boundary = request.boundary
    try:
        for start, end in pieces:
            if boundary:
                request.output(part_head(request, boundary, start, end))
            while start < end and not request.exchange.aborted:
                data = os.pread(fd, min(PIECE, end - start), start)
                if not data:
                    return phases.ERROR
                start += len(data)  # noqa: PLW2901 - what is left of the piece
                request.output(data)
                if start < end and request.started:
                    await request.flush()
    except ConnectionFailed:
        return phases.ERROR
    finally:
        os.close(fd)
    if boundary:
        request.output(b"\r\n--%b--\r\n" % boundary)
    request.finish()
    return phases.DONE
