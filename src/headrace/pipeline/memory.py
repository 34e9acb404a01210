"""Chunks in memory: the pieces are kept as they come and joined when an output asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.pipeline.seen import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.pipeline.buffer import Write
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.placeholders import ChunkKeys

HELD: Final = 16 << 10
"""Bytes that an encoder may hold back before its output is asked for."""


class MemoryStore:
    """A `Store` that forgets everything at the end."""

    persistent = False

    def __init__(self) -> None:
        self._seen = Seen()

    def write(self, writes: Sequence[Write], batch_id: bytes | None) -> None:
        """Append the pieces."""
        for chunk, data, count in writes:
            assert chunk.parts is not None
            if chunk.encoder is not None:
                self._compress(chunk, data)
            else:
                if chunk.parts:
                    chunk.parts.append(data)
                else:  # a list made for one piece is half the size of one that grew
                    chunk.parts = [data]
                chunk.size += len(data)
            chunk.count += count
        if batch_id is not None:
            self._seen.add(batch_id)

    @staticmethod
    def _compress(chunk: Chunk, data: bytes) -> None:
        """Append to a compressed chunk; what its encoder still holds counts as it came."""
        assert chunk.encoder is not None
        assert chunk.parts is not None
        made, held = chunk.place if isinstance(chunk.place, tuple) else (0, 0)
        held += len(data)
        flush = held >= HELD
        piece = chunk.encoder.add(data, flush=flush)
        if piece:
            chunk.parts.append(piece)
            made += len(piece)
        chunk.place = (made, 0 if flush else held)
        chunk.size = made + (0 if flush else held)

    def seal(self, chunk: Chunk) -> None:
        """Close the compressed member, and make one piece of many."""
        assert chunk.parts is not None
        if chunk.encoder is not None:
            chunk.parts.append(chunk.encoder.finish())
            chunk.encoder = None
        if len(chunk.parts) > 1:
            chunk.parts = [b"".join(chunk.parts)]
        chunk.size = len(chunk.parts[0])

    def purge(self, chunk: Chunk) -> None:
        """Drop the pieces."""
        chunk.parts = None
        chunk.encoder = None

    def read(self, chunk: Chunk) -> bytes:
        """Return the joined pieces."""
        parts = chunk.parts or ()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def seen(self, batch_id: bytes, *, own: bool, fsync: bool | None = None) -> bool:
        """Whether a batch with this id was accepted before."""
        return batch_id in self._seen

    def acknowledged(self, fsync: bool | None = None) -> None:
        """Return None: memory is as safe as it gets."""
        return

    async def recover(self, keys: ChunkKeys, since: float) -> list[Chunk]:
        """Return nothing."""
        return []

    def close(self) -> None:
        """Do nothing."""
