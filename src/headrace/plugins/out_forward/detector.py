"""The phi accrual failure detector: how surprising it is that nothing was heard for so long.

phi = -log10(probability that a heartbeat comes later than now), with intervals taken as exponentially
distributed (Hayashibara et al., The phi accrual failure detector, 2004). The mean is weighted: of n intervals
the newest counts n times, the oldest once. As in Fluentd both the mean and the silence are counted from one
second below the configured interval, so that phi_threshold means the same there and here.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

SAMPLES: Final = 1000
"""Intervals that are remembered."""

_FACTOR: Final = 1.0 / math.log(10.0)
_MICRO: Final = 1_000_000


class FailureDetector:
    """The heartbeats of one node. interval: seconds at which they are sent. now: seconds, by any clock."""

    __slots__ = ("_first", "_intervals", "_sum", "_weighted", "interval", "last")

    def __init__(self, interval: float, now: float) -> None:
        self.interval = interval
        self.last: float | None = now
        # Whole microseconds: the sums are exact, however long they run.
        self._first = int(interval * _MICRO)
        self._intervals: deque[int] = deque()
        self._sum = 0
        self._weighted = 0
        self._add(self._first)

    @property
    def samples(self) -> int:
        """Heartbeats that were heard since the start, or since `clear`."""
        return len(self._intervals)

    def heard(self, now: float) -> None:
        """Note that the node lives."""
        self._add(self._first if self.last is None or not self._intervals else int((now - self.last) * _MICRO))
        self.last = now

    def _add(self, interval: int) -> None:
        intervals = self._intervals
        if len(intervals) == SAMPLES:
            # Every weight goes down by one, and with it the oldest interval out.
            self._weighted -= self._sum
            self._sum -= intervals.popleft()
        intervals.append(interval)
        self._sum += interval
        self._weighted += interval * len(intervals)

    def silent_for(self, seconds: float, now: float) -> bool:
        """Whether nothing was heard for more than `seconds`."""
        return self.last is None or now - self.last > seconds

    def phi(self, now: float) -> float:
        """The suspicion: 1 means a chance of 10% that the node lives, 2 of 1%, and so on."""
        count = len(self._intervals)
        if not count or self.last is None:
            return 0.0
        mean = self._weighted / (count * (count + 1) // 2) / _MICRO - self.interval + 1.0
        silence = now - self.last - self.interval + 1.0
        if mean <= 0.0:  # heard of much more often than heartbeats are sent
            return 0.0 if silence <= 0.0 else math.inf
        return _FACTOR * silence / mean

    def clear(self) -> None:
        """Forget everything: what is heard from now on decides whether the node has recovered."""
        self._intervals.clear()
        self._sum = self._weighted = 0
        self.last = None
