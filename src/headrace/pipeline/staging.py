"""When staged chunks are queued: after flush_interval, after the end of their time slice, or because somebody waits.

A heap of moments stands for the staged chunks, so that ten thousand tags cost no more for each chunk than ten. A chunk
that is due while the queue is long enough (queued_chunks_limit_size) stays staged, and grows, until a lane has taken
one. The moment of a time slice is by the wall clock: it is looked at again at least once a minute, in case somebody
sets that clock.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from headrace.pipeline.chunk import STAGED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock, Deadline
    from headrace.pipeline.buffer import Buffer
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.settings import BufferSection

_LOOK: Final = 60.0
_CLOSE: Final = 1e-6
_HELD: Final = 1.0


class Staging:
    """The staged chunks of one output. queued: called when chunks were queued."""

    def __init__(self, buffer: Buffer, section: BufferSection, clock: Clock, queued: Callable[[], None]) -> None:
        self.held = False
        """Chunks are due, but the queue is too long for them."""
        self._buffer = buffer
        self._clock = clock
        self._queued = queued
        self._interval = section.flush_interval if section.effective_mode == "interval" else math.inf
        self._slice = section.keys.timekey
        self._wait = section.timekey_wait
        self._pause = section.flush_thread_interval or 0.0
        self._limit = section.queued_limit
        self._heap: list[tuple[float, int, Chunk]] = []
        self._number = 0
        self._timer: Deadline | None = None
        self._at = math.inf

    def add(self, chunk: Chunk) -> None:
        """Note a new staged chunk."""
        due = self._due(chunk)
        if due < math.inf:
            self._push(due, chunk)
            if due < self._at:
                self._arm(due)

    def hurry(self, chunk: Chunk) -> None:
        """Queue a staged chunk as soon as the queue is short."""
        self._push(-math.inf, chunk)
        self.run()

    def run(self) -> None:
        """Queue the chunks whose time has come, as long as the queue is short."""
        self._at = math.inf
        self.held = False
        heap, buffer = self._heap, self._buffer
        now = self._clock.now()
        some = False
        while heap:
            moment, _number, chunk = heap[0]
            if chunk.state != STAGED:
                heappop(heap)
                continue
            if moment > now + _CLOSE:
                self._arm(moment)
                break
            if moment > -math.inf and (due := self._due(chunk)) > now + _CLOSE:
                heappop(heap)
                self._push(due, chunk)
            elif len(buffer.queued) < self._limit:
                heappop(heap)
                buffer.seal(chunk)
                some = True
            else:
                self.held = True
                self._arm(now + _HELD)  # `run` is called when a lane takes a chunk; the queue may get shorter otherwise
                break
        if some:
            self._queued()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _push(self, due: float, chunk: Chunk) -> None:
        self._number += 1
        heap = self._heap
        heappush(heap, (due, self._number, chunk))
        if len(heap) > 64 + 2 * len(self._buffer.staged):  # most of them were full before their time
            heap[:] = [entry for entry in heap if entry[2].state == STAGED]
            heapify(heap)

    def _due(self, chunk: Chunk) -> float:
        """When (by the clock) a staged chunk must be queued, or looked at again."""
        due = chunk.since + self._interval
        if self._slice is not None and chunk.meta.timekey is not None:
            now = self._clock.now()
            left = chunk.meta.timekey + self._slice + self._wait - self._clock.wall_ns() / 1e9
            due = min(due, now + min(max(left, 0.0), _LOOK))
        return due

    def _arm(self, due: float) -> None:
        now = self._clock.now()
        wait = max(due - now, self._pause, 0.0)
        self._at = now + wait
        if self._timer is None:
            self._timer = self._clock.deadline(wait, self.run)
        else:
            self._timer.reschedule(wait)
