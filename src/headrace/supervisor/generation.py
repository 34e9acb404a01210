"""One configuration and its workers: who lives, who is ready, who is to be started again and when."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

    from headrace.supervisor.events import Timer
    from headrace.supervisor.heartbeat import Pulse
    from headrace.supervisor.osproc import Account
    from headrace.supervisor.program import Program

STEADY: Final = 5.0
"""Seconds after which a worker's end is no longer counted with the ends before it."""

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 10.0
"""Bounds of the pause before a worker that keeps ending is started again, in seconds."""


@dataclass(eq=False, slots=True)
class Child:
    """A worker process as its master sees it. pipe: reaches its end with the worker, -1 when it has."""

    index: int
    pid: int
    slot: int
    pipe: int
    pulse: Pulse
    generation: Generation
    born: float = field(default_factory=time.monotonic)
    ready: bool = False
    stopping: bool = False
    condemned: bool = False
    timer: Timer | None = None

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


@dataclass(eq=False, slots=True)
class Generation:
    """The workers of one configuration. open: the listeners they share, by key."""

    number: int
    program: Program
    open: dict[str, socket.socket]
    account: Account | None
    children: dict[int, Child] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    restarts: list[Timer] = field(default_factory=list)
    retired: bool = False

    @property
    def all_ready(self) -> bool:
        """Whether every worker serves."""
        wanted = self.program.process.workers
        return len(self.children) == wanted and all(child.ready for child in self.children.values())

    def delay_after(self, child: Child) -> float:
        """Seconds to wait before the place of an ended worker is filled again."""
        least = self.program.process.restart_interval
        if time.monotonic() - child.born >= STEADY:
            self.failures[child.index] = 0
            return least
        count = self.failures[child.index] = self.failures.get(child.index, 0) + 1
        if count == 1:
            return least
        return max(float(min(FIRST_DELAY * 2 ** (count - 2), LONGEST_DELAY)), least)

    def retire(self) -> None:
        """No worker of it is started any more."""
        self.retired = True
        for timer in self.restarts:
            timer.cancel()
        self.restarts.clear()


def exit_text(status: int) -> str:
    """How a process ended, in nginx's words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"exited on signal {number} ({signal.Signals(number).name})"
        return f"exited on signal {number}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
