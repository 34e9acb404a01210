"""The master's loop: a selector, signals through a wake-up descriptor, and timers. No asyncio.

Python calls a signal handler between two bytecodes of the main thread; here the handler only notes the
number, and the wake-up descriptor ends the wait, so that everything else happens in `run_once`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from headrace.supervisor.osproc import unblock_signals

_LONGEST_WAIT: Final = 3600.0


class Timer:
    """A call at a moment to come; cancel() takes it back."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call."""
        self.call = None


class Events:
    """Signals, descriptors and timers of one process."""

    def __init__(self, signals: Iterable[int]) -> None:
        self._selector = selectors.DefaultSelector()
        self._signals: deque[int] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakeups)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.numbers = tuple(signals)
        for number in self.numbers:
            signal.signal(number, self._note)
        unblock_signals()

    def _note(self, number: int, _frame: object) -> None:
        self._signals.append(number)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        """Call when `fd` becomes readable or its other end is closed."""
        self._selector.register(fd, selectors.EVENT_READ, call)

    def unwatch(self, fd: int) -> None:
        """Stop watching."""
        self._selector.unregister(fd)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once in `seconds`."""
        timer = Timer(time.monotonic() + seconds, call)
        heapq.heappush(self._timers, (timer.due, next(self._serial), timer))
        return timer

    def run_once(self, on_signal: Callable[[int], None]) -> None:
        """Wait for something and deal with it."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        wait = _LONGEST_WAIT
        if self._signals:
            wait = 0.0
        elif self._timers:
            wait = max(self._timers[0][0] - time.monotonic(), 0.0)
        for key, _mask in self._selector.select(wait):
            key.data()
        while self._signals:
            on_signal(self._signals.popleft())
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()

    def end(self) -> None:
        """Let signals do nothing from now on: those that come while the interpreter ends would kill the process."""
        for number in self.numbers:
            signal.signal(number, signal.SIG_IGN)

    def close(self, *, restore: bool = True) -> None:
        """Let go of all descriptors; restore: signals get their default action again (in a fresh child)."""
        signal.set_wakeup_fd(-1)
        if restore:
            for number in self.numbers:
                signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
