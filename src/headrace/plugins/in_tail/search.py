"""When files are looked for: every refresh_interval, and soon after something has appeared."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.pipeline.event import NS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from headrace.core.clock import Clock, Deadline
    from headrace.plugins.in_tail.planner import Planner, Target

SLICE: Final = 0.004
"""Seconds of looking for files after which others have the loop."""
REST: Final = 10
"""A search that something has set off comes not before this many times the last one took."""
SOON: Final = 0.02
"""Seconds after which names that have appeared are looked for."""


class Search:
    """Searches of one source, one at a time. `took`: seconds of the last one."""

    def __init__(self, planner: Planner, clock: Clock, interval: float) -> None:
        self._planner = planner
        self._clock = clock
        self._interval = interval
        self._wanted = asyncio.Event()
        self._soon_timer: Deadline | None = None
        self.took = 0.0

    async def found(self) -> AsyncIterator[Target]:
        """Yield the files that are there, giving way to others in between."""
        now = self._clock.now
        begin = began = now()
        for target in self._planner.targets(self._clock.wall_ns() // NS):
            yield target
            if now() - began > SLICE:
                await self._clock.sleep(0)
                began = now()
        self.took = now() - begin

    def soon(self) -> None:
        """Something may have appeared."""
        if self._soon_timer is None:
            self._soon_timer = self._clock.deadline(max(SOON, REST * self.took), self._due)

    def _due(self) -> None:
        self._soon_timer = None
        self._wanted.set()

    async def run(self, search: Callable[[], Awaitable[None]]) -> None:
        """Search for ever, for the first time after an interval."""
        while True:
            timer = self._clock.deadline(self._interval, self._wanted.set)
            await self._wanted.wait()
            timer.cancel()
            self._wanted.clear()
            await search()

    def stop(self) -> None:
        """Nothing is to happen later."""
        if self._soon_timer is not None:
            self._soon_timer.cancel()
