"""One counter per worker in memory shared by all processes: a worker that comes back to its loop bumps it.

The master compares counters with its own clock, so nothing depends on two processes agreeing on the time.
A counter is 8 aligned bytes with one writer; slots lie a cache line apart. Beside it the master notes, before it
tells a worker to stop, whether another one takes its place.
"""

from __future__ import annotations

import errno
import mmap
from typing import Final

_SLOT: Final = 64
SLOTS: Final = 4096
"""Workers that can live at once, those of an old generation included."""


class Board:
    """The shared counters; made in the master before the first fork."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._counters = memoryview(mmap.mmap(-1, slots * _SLOT)).cast("Q")
        self._free = list(range(slots - 1, -1, -1))

    def claim(self) -> int:
        """A free slot with its counter at 0; OSError when there is none."""
        if not self._free:
            raise OSError(errno.EAGAIN, "too many workers at once")
        slot = self._free.pop()
        self._counters[slot * 8] = self._counters[slot * 8 + 1] = 0
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back, after its worker has ended."""
        self._free.append(slot)

    def beat(self, slot: int) -> None:
        """Called by the slot's worker."""
        self._counters[slot * 8] += 1

    def note_heir(self, slot: int) -> None:
        """Called by the master: another worker goes on with what the slot's worker leaves."""
        self._counters[slot * 8 + 1] = 1

    def has_heir(self, slot: int) -> bool:
        """Whether another worker goes on with what the slot's worker leaves."""
        return bool(self._counters[slot * 8 + 1])

    def read(self, slot: int) -> int:
        """How often the slot's worker came back to its loop."""
        return self._counters[slot * 8]


class Pulse:
    """What the master saw of one worker's counter, and when it last moved (monotonic seconds)."""

    __slots__ = ("count", "moved")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.moved = now

    def silent(self, count: int, now: float) -> float:
        """Seconds since the counter moved."""
        if count != self.count:
            self.count = count
            self.moved = now
        return now - self.moved
