"""A chunk as a message: its bytes as they are in the buffer wherever that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Unrecoverable
from headrace.pipeline import codec
from headrace.pipeline.event import NS, pack_value
from headrace.plugins.forward.messages import packed_pieces

if TYPE_CHECKING:
    import asyncio

    from headrace.pipeline.chunk import Chunk

THREADED: Final = 128 << 10
"""Bytes from which a chunk is compressed in a thread: zlib and zstd let the loop run meanwhile."""


async def message(
    chunk: Chunk, loop: asyncio.AbstractEventLoop, *, how: str | None, integers: bool, named: bool
) -> tuple[bytes, bytes, bytes]:
    """Return a PackedForward message in pieces.

    how: "gzip", "zstd" or None; what is compressed so in the buffer is not compressed again. integers: times as whole
    seconds. named: with the chunk's id. Raises Unrecoverable for a chunk without a tag, ValueError or OSError for one
    that cannot be read.
    """
    if chunk.tag is None:
        raise Unrecoverable("the chunk has no tag", kind="no_tag")
    if integers:
        entries = b"".join([pack_value([time // NS, record]) for time, record in chunk.events()])
        if how is not None:
            entries = await _compressed(how, entries, loop)
    elif how is None:
        entries = chunk.read()
    elif chunk.codec == codec.NAMES[how] and not chunk.ragged:
        entries = chunk.read_compressed(how)
    else:
        entries = await _compressed(how, chunk.read(), loop)
    return packed_pieces(chunk.tag, entries, chunk.count, chunk_id=chunk.id if named else None, compressed=how)


async def _compressed(how: str, data: bytes, loop: asyncio.AbstractEventLoop) -> bytes:
    kind = codec.NAMES[how]
    if len(data) < THREADED:
        return codec.compress(kind, data)
    return await loop.run_in_executor(None, codec.compress, kind, data)
