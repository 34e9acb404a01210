"""The workers of all generations: forked, watched, stopped, reaped.

The crew knows processes; what they mean for a configuration (ready, ended) it tells its master. A worker
that does not stop in time, or does not come back to its loop, is killed: first by SIGABRT, which leaves a
trace of where it was (faulthandler), then by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from headrace.supervisor import osproc
from headrace.supervisor.generation import Child, Generation, exit_text
from headrace.supervisor.heartbeat import Board, Pulse
from headrace.supervisor.program import Identity
from headrace.supervisor.worker import MARGIN, Link, run_child

if TYPE_CHECKING:
    import socket

    from headrace.supervisor.admin.rundir import RunDir
    from headrace.supervisor.events import Events
    from headrace.supervisor.log import EngineLog

_ABORT_TIME: Final = 1.0  # seconds between SIGABRT and SIGKILL
_STOP_SIGNAL: Final = {True: signal.SIGTERM, False: signal.SIGQUIT}
_LONGEST_LOOK: Final = 1.0  # seconds between two looks of the watchdog


class Chief(Protocol):
    """Who is told, and who knows what a fresh worker must let go of."""

    def child_ready(self, child: Child) -> None:
        """The worker serves."""
        ...

    def child_ended(self, child: Child, status: int) -> None:
        """The worker is gone; status as waitpid gives it."""
        ...

    def stranger_ended(self, pid: int) -> None:
        """A child that is no worker is gone."""
        ...

    def foreign_sockets(self, generation: Generation) -> Iterator[socket.socket]:
        """Listeners that do not belong to `generation`."""
        ...

    def leave(self) -> None:
        """In a fresh worker: close what is the master's own."""
        ...


class Crew:
    """All worker processes."""

    def __init__(self, chief: Chief, events: Events, run_dir: RunDir, log: EngineLog) -> None:
        self.log = log
        self.children: dict[int, Child] = {}
        self._chief = chief
        self._events = events
        self._run_dir = run_dir
        self._board = Board()
        # Workers hold the reading end: it comes to its end with the master.
        self._alive_read, self._alive_write = os.pipe2(os.O_CLOEXEC)
        self._look()

    def spawn(self, generation: Generation, index: int) -> None:
        """Fork one worker. Raises OSError when the machine has no room for it."""
        slot = self._board.claim()
        read, write = os.pipe2(os.O_CLOEXEC)
        osproc.flush_standard_streams()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, self._events.numbers)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(read)
            os.close(write)
            self._board.release(slot)
            raise
        if pid == 0:
            status = 1
            try:
                os.close(read)
                status = self._worker_life(generation, index, slot, write)
            finally:
                os._exit(status)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(write)
        child = Child(index, pid, slot, read, Pulse(time.monotonic()), generation)
        self.children[pid] = generation.children[index] = child
        self._events.watch(read, lambda: self._on_pipe(child))

    def _worker_life(self, generation: Generation, index: int, slot: int, pipe: int) -> int:
        self._events.close()
        self._chief.leave()
        os.close(self._alive_write)
        for other in self.children.values():
            if other.pipe >= 0:
                os.close(other.pipe)
        for sock in self._chief.foreign_sockets(generation):
            sock.close()
        identity = Identity(
            index, generation.number, generation.program.process.workers, heir=lambda: self._board.has_heir(slot)
        )
        link = Link(
            beat=lambda: self._board.beat(slot),
            ready=lambda: _say_ready(pipe),
            parent=self._alive_read,
            admin=self._run_dir.socket(index, os.getpid()),
            account=generation.account,
        )
        return run_child(generation.program, identity, generation.open, link)

    def _on_pipe(self, child: Child) -> None:
        if os.read(child.pipe, 1):
            child.ready = True
            self._chief.child_ready(child)
        else:
            self._close_pipe(child)

    def _close_pipe(self, child: Child) -> None:
        if child.pipe >= 0:
            self._events.unwatch(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def reap(self) -> None:
        """Deal with every child that has ended; those that are no workers (of init_by_lua) are only buried."""
        for pid, status in _ended_children():
            child = self.children.pop(pid, None)
            if child is None:
                self._chief.stranger_ended(pid)
                continue
            self._close_pipe(child)
            if child.timer is not None:
                child.timer.cancel()
            self._board.release(child.slot)
            self._run_dir.worker_ended(child.index, child.pid)
            if child.generation.children.get(child.index) is child:
                del child.generation.children[child.index]
            level = "info" if child.stopping and status == 0 else "error"
            self.log.write(level, f"worker process {child.pid} (worker {child.index}) {exit_text(status)}")
            self._chief.child_ended(child, status)

    def tell(self, number: int) -> None:
        """Send a signal to every worker; one that is still starting gets it when its loop runs."""
        for child in self.children.values():
            child.send(number)

    def stop(self, child: Child, *, fast: bool, heir: bool = False) -> None:
        """Tell a worker to stop; it is killed when it is not gone some seconds after its own deadline.

        heir: a worker of another generation serves already, and takes what this one cannot finish.
        """
        child.stopping = True
        if heir:
            self._board.note_heir(child.slot)
        child.send(_STOP_SIGNAL[fast])
        settings = child.generation.program.process
        seconds = settings.fast_timeout if fast else settings.shutdown_timeout
        if child.condemned:
            return
        if child.timer is not None:
            child.timer.cancel()
        child.timer = self._events.later(
            seconds + 3 * MARGIN, lambda: self.kill(child, f"did not stop within {seconds:g} s")
        )

    def hurry(self) -> None:
        """Tell all workers, who are stopping already, to end soon."""
        for child in self.children.values():
            child.send(signal.SIGTERM)

    def kill(self, child: Child, why: str) -> None:
        """End a worker that does not listen."""
        if child.condemned:
            return
        child.condemned = True
        self.log.write("error", f"worker {child.index} (pid {child.pid}) {why}: it is killed")
        child.send(signal.SIGABRT)
        if child.timer is not None:
            child.timer.cancel()
        child.timer = self._events.later(_ABORT_TIME, lambda: child.send(signal.SIGKILL))

    def _look(self) -> None:
        """The watchdog, and the log's."""
        now = time.monotonic()
        pause = _LONGEST_LOOK
        accounts = [child.generation.account for child in self.children.values()]
        self.log.tend(rotate=True, owner=next((account.owner for account in accounts if account), None))
        for child in list(self.children.values()):
            budget = child.generation.program.process.watchdog
            if budget <= 0:
                continue
            pause = min(pause, budget / 4)
            silent = child.pulse.silent(self._board.read(child.slot), now)
            if silent > budget:
                self.kill(child, f"has been away from its loop for {silent:.1f} s (watchdog: {budget:g} s)")
        self._events.later(pause, self._look)


def _ended_children() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _say_ready(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, b"R")
