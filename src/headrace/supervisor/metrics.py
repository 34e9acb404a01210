"""What a worker tells about itself: memory, uptime, how late its loop is, and the figures of its parts."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any, Final

from headrace.core.clock import Timed
from headrace.supervisor.osproc import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.supervisor.program import Engine, Identity

BEAT: Final = 0.5
"""Seconds between two heartbeats."""

_TICK: Final = 0.02  # a deadline may be this late without anything being wrong


class Heart(Timed):
    """Beats for the master's watchdog, and measures by how much each beat came late (seconds)."""

    def __init__(self, clock: Clock, beat: Callable[[], None]) -> None:
        super().__init__()
        self._clock = clock
        self._beat = beat
        self._expected = 0.0
        self.lag = 0.0
        self.lag_max = 0.0

    def start(self) -> None:
        """Beat now, and from now on."""
        self._beat()
        self._next()

    def _next(self) -> None:
        self._expected = self._clock.now() + BEAT
        self._clock.schedule(self, BEAT)

    def expired(self) -> None:
        """One beat."""
        self.lag = max(self._clock.now() - self._expected - _TICK, 0.0)
        self.lag_max = max(self.lag_max, self.lag)
        self._beat()
        self._next()

    def stop(self) -> None:
        """No more beats."""
        self._clock.cancel(self)


def worker_stats(
    engine: Engine, identity: Identity, clock: Clock, heart: Heart, started: float, state: str
) -> dict[str, Any]:
    """All figures of one worker, ready for JSON. Times in seconds, sizes in bytes."""
    return {
        "worker": identity.index,
        "generation": identity.generation,
        "pid": os.getpid(),
        "state": state,
        "uptime": round(clock.now() - started, 3),
        "rss": resident_bytes(),
        "loop": {"lag": round(heart.lag, 4), "lag_max": round(heart.lag_max, 4)},
        "gc_collections": sum(generation["collections"] for generation in gc.get_stats()),
        **engine.stats(),
    }
