"""When a chunk is tried again, and when it is given up.

Two clocks run, and they answer different questions.

*The chunk* counts its own attempts. It is given up after retry_max_times retries, or when retry_timeout
has passed since its first failure (where a <secondary> waits for it: after the part retry_secondary_threshold
of retry_timeout, or of the time that retry_max_times retries take). One bad chunk is given up alone.

*The gate* of an output decides when the destination is tried at all. The first failure closes it; after
the back-off it lets one try for each lane through (a window), each with a chunk that was not yet tried in
this window. However many of them fail, the back-off grows by one step; the first success opens the gate.
So ten thousand chunks do not knock at a dead host, and eight lanes that fail together count once.

While a destination has used up all retries, chunks that were never tried go to the <secondary>, if there
is one, without trying it; those that were keep their own count.

A chunk that fails again although others were delivered in between is the chunk's fault: it waits by its
own count, and the gate stays open.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.settings import BufferSection

CLOSED: Final = -1
OPEN: Final = 0

_RANDOM_WIDTH: Final = 0.125
_LONGEST: Final = 30 * 86400.0
_SHORTEST: Final = 0.05
"""Seconds between tries that have no last one: retry_wait 0 must not knock as fast as the processor can."""


class RetryPolicy:
    """The retry_* parameters of a buffer. Times are in seconds."""

    def __init__(self, section: BufferSection, *, has_secondary: bool) -> None:
        self.periodic = section.retry_type == "periodic"
        self.first = section.retry_wait
        self.base = section.retry_exponential_backoff_base
        self.longest = section.retry_max_interval
        self.randomize = section.retry_randomize
        self.forever = section.retry_forever
        self.max_times = None if section.retry_forever else section.retry_max_times
        self.timeout = math.inf if section.retry_forever else section.retry_timeout
        self.has_secondary = has_secondary
        self.limit = self.timeout
        """Seconds of failing after which the primary is left."""
        if has_secondary:
            # As in Fluentd, the part is that of the time which all retries take, where they end before retry_timeout.
            self.limit = min(self.timeout, self._all_waits()) * section.retry_secondary_threshold

    def wait(self, retry: int) -> float:
        """Seconds before retry number `retry` (1 is the first)."""
        if self.max_times is not None:
            retry = min(retry, max(self.max_times, 1))
        seconds = self._plain_wait(retry)
        if self.randomize and retry > 1:
            seconds += seconds * _RANDOM_WIDTH * (2 * random.random() - 1)  # noqa: S311 - spreads load, hides nothing
        return max(seconds, _SHORTEST) if self.max_times is None else seconds

    def _plain_wait(self, retry: int) -> float:
        if self.periodic:
            seconds = self.first
        else:
            try:
                seconds = self.first * self.base ** (retry - 1)
            except OverflowError:
                seconds = _LONGEST
        return min(seconds, _LONGEST if self.longest is None else self.longest)

    def _all_waits(self) -> float:
        """Seconds that all retries take, without chance; infinity where their number has no limit."""
        if self.max_times is None:
            return math.inf
        total = 0.0
        for retry in range(1, self.max_times + 1):
            total += self._plain_wait(retry)
            if total >= self.timeout:
                break
        return total

    def gives_up(self, chunk: Chunk, now: float) -> bool:
        """Whether a chunk that has just failed is not tried again by the primary."""
        if self.max_times is not None and chunk.attempts > self.max_times:
            return True
        return chunk.failed_since is not None and now - chunk.failed_since >= self.limit

    def secondary_gives_up(self, chunk: Chunk, now: float) -> bool:
        """Whether a chunk that the secondary has just failed to deliver goes to the backup."""
        if self.max_times is not None and chunk.secondary_attempts > self.max_times:
            return True
        return chunk.failed_since is not None and now - chunk.failed_since >= self.timeout


class Gate:
    """Whether the destination may be tried now.

    step: windows that failed in a row, the failure that closed the gate included; 0 is open. window: number
    of the current window, which counts up at every change. next_time: when the next window begins.
    """

    def __init__(self, policy: RetryPolicy, tries: int) -> None:
        self.policy = policy
        self.step = 0
        self.window = 1
        self.next_time = 0.0
        self.started: float | None = None
        self.successes = 0
        self._tries = tries
        self._left = 0
        self._failed_window = 0

    def admit(self, now: float) -> int:
        """Ask for one try: OPEN, CLOSED, or the number of the window it belongs to."""
        if not self.step:
            return OPEN
        if now >= self.next_time:
            self.window += 1
            self._left = self._tries
            self.next_time = math.inf
        if self._left > 0:
            self._left -= 1
            return self.window
        return CLOSED

    @property
    def probing(self) -> bool:
        """Whether the try that was just admitted is the first of its window."""
        return self._left == self._tries - 1

    def begin_last(self, now: float) -> None:
        """Begin the next window now, unless one is under way: the process ends, and no later one comes."""
        if self.step and self.next_time != math.inf:
            self.next_time = min(self.next_time, now)

    def give_back(self) -> None:
        """Return a try that nobody needed."""
        self._left += 1

    @property
    def opens_at(self) -> float:
        """When `admit` may say yes: 0 for now, infinity while a try is under way."""
        return 0.0 if not self.step or self._left > 0 else self.next_time

    def succeeded(self) -> bool:
        """Note a delivery; return whether it opened the gate."""
        self.successes += 1
        if not self.step:
            return False
        self.step = 0
        self.window += 1
        self.started = None
        self._left = 0
        return True

    def failed(self, chunk: Chunk, now: float, attempts: int | None = None) -> None:
        """Note a failed delivery and set when the chunk is due. attempts: of the chunk here, this one included."""
        attempts = chunk.attempts if attempts is None else attempts
        alone = not self.step and attempts > 1 and chunk.epoch != self.successes
        chunk.epoch = self.successes
        if alone:
            chunk.due = now + self.policy.wait(attempts)
            return
        if chunk.window >= self._failed_window or not self.step:
            self._close(now)
        chunk.due = min(self.next_time, now + self.policy.wait(attempts))

    def _close(self, now: float) -> None:
        if self.started is None:
            self.started = now
        self.step += 1
        # Tries of the window that just failed stay valid: each chunk in it counts its own attempt.
        self._failed_window = self.window + 1
        self.next_time = now + self.policy.wait(self.step)
        end = self.started + self.policy.limit
        if now < end < self.next_time:
            self.next_time = end

    @property
    def exhausted_at(self) -> float:
        """From when on the destination has failed so long that new chunks pass it by to the secondary."""
        if self.policy.forever or self.started is None:
            return math.inf
        if self.policy.max_times is not None and self.step > max(self.policy.max_times, 1):
            return 0.0
        return self.started + self.policy.limit

    def exhausted(self, now: float) -> bool:
        """Whether that is so now."""
        return bool(self.step) and now >= self.exhausted_at
