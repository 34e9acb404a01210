"""A bound for patterns that take for ever on some text: the text is given up, not the worker.

Both engines of patterns look for signals while they match. So an alarm that rings within one text ends the match;
whoever reads the text treats it as one that does not match. Signals reach the main thread only, which is where a
worker's loop runs; in another thread there is no bound.

Two ways:
- `guarded`, and whoever counts `turn` himself: nobody set a limit. One timer of the process's own CPU time looks every
  INTERVAL whether the text is still the one of the last look, so a text costs no system call, a text that is given up
  took one to two intervals of CPU, and a process that has nothing to do is not woken;
- `limited`: `timeout` of a <parse> section, by a timer of its own for each text.
"""

from __future__ import annotations

import atexit
import os
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")
    A = TypeVar("A")

INTERVAL: Final = 2.0
"""Seconds of CPU between two looks."""


class OverdueError(Exception):
    """The text at hand has had its time."""

    def __str__(self) -> str:
        return "a pattern took too long on this text"


class Guard:
    """The alarms of this process. busy: a text is being read. turn: which one, counted by whoever reads."""

    def __init__(self) -> None:
        self.busy = False
        self.turn = 0
        self.armed = False
        self._seen = -1
        self._limited = False

    def guarded(self, read: Callable[[A], T], late: Callable[[A], T]) -> Callable[[A], T]:
        """`read` with the common bound; what is overdue goes to `late`."""

        def run(text: A) -> T:
            self.turn += 1
            try:
                self.busy = True
                if not self.armed:
                    self.arm()
                return read(text)
            except OverdueError:
                self.busy = False
                return late(text)
            finally:
                self.busy = False

        return run

    def limited(self, read: Callable[[A], T], late: Callable[[A], T], seconds: float) -> Callable[[A], T]:
        """`read` with a limit of its own, in seconds."""
        least = max(seconds, 1e-6)

        def run(text: A) -> T:
            try:
                self._limited = True
                _set(signal.ITIMER_REAL, signal.SIGALRM, self._out, least)
                return read(text)
            except OverdueError:
                return late(text)
            finally:
                self._limited = False
                _set(signal.ITIMER_REAL, signal.SIGALRM, self._out, 0.0)

        return run

    def arm(self) -> None:
        """Start the common timer; it ends by itself when nothing is read any more."""
        self.armed = True
        self._seen = -1
        _set(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, self._ring, INTERVAL, INTERVAL)

    def disarm(self) -> None:
        """Stop the common timer."""
        if self.armed:
            self.armed = False
            _set(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, self._ring, 0.0)

    def forget(self) -> None:
        """There is no timer."""
        self.busy = self._limited = self.armed = False

    def _ring(self, _number: int, _frame: Any) -> None:
        if not self.busy:
            self.disarm()
        elif self.turn == self._seen:
            self._seen = -1
            raise OverdueError
        else:
            self._seen = self.turn

    def _out(self, _number: int, _frame: Any) -> None:
        if self._limited:
            raise OverdueError


def _set(timer: int, number: signal.Signals, handler: Any, seconds: float, interval: float = 0.0) -> None:
    try:
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)
        signal.setitimer(timer, seconds, interval)
    except ValueError:  # not the main thread
        return


guard: Final = Guard()
"""One for all: a process has one alarm of each kind."""

# At the end of the interpreter an alarm would meet the system's own handler, which ends the process; and a child has
# no timer, whatever its parent has.
atexit.register(guard.disarm)
os.register_at_fork(after_in_child=guard.forget)
