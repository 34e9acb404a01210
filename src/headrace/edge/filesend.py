"""Send an open regular file: conditions, ranges, then the bytes by the cheapest way.

A small file goes out with its head in one write; a large one by sendfile from the chain; one that filters must see
is read in pieces, with the client's pace. The descriptor is closed when its last byte has left.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.ranges import condition_status, offer_ranges
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from headrace.edge.ranges import Parts
    from headrace.edge.request import Request

SMALL: Final = 32768
PIECE: Final = 65536


def send_file(
    request: Request, fd: int, info: os.stat_result, *, lead: bytes = b"", skip: int = 0
) -> int | Awaitable[int | None]:
    """Answer with an open regular file, whose descriptor this takes over.

    lead: bytes to send in place of the first `skip` bytes of the file.
    """
    size, modified = info.st_size, int(info.st_mtime)
    if lead:
        size += len(lead) - skip
        request.whole_body = True
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
    if not offer_ranges(request, size, modified, tag):
        os.close(fd)
        return 416
    request.status = 200
    if request.method == b"HEAD":
        os.close(fd)
        request.finish()
        return phases.DONE
    request.send_header()
    parts = request.parts
    if request.body_filters or not (request.location.sendfile or size <= SMALL):
        return _send_read(request, fd, parts or ((lead, skip, info.st_size),), parts)
    if parts is None and size <= SMALL:
        try:
            data = lead + os.pread(fd, size - len(lead), skip) if size else b""
        finally:
            os.close(fd)
        if len(data) < size:
            return phases.ERROR
        request.output(data)
    else:
        _send_pieces(request, fd, parts or ((lead, skip, info.st_size),), parts)
    request.finish()
    return phases.DONE


def _send_pieces(request: Request, fd: int, pieces: Iterable[tuple[bytes, int, int]], parts: Parts | None) -> None:
    for head, start, end in pieces:
        if head:
            request.output(head)
        request.output_file(fd, start, end - start)
    if parts is not None and parts.tail:
        request.output(parts.tail)
        request.push()
    request.exchange.conn.stream.chain.mark(lambda _error: os.close(fd))


async def _send_read(request: Request, fd: int, pieces: Iterable[tuple[bytes, int, int]], parts: Parts | None) -> int:
    """Read and send, for filters or `sendfile off`, no faster than the client takes it."""
    try:
        for head, start, end in pieces:
            if head:
                request.output(head)
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
    if parts is not None and parts.tail:
        request.output(parts.tail)
    request.finish()
    return phases.DONE
