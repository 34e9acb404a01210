"""Flush lanes: flush_thread_count tasks that take chunks and deliver them.

A lane that finds no chunk, or a closed gate, sleeps until it is woken: by a chunk that is queued, or by
the one timer that stands for the next moment at which something may be tried. It never sleeps while
there is something to do. A lane whose output did not wait for anything gives way before it takes the next
chunk: outputs that never wait must not keep the loop from everybody else. A lane that dies of anything but
its cancellation is logged and goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from headrace.core.clock import Clock
    from headrace.pipeline.chunk import Chunk


class Lane:
    """One lane. `state` belongs to the output: its connection, for example.

    chunks, events, bytes: delivered. failures: deliveries that failed. restarts: times it died.
    """

    __slots__ = ("bytes", "chunk", "chunks", "events", "failures", "index", "restarts", "spare", "state", "turn")

    def __init__(self, index: int, *, spare: Lane | None = None) -> None:
        self.index = index
        self.state: Any = None
        self.spare = spare
        """The lane as the secondary sees it, with a state of its own."""
        self.chunk: Chunk | None = None
        """What it delivers now."""
        self.chunks = 0
        self.events = 0
        self.bytes = 0
        self.failures = 0
        self.restarts = 0
        self.turn = 0
        """The turn of the loop in which it took its chunk, as `Lanes` counts them."""

    def stats(self) -> dict[str, int]:
        """Return the lane's counters."""
        return {
            "chunks": self.chunks,
            "events": self.events,
            "bytes": self.bytes,
            "failures": self.failures,
            "restarts": self.restarts,
        }


class Lanes:
    """The lanes of one output.

    job(lane): takes a chunk and returns what delivers it, or None when there is nothing to do.
    lost(lane): called after a lane died with a chunk. rest: seconds a lane rests after a chunk.
    """

    def __init__(
        self,
        count: int,
        *,
        job: Callable[[Lane], Awaitable[None] | None],
        lost: Callable[[Lane, BaseException], None],
        clock: Clock,
        log: logging.Logger,
        rest: float | None = None,
    ) -> None:
        self.all = [Lane(index, spare=Lane(index)) for index in range(count)]
        self._job = job
        self._lost = lost
        self._clock = clock
        self._log = log
        self._rest = rest
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._turn = 1
        self._counting = False

    def start(self) -> None:
        """Start one task for each lane."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._supervise(lane), name=f"lane {lane.index}") for lane in self.all]

    def wake(self, count: int = 1) -> None:
        """Wake sleeping lanes."""
        idle = self._idle
        while count > 0 and idle:
            future = idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Wake every sleeping lane."""
        self.wake(len(self._idle))

    @property
    def busy(self) -> int:
        """Lanes that deliver a chunk now."""
        return sum(lane.chunk is not None for lane in self.all)

    async def stop(self, grace: float = 1.0) -> None:
        """Cancel all lanes and wait for them, `grace` seconds at most: one that does not end is left behind."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _done, left = await asyncio.wait(self._tasks, timeout=grace)
            if left:
                self._log.error("%d flush lanes did not end when they were cancelled", len(left))

    async def _supervise(self, lane: Lane) -> None:
        while not self._stopping:
            try:
                await self._run(lane)
            except asyncio.CancelledError as error:
                if cancelled_from_outside():
                    raise
                self._died(lane, error)
            except BaseException as error:  # noqa: BLE001 - a lane outlives whatever a plugin raises
                self._died(lane, error)

    def _died(self, lane: Lane, error: BaseException) -> None:
        lane.restarts += 1
        self._log.critical("flush lane %d died and is restarted: %r", lane.index, error, exc_info=error)
        self._lost(lane, error)
        lane.chunk = None

    async def _run(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            work = self._job(lane)
            if work is None:
                future = loop.create_future()
                self._idle.append(future)
                await future
                continue
            lane.turn = self._turn
            if not self._counting:
                self._counting = True
                loop.call_soon(self._next_turn)
            await work
            lane.chunk = None
            if self._rest:
                await self._clock.sleep(self._rest)
            elif lane.turn == self._turn:
                await asyncio.sleep(0)

    def _next_turn(self) -> None:
        self._turn += 1
        self._counting = False


def cancelled_from_outside() -> bool:
    """Whether this task itself was cancelled, rather than something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
