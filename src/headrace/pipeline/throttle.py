"""Log lines that cannot flood: a few at once, then one per interval with the number left out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


class Throttle:
    """Decides which lines of one kind are written.

    burst: lines in a row before it holds back. interval: seconds between lines after that. `count` is
    the number of all of them, so that nothing disappears from the statistics.
    """

    def __init__(self, burst: int = 3, interval: float = 10.0, now: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._burst = burst
        self._interval = interval
        self._now = now
        self._left = burst
        self._next = 0.0
        self._hidden = 0

    def log(self, logger: logging.Logger, level: int, message: str, *args: object) -> bool:
        """Write a line, or count it as hidden; return whether it was written."""
        self.count += 1
        now = self._now()
        if now >= self._next + self._interval:
            self._left = self._burst
        if self._left <= 0 and now < self._next:
            self._hidden += 1
            return False
        self._left -= 1
        self._next = now + self._interval
        if self._hidden:
            message += " (%d more like this since the last line)"
            args = (*args, self._hidden)
            self._hidden = 0
        logger.log(level, message, *args)
        return True
