"""Events into the buffer: shape them, find room, store them.

A batch is accepted whole or refused whole. What one record does wrong (it cannot be encoded, it is larger
than a chunk may be) is that record's matter: it goes to @ERROR after its neighbours are stored, so a batch
that is refused for lack of room and sent again does not repeat its error events.

When the buffer is full, overflow_action decides: the batch is refused (BufferOverflow), or waits in line
and is stored in the order of arrival as room comes, or the oldest chunks are dropped for it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import BufferOverflow
from headrace.pipeline.ack import BUFFER, DELIVERY, FSYNC, Deliveries, follow, settle
from headrace.pipeline.chunk import STAGED, Chunk
from headrace.pipeline.shape import UNPACKABLE, Shaper, size_of, split
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from headrace.pipeline.event import Batch
    from headrace.pipeline.settings import BufferSection
    from headrace.pipeline.shape import Pieces, Plan, Rejected

DISK_RETRY: Final = 1.0
"""Seconds after which waiting batches try again a disk that refused to write."""


class Flusher(Protocol):
    """Who is told what happens in the buffer."""

    def chunk_staged(self, chunk: Chunk) -> None:
        """A new chunk grows: it must be queued one day."""
        ...

    def chunks_queued(self) -> None:
        """There are chunks to deliver."""
        ...

    def chunk_awaited(self, chunk: Chunk) -> None:
        """Somebody waits for the delivery of a staged chunk."""
        ...

    def call_later(self, seconds: float) -> None:
        """Call `resume` in some seconds."""
        ...


class _Waiter:
    """A batch that waits for room. `left` shrinks when it is larger than the whole buffer."""

    __slots__ = ("batch", "chunks", "counted", "future", "left", "rejected", "tag")

    def __init__(self, tag: str, batch: Batch, left: Pieces, rejected: Rejected) -> None:
        self.tag = tag
        self.batch = batch
        self.left = left
        self.rejected = rejected
        self.counted = 0
        """Events of it that are stored already."""
        self.chunks: list[Chunk] = []
        """The chunks they went to."""
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Intake:
    """The entrance of one buffered output.

    received: events taken; rejected: those of them that went to @ERROR; discarded: events of chunks that
    drop_oldest_chunk dropped.
    """

    def __init__(self, shaper: Shaper, section: BufferSection, flusher: Flusher, *, left: Iterable[Chunk] = ()) -> None:
        self.shaper = shaper
        self.buffer = shaper.buffer
        self.deliveries = Deliveries(left)
        self.action = section.overflow_action
        self.received = 0
        self.rejected = 0
        self.discarded = 0
        self.overflows = Throttle()
        self.write_errors = Throttle()
        self.closed = False
        self._output = shaper.output
        self._log = shaper.output.log
        self._immediate = section.effective_mode == "immediate"
        self._flusher = flusher
        self._waiters: deque[_Waiter] = deque()
        keys = shaper.keys
        self._plain = keys.simple and not shaper.formats
        self._singles = keys.simple and shaper.limits.chunk_records == 1
        self._group = None if keys.tag else keys.of_tag("")[0]

    @property
    def reads(self) -> bool:
        """Whether it looks at the records of every batch, as its output formats them or its chunk keys are fields."""
        shaper = self.shaper
        return shaper.formats or not shaper.keys.simple

    @property
    def waiting(self) -> int:
        """Batches that wait for room."""
        return len(self._waiters)

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Take a batch; see `headrace.pipeline.plugin`. Raises BufferOverflow when it is refused."""
        if self._waiters or batch.id is not None or batch.ack or self.closed:
            return self._emit(tag, batch)
        if self._singles:
            return self._emit_singles(tag, batch)
        if self._plain:
            # The short way of nearly every batch: it fits into one chunk as it is.
            try:
                data = batch.packed()
            except UNPACKABLE:
                return self._emit(tag, batch)
            buffer = self.buffer
            chunk = buffer.staged.get(self._group or (tag, None))
            count = batch.count
            fresh = chunk is None
            if chunk is None:
                chunk = self.shaper.new_chunk(tag)
            if buffer.fits(chunk, len(data), count) and buffer.room(len(data)):
                try:
                    full = buffer.accept_one(chunk, data, count)
                except OSError:
                    return self._emit(tag, batch)
                self.received += count
                if full or self._immediate:
                    buffer.seal(chunk)
                    self._flusher.chunks_queued()
                elif fresh:
                    buffer.stage(chunk)
                    self._flusher.chunk_staged(chunk)
                return buffer.store.acknowledged()
        return self._emit(tag, batch)

    def _emit_singles(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """The short way where each record is a chunk of its own."""
        buffer = self.buffer
        writes = self.shaper.singles(tag, batch)
        if writes is None or not buffer.room(sum([len(write[1]) for write in writes])):
            return self._emit(tag, batch)
        try:
            buffer.accept_whole(writes)
        except OSError:
            return self._emit(tag, batch)
        self.received += batch.count
        self._flusher.chunks_queued()
        return buffer.store.acknowledged()

    def resume(self) -> None:
        """Let waiting batches in, first come first served, as far as there is room."""
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.future.done():
                try:
                    self._admit(waiter)
                except BufferOverflow:
                    return
            self._waiters.popleft()
            if waiter.future.done():  # whoever waited has gone
                continue
            follow(
                self._finish(waiter.tag, waiter.batch, waiter.rejected, waiter.chunks, waiter.counted), waiter.future
            )

    def close(self) -> None:
        """Refuse what waits and what comes from now on."""
        self.closed = True
        while self._waiters:
            future = self._waiters.popleft().future
            if not future.done():
                future.set_exception(_shutting_down())

    def give_up(self) -> None:
        """Tell those who wait for a delivery that it comes later, if at all: the process ends."""
        for chunk in self.buffer.everything():
            if chunk.waiters is not None:
                settle(chunk, _shutting_down())

    def _emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        if self.closed:
            raise _shutting_down()
        if batch.id is not None and self._is_repeated(batch.id, batch.ack):
            return self.deliveries.again(batch.id) if batch.ack == DELIVERY else self._safe(batch.ack)
        rejected: Rejected = []
        pieces = self.shaper.pieces(tag, batch, rejected)
        if not self._waiters:
            try:
                chunks = self._store(pieces, batch.id)
            except BufferOverflow as error:
                self._note_overflow(error)
                if self.action != "block":
                    raise
            else:
                return self._finish(tag, batch, rejected, chunks)
        waiter = _Waiter(tag, batch, pieces, rejected)
        self._waiters.append(waiter)
        if size_of(pieces) > self.buffer.limits.total:
            self.resume()  # it goes in by parts, the first of them now
        return waiter.future

    def _is_repeated(self, batch_id: bytes, ack: int) -> bool:
        # Whether what another worker has of it is delivered, only that one knows.
        fsync = None if ack in {BUFFER, DELIVERY} else ack == FSYNC
        seen = self.buffer.store.seen(batch_id, own=ack == DELIVERY, fsync=fsync)
        return seen and not self.deliveries.forgives(batch_id)

    def _safe(self, ack: int) -> Awaitable[None] | None:
        """What ends when everything stored is as safe as a batch wants it."""
        return (
            self.buffer.store.acknowledged()
            if ack in {BUFFER, DELIVERY}
            else self.buffer.store.acknowledged(ack == FSYNC)
        )

    def _awaited(self, chunks: list[Chunk], batch_id: bytes | None) -> Awaitable[None] | None:
        """What ends when the chunks are delivered; those that grow are queued before their time."""
        waiting = self.deliveries.wait(chunks, batch_id)
        for chunk in chunks:
            if chunk.state == STAGED:
                self._flusher.chunk_awaited(chunk)
        return waiting

    def _finish(
        self, tag: str, batch: Batch, rejected: Rejected, chunks: list[Chunk], counted: int = 0
    ) -> Awaitable[None] | None:
        """Count a stored batch, and send what was wrong in it on its way."""
        self.received += batch.count - counted
        safe = self._awaited(chunks, batch.id) if batch.ack == DELIVERY else self._safe(batch.ack)
        if not rejected:
            return safe
        self.rejected += len(rejected)
        emit = self._output.router.emit_error_event
        waits = [wait for wait in [emit(tag, *one) for one in rejected] if wait is not None]
        if safe is not None:
            waits.append(safe)
        return _all(waits)

    def _store(self, pieces: Pieces, batch_id: bytes | None) -> list[Chunk]:
        """Find room for the pieces, store them and return their chunks, or raise BufferOverflow and keep nothing."""
        size = size_of(pieces)
        if not self.buffer.room(size):
            self._make_room(size)
        plan = self.shaper.plan(pieces)
        try:
            full = self.buffer.accept(plan.writes, batch_id)
        except OSError as error:
            self.write_errors.log(self._log, logging.ERROR, "the buffer cannot be written: %s", error)
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                self._send_early()
            if self.action == "block":
                self._flusher.call_later(DISK_RETRY)
            raise BufferOverflow(f"the buffer cannot be written: {error}") from error
        self._settle(plan, full)
        return [write[0] for write in plan.writes]

    def _settle(self, plan: Plan, full: list[Chunk]) -> None:
        """Bring the chunks of a stored plan to their places."""
        buffer = self.buffer
        for chunk in plan.replaced:
            if chunk.state == STAGED and buffer.staged.get(chunk.group) is chunk:
                buffer.seal(chunk)
        for chunk in plan.made:
            older = buffer.staged.get(chunk.group)
            if older is not None:
                buffer.seal(older)
            buffer.stage(chunk)
        touched = full if not self._immediate else [write[0] for write in plan.writes]
        for chunk in touched:
            if chunk.state == STAGED:
                buffer.seal(chunk)
        for chunk in plan.made:
            if chunk.state == STAGED:
                self._flusher.chunk_staged(chunk)
        if buffer.queued:
            self._flusher.chunks_queued()

    def _make_room(self, size: int) -> None:
        """Do what overflow_action says; raises BufferOverflow when there is still no room."""
        buffer = self.buffer
        total = buffer.limits.total
        if size > total and self.action != "block":
            raise BufferOverflow(
                f"a batch of {size} bytes is larger than the buffer (total_limit_size, {total} bytes)", retryable=False
            )
        while self.action == "drop_oldest_chunk" and not buffer.room(size):
            oldest = buffer.oldest()
            if oldest is None:
                break
            if oldest.state == STAGED:
                buffer.seal(oldest)
            self.discarded += oldest.count
            message = "the buffer is full: dropping the oldest chunk %s with %d events"
            self.overflows.log(self._log, logging.WARNING, message, oldest.hex_id, oldest.count)
            buffer.remove(
                oldest, BufferOverflow(f"chunk {oldest.hex_id} was dropped for newer ones", kind="undelivered")
            )
        if buffer.room(size):
            return
        self._send_early()
        raise BufferOverflow(f"the buffer is full: {buffer.used} of {total} bytes are used, {size} more do not fit")

    def _send_early(self) -> None:
        """Send what is staged before its time, when nothing is on its way out that could make room."""
        buffer = self.buffer
        if not buffer.queued and not buffer.in_flight:
            for chunk in list(buffer.staged.values()):
                buffer.seal(chunk)
            self._flusher.chunks_queued()

    def _note_overflow(self, error: BufferOverflow) -> None:
        message = "failed to write into the buffer (overflow_action %s): %s"
        self.overflows.log(self._log, logging.WARNING, message, self.action, error)

    def _admit(self, waiter: _Waiter) -> None:
        """Store a waiting batch; one larger than the whole buffer goes in as far as there is room."""
        batch_id = waiter.batch.id
        if batch_id is not None and self._is_repeated(batch_id, waiter.batch.ack):  # it was let in meanwhile
            return
        total = self.buffer.limits.total
        while size_of(waiter.left) > total:
            part, rest = split(waiter.left, total - self.buffer.used)
            if not part:
                self._make_room(total)
            waiter.chunks += self._store(part, None)
            stored = sum(item.number for _meta, items in part.values() for item in items)
            waiter.counted += stored
            self.received += stored
            waiter.left = rest
        waiter.chunks += self._store(waiter.left, batch_id)


def _shutting_down() -> BufferOverflow:
    return BufferOverflow("the pipeline is shutting down", kind="shutdown")


def _all(waits: list[Awaitable[None]]) -> Awaitable[None] | None:
    if len(waits) < 2:
        return waits[0] if waits else None
    done = asyncio.get_running_loop().create_future()
    follow(asyncio.gather(*waits), done)
    return done
