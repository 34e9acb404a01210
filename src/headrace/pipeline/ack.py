"""What the answer to a client waits for, and who waits until a batch is delivered.

A source says with `ack_mode` what has to be true of a batch before `emit` is done with it:

    buffer     what the buffers say: the kernel has it (`sync write`), or the disk (`sync fsync`)
    write      the kernel has it: a kill of the process loses nothing
    fsync      the disk has it: a power cut loses nothing. All that wait share one fsync
    delivery   every required destination has it, each output its own or its <secondary>

The mode travels with the batch (`Batch.ack`), so each output on its way answers for itself, and `copy` for all
its stores. With `delivery` a chunk that somebody waits for is queued as soon as a lane can take it, whatever
flush_interval says. Who waits longer than `ack_deadline` gets a BufferOverflow (503, no ack); the batch stays in the
buffer. A client that repeats it then delivers it twice, unless its batches have ids (forward's `chunk` option).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.router import Router
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from headrace.core.clock import Clock
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.event import Batch, Record

BUFFER: Final = 0
WRITE: Final = 1
FSYNC: Final = 2
DELIVERY: Final = 3

MODES: Final = {"buffer": BUFFER, "write": WRITE, "fsync": FSYNC, "delivery": DELIVERY}


class Awaited:
    """A batch that somebody wants delivered: `future` ends when the last of its chunks is, or one never will be."""

    __slots__ = ("future", "left")

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when it fails: that is no error of its own.
        self.future.add_done_callback(_noticed)
        self.left = 0
        for chunk in chunks:
            self.left += 1
            if chunk.waiters is None:
                chunk.waiters = []
            chunk.waiters.append(self)

    def chunk_left(self, error: BaseException | None) -> None:
        """Note that a chunk is delivered, or (error) never will be."""
        self.left -= 1
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif not self.left:
            self.future.set_result(None)


def settle(chunk: Chunk, error: BaseException | None) -> None:
    """Tell everybody who waits for a chunk what became of it."""
    waiters, chunk.waiters = chunk.waiters, None
    for waiter in waiters or ():
        waiter.chunk_left(error)


def answer_synced(waiting: Iterable[asyncio.Future[None]], error: BaseException | None) -> None:
    """Tell those who wait for the disk."""
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(BufferOverflow(f"the buffer cannot be synced: {error}"))


class Deliveries:
    """Who waits for the delivery of batches into one buffer.

    left: the chunks that an earlier run left, which may hold batches that are asked for again.
    """

    def __init__(self, left: Iterable[Chunk]) -> None:
        self._left = list(left)
        self._by_id: dict[bytes, Awaited] = {}
        self._given_up: dict[bytes, None] = {}

    def wait(self, chunks: Iterable[Chunk], batch_id: bytes | None) -> Awaitable[None] | None:
        """Return what ends when chunks that a batch went to are delivered; None when there are none."""
        awaited = Awaited({chunk.id: chunk for chunk in chunks}.values())
        if not awaited.left:
            return None
        if batch_id is not None:
            self._by_id[batch_id] = awaited
            awaited.future.add_done_callback(lambda ended: self._ended(batch_id, ended))
        return _view(awaited.future)

    def again(self, batch_id: bytes) -> Awaitable[None] | None:
        """As `wait`, for a batch that is in the buffer, or was."""
        if (awaited := self._by_id.get(batch_id)) is not None:
            return _view(awaited.future)
        # It may have come to an earlier run, whose chunks do not tell which batches they hold.
        self._left = [chunk for chunk in self._left if chunk.place is not None and chunk.state != "gone"]
        return self.wait(self._left, None)

    def forgives(self, batch_id: bytes) -> bool:
        """Whether a batch was given up, so that its repetition is taken as a new one."""
        if batch_id in self._given_up:
            del self._given_up[batch_id]
            return True
        return False

    def _ended(self, batch_id: bytes, ended: asyncio.Future[None]) -> None:
        self._by_id.pop(batch_id, None)
        if not ended.cancelled() and ended.exception() is not None:
            self._given_up[batch_id] = None
            if len(self._given_up) > _REMEMBERED:
                del self._given_up[next(iter(self._given_up))]


_REMEMBERED: Final = 65_536


class AckRouter(Router):
    """The router of a source whose `ack_mode` is not the buffers' own. `late`: batches that missed the deadline."""

    def __init__(self, inner: Router, mode: int, deadline: float) -> None:
        super().__init__(inner.name, inner.desk, inner.log)
        self.late = 0
        self._inner = inner
        self._mode = mode
        self._deadline = deadline
        self._clock: Clock | None = None
        self._said = Throttle()

    def run_on(self, clock: Clock) -> None:
        """Give it the clock; before the first event."""
        self._clock = clock

    def matches(self, tag: str) -> bool:
        """Whether an output takes this tag."""
        return self._inner.matches(tag)

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Send a batch on its way; what comes back ends when `ack_mode` is fulfilled."""
        batch.ack = self._mode
        waiting = self._inner.emit(tag, batch)
        if waiting is None or self._mode != DELIVERY:
            return waiting
        return self._in_time(waiting, tag)

    def emit_error_event(self, tag: str, time: int, record: Record, error: BaseException) -> Awaitable[None] | None:
        """Send one rejected record to the @ERROR label; never raises."""
        return self._inner.emit_error_event(tag, time, record, error)

    def _in_time(self, waiting: Awaitable[None], tag: str) -> Awaitable[None]:
        assert self._clock is not None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_noticed)
        timer = self._clock.deadline(self._deadline, self._expire, future, tag)
        follow(waiting, future)
        future.add_done_callback(lambda _ended: timer.cancel())
        return future

    def _expire(self, future: asyncio.Future[None], tag: str) -> None:
        if not future.done():
            self.late += 1
            message = f"not delivered within {self._deadline:g} s (ack_deadline); it stays in the buffer"
            self._said.log(self.log, logging.WARNING, "no answer to a client: tag=%r: %s", tag, message)
            future.set_exception(BufferOverflow(message, kind="deadline"))


def follow(source: Awaitable[object] | None, target: asyncio.Future[None]) -> None:
    """End `target` as `source` ends."""
    if source is None:
        target.set_result(None)
        return

    def done(ended: asyncio.Future[object]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if target.done():
            return
        if ended.cancelled():
            target.cancel()
        elif error is not None:
            target.set_exception(error)
        else:
            target.set_result(None)

    asyncio.ensure_future(source).add_done_callback(done)


def _view(future: asyncio.Future[None]) -> asyncio.Future[None]:
    """A future of one's own: who gives up waiting cancels nobody else's."""
    mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    mine.add_done_callback(_noticed)
    follow(future, mine)
    return mine


def _noticed(ended: asyncio.Future[None]) -> None:
    if not ended.cancelled():
        ended.exception()
