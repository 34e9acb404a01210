"""Virtual time: the interface of `core.clock.Clock`, moved by the test and by nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.core.clock import Clock, Timed, Wheel

if TYPE_CHECKING:
    from headrace.core.clock import Deadline

_TICK = 1e-6  # deadlines fire in the moment they name
_TURNS = 20  # of the loop, in which tasks react to one deadline before the next one fires


class FakeClock(Clock):
    """A clock that stands still until `advance` or `elapse` moves it.

    start: what `now()` says at first (seconds). wall: what `wall_ns()` says at first (nanoseconds).
    Exceptions that deadlines raise are raised by `advance`.
    """

    __slots__ = ("_failures", "_time", "_wall_offset")

    def __init__(self, start: float = 1000.0, wall: int = 1_700_000_000_000_000_000) -> None:
        self._time = start
        self._wall_offset = wall - round(start * 1e9)
        self._wheel = Wheel(_TICK, self._keep)
        self._failures: list[Exception] = []
        self.now = self._now
        self.wall_ns = self._wall

    def _now(self) -> float:
        return self._time

    def _wall(self) -> int:
        return self._wall_offset + round(self._time * 1e9)

    def _keep(self, error: Exception, _timed: Timed) -> None:
        self._failures.append(error)

    def _arm(self) -> None:
        """Nothing wakes a clock that stands still."""

    def _step(self, target: float) -> bool:
        """Go to the next moment that something is filed under, at most to `target`; False when there."""
        due = self._wheel.next_due()
        reached = due is None or due > target
        self._time = target if reached or due is None else max(self._time, due)
        self._wheel.expire(self._time)
        if self._failures:
            raise self._failures.pop(0)
        return not reached

    def advance(self, seconds: float) -> None:
        """Move on, firing the deadlines on the way in their order, each at its own moment."""
        target = self._time + seconds
        while self._step(target):
            pass

    async def elapse(self, seconds: float) -> None:
        """As `advance`, and let the tasks that a deadline wakes run before the next one fires."""
        target = self._time + seconds
        await settle()
        while self._step(target):
            await settle()
        await settle()

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline: Deadline = self.deadline(seconds, _wake, future)
        try:
            await future
        finally:
            deadline.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def settle(turns: int = _TURNS) -> None:
    """Let every task that can go on do so: some turns of the loop, no time."""
    for _ in range(turns):
        await asyncio.sleep(0)
