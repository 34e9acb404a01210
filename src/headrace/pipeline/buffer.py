"""The chunks of one output, where they stand and how much room is left. No I/O of its own, no clock.

Rules:
- Every byte is in exactly one place: staged, queued or in flight. `used` is their sum, and the limit
  covers all three.
- A batch is accepted whole or not at all: the intake decides into which chunks its pieces go without
  changing anything, `room` says whether they fit, `accept` stores them; when the store refuses (a full
  disk), nothing of the batch is in the buffer.
- Chunks leave the queue in order; one that failed goes to its end and is left there until it is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.pipeline.ack import settle
from headrace.pipeline.chunk import GONE, IN_FLIGHT, QUEUED, STAGED, Chunk
from headrace.pipeline.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Sequence

    from headrace.pipeline.placeholders import ChunkKeys

    Item = tuple[bytes, int]
    """Formatted bytes, and how many events they hold."""
    Write = tuple[Chunk, bytes, int]


class Store(Protocol):
    """Where the bytes of chunks are. Chunks are made by `Chunk(store, ...)`; the store fills parts and place."""

    persistent: bool

    def write(self, writes: Sequence[Write], batch_id: bytes | None) -> None:
        """Append to chunks, all or nothing, and grow their `size` and `count`. Raises OSError."""
        ...

    def seal(self, chunk: Chunk) -> None:
        """Nothing more is appended; `size` becomes final."""
        ...

    def purge(self, chunk: Chunk) -> None:
        """Forget a chunk. Never raises: what cannot be noted now is noted later."""
        ...

    def read(self, chunk: Chunk) -> bytes:
        """Return the stored bytes of a sealed chunk, whole. Raises OSError or ValueError."""
        ...

    def seen(self, batch_id: bytes, *, own: bool, fsync: bool | None = None) -> bool:
        """Whether a batch with this id was accepted before. own: by this worker, not by another one.

        fsync: as of `acknowledged`; of a batch that another worker has the disk has it then.
        """
        ...

    def acknowledged(self, fsync: bool | None = None) -> Awaitable[None] | None:
        """None when what was written is as safe as configured, else an awaitable that ends when it is.

        fsync: whether the disk must have it, where somebody asks for another safety than the configured one.
        """
        ...

    async def recover(self, keys: ChunkKeys, since: float) -> list[Chunk]:
        """Return the sealed chunks that an earlier run left, oldest first."""
        ...

    def close(self) -> None:
        """Write what is pending, give up files and locks."""
        ...


class Limits:
    """The limits of a buffer. chunk_size, total: bytes; chunk_records: events or None; full: part of them."""

    __slots__ = ("chunk_records", "chunk_size", "full_records", "full_size", "total")

    def __init__(self, chunk_size: int, chunk_records: int | None, total: int, full: float) -> None:
        # A chunk that could fill the whole buffer alone would be sealed too late to make room.
        self.chunk_size = chunk_size = min(chunk_size, total)
        self.chunk_records = chunk_records
        self.total = total
        self.full_size = chunk_size * full
        self.full_records = chunk_records * full if chunk_records is not None else None


class Buffer:
    """Staged, queued and in-flight chunks."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.staged: dict[object, Chunk] = {}
        self.queued = Queue()
        self.in_flight: dict[bytes, Chunk] = {}
        self.used = 0
        """Bytes in all chunks."""
        self.events = 0
        """Events in all chunks."""

    def fits(self, chunk: Chunk, size: int, count: int) -> bool:
        """Whether a piece may still go into a staged chunk."""
        limits = self.limits
        return (
            chunk.size + size <= limits.chunk_size
            and (limits.chunk_records is None or chunk.count + count <= limits.chunk_records)
            and not chunk.closed
        )

    def is_full(self, chunk: Chunk) -> bool:
        """Whether a chunk has reached the threshold of its limits."""
        limits = self.limits
        return chunk.size >= limits.full_size or (
            limits.full_records is not None and chunk.count >= limits.full_records
        )

    def room(self, size: int) -> bool:
        """Whether `size` bytes more may come in."""
        return self.used + size <= self.limits.total

    def accept(self, writes: Sequence[Write], batch_id: bytes | None = None) -> list[Chunk]:
        """Store the pieces of a batch and return the chunks that are full now. Raises OSError: nothing is kept."""
        before = [(chunk, chunk.size, chunk.count) for chunk in {id(write[0]): write[0] for write in writes}.values()]
        self.store.write(writes, batch_id)
        full: list[Chunk] = []
        for chunk, size, count in before:
            self.used += chunk.size - size
            self.events += chunk.count - count
            if self.is_full(chunk):
                full.append(chunk)
        return full

    def accept_one(self, chunk: Chunk, data: bytes, count: int) -> bool:
        """As `accept`, for one piece; return whether the chunk is full now."""
        before = chunk.size
        self.store.write(((chunk, data, count),), None)
        self.used += chunk.size - before
        self.events += count
        return self.is_full(chunk)

    def accept_whole(self, writes: Sequence[Write]) -> None:
        """Store new chunks that are complete with one piece each, and queue them. Raises OSError: nothing is kept."""
        self.store.write(writes, None)
        seal, queue = self.store.seal, self.queued.add
        for chunk, _data, count in writes:
            seal(chunk)
            chunk.state = QUEUED
            queue(chunk)
            self.used += chunk.size
            self.events += count

    def stage(self, chunk: Chunk) -> None:
        """Make a new chunk the one that its group's events go to."""
        self.staged[chunk.group] = chunk

    def seal(self, chunk: Chunk) -> None:
        """Move a staged chunk to the queue; an empty one disappears."""
        assert chunk.state == STAGED
        if self.staged.get(chunk.group) is chunk:
            del self.staged[chunk.group]
        before = chunk.size
        if not chunk.count:
            self.used -= before
            self._forget(chunk)
            return
        self.store.seal(chunk)
        self.used += chunk.size - before
        chunk.state = QUEUED
        self.queued.add(chunk)

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """Queue the chunks of an earlier run."""
        for chunk in chunks:
            chunk.state = QUEUED
            self.queued.add(chunk)
            self.used += chunk.size
            self.events += chunk.count

    def take(self, now: float) -> Chunk | None:
        """Take the first queued chunk that is due, for a lane."""
        return self._taken(self.queued.first(now))

    def take_in_window(self, now: float, window: int, *, probe: bool) -> Chunk | None:
        """Take a chunk with which a destination that fails is tried, one that was not tried in this window.

        probe: a chunk that was never tried comes first (it shows whether only its elders are bad), else last.
        """
        queued = self.queued
        if probe:
            return self._taken(queued.untried() or queued.tried(now, window))
        return self._taken(queued.tried(now, window) or queued.untried())

    def take_untried(self) -> Chunk | None:
        """Take the first queued chunk that was never tried."""
        return self._taken(self.queued.untried())

    def _taken(self, chunk: Chunk | None) -> Chunk | None:
        """Move a queued chunk to a lane."""
        if chunk is not None:
            self.queued.remove(chunk)
            chunk.state = IN_FLIGHT
            self.in_flight[chunk.id] = chunk
        return chunk

    def back(self, chunk: Chunk) -> None:
        """Put a chunk that was not delivered back at the end of the queue."""
        del self.in_flight[chunk.id]
        chunk.state = QUEUED
        self.queued.add(chunk)

    def remove(self, chunk: Chunk, error: BaseException | None = None) -> None:
        """Forget a queued or in-flight chunk: it is delivered, or (error) backed up or dropped."""
        if self.in_flight.pop(chunk.id, None) is None and chunk.id in self.queued:
            self.queued.remove(chunk)
        self.used -= chunk.size
        self.events -= chunk.count
        self._forget(chunk)
        if chunk.waiters is not None:
            settle(chunk, error)

    def oldest(self) -> Chunk | None:
        """Return the oldest chunk that no lane has: queued, else staged."""
        return self.queued.oldest() or next(iter(self.staged.values()), None)

    def everything(self) -> Iterator[Chunk]:
        """Yield all chunks."""
        yield from self.in_flight.values()
        yield from self.queued.values()
        yield from self.staged.values()

    def _forget(self, chunk: Chunk) -> None:
        chunk.state = GONE
        chunk.store.purge(chunk)
