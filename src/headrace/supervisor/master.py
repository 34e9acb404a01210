"""The master process: it opens the listeners, forks workers, and then only supervises. It has no loop.

Rules:
- A configuration is loaded, checked and given its listeners before a single worker of it is forked; when
  any of that fails in a reload, the old generation goes on as if nothing had happened.
- A new generation takes over when all its workers serve; only then are the old ones told to stop. The
  listeners are never closed in between, so no connection is refused.
- A reload that is asked for during a reload is done once, after it.
- A zero-downtime restart is a new master that gets our listeners (succession.py); we end when it serves.

Signals (nginx, "Controlling nginx"; Fluentd, "Signals"): TERM and INT stop fast, QUIT gracefully, HUP
reloads, USR2 restarts without downtime, USR1 opens logs anew and flushes, CONT lets every worker write a dump.
Where the operator is to decide when the old master goes (nginx's upgrade on the fly), USR2 leaves it, its pid
in PID_FILE.oldbin; then WINCH ends its workers, HUP starts them again, QUIT ends it.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from headrace.errors import Error
from headrace.supervisor import osproc, pidfile
from headrace.supervisor.admin.rundir import RunDir
from headrace.supervisor.crew import Crew
from headrace.supervisor.events import Events, Timer
from headrace.supervisor.generation import Child, Generation, exit_text
from headrace.supervisor.listeners import close_all, open_all
from headrace.supervisor.program import Identity
from headrace.supervisor.rpc import RpcServer
from headrace.supervisor.succession import Legacy, Succession
from headrace.supervisor.worker import CANNOT_START, Link, Worker

if TYPE_CHECKING:
    from headrace.supervisor.program import Program

START_LIMIT: Final = 60.0
"""Seconds the workers of a reload may take until they serve."""

_NO_ROOM: Final = 1.0  # seconds until a fork is tried again that the system refused
_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGCHLD,
)

Sockets = dict[str, socket.socket]


class Master:
    """One master. program: the first configuration; load: builds the next for a reload, raises when it cannot."""

    def __init__(self, program: Program, load: Callable[[], Program]) -> None:
        self._load = load
        self._log = program.log
        self._first = program
        self._current: Generation | None = None
        self._starting: Generation | None = None
        self._start_timer: Timer | None = None
        self._reload_again = False
        self._restart_again = False
        self._legacy: Legacy | None = None
        self._stopping: bool | None = None  # None: no; else whether fast
        self._failure: str | None = None
        self._generations = 0
        self._pid_file = pidfile.PidFile(os.getpid)
        self._daemon: osproc.Daemon | None = None
        self._started = time.time()
        self._run_dir: RunDir
        self._events: Events
        self._crew: Crew
        self._rpc: RpcServer
        self._succession: Succession | None = None

    def run(self, *, output: int | None = None, errors: int | None = None) -> int:
        """Serve until told to stop; the exit status.

        output, errors: where the standard streams of a daemon go (None: nowhere). Raises Error when the first
        configuration cannot be served; in the daemon such an error is logged, and its starter exits with 1.
        """
        program, settings = self._first, self._first.process
        osproc.raise_descriptor_limit(settings.rlimit_nofile)
        account = self._account(program)
        legacy = self._legacy = Legacy.found()
        sockets = open_all(program.listens(), legacy.sockets if legacy else {}, self._log)
        try:
            program.prepare(account.owner if account else None)
            if settings.daemon and legacy is None:  # else its starter is in the background already
                self._daemon = osproc.Daemon.detach(output=output, errors=errors)
            if legacy is None or settings.upgrade_by_hand:
                self._pid_file.write(program.process)
            return self._supervise(program, sockets, account)
        except Error as error:
            if self._daemon is None:
                raise
            self._log.write("fatal", str(error))
            return 1
        finally:
            self._close(sockets)
            self._pid_file.remove()

    def _supervise(self, program: Program, sockets: Sockets, account: osproc.Account | None) -> int:
        self._run_dir = RunDir(os.getpid())
        if self._run_dir.problem:
            self._log.write("warn", self._run_dir.problem)
        try:
            if not program.process.master:
                return self._run_alone(program, sockets, account)
            self._events = Events(_SIGNALS)
            self._crew = Crew(self, self._events, self._run_dir, self._log)
            self._succession = Succession(self, self._events, self._pid_file, self._log)
            self._rpc = RpcServer(self._events, self._log)
            self._begin(program, sockets, account)
            while self._stopping is None or self._crew.children:
                self._events.run_once(self._on_signal)
            self._events.end()
            self._rpc.close()
            if self._current is not None:
                self._close(self._current.open)
            self._log.write("info", "exit")
            if self._failure is not None:
                raise Error(self._failure, kind="start")
            return 0
        finally:
            self._run_dir.remove()

    def _close(self, sockets: Sockets) -> None:
        """Close listeners at the end; the files of unix sockets stay when another master listens there."""
        taken = self._succession is not None and self._succession.taken
        if taken or (self._legacy is not None and self._current is None):
            for sock in sockets.values():
                sock.close()
        else:
            close_all(sockets.values())

    def _run_alone(self, program: Program, sockets: Sockets, account: osproc.Account | None) -> int:
        self._note_facts(program, 1)
        link = Link(
            ready=lambda: self._serves(program),
            admin=self._run_dir.socket(0, os.getpid()),
            account=account,
        )
        # The worker closes the listeners when it stops; other descriptors stay for the removal of unix sockets.
        spare = [socket.socket(fileno=os.dup(sock.fileno())) for sock in sockets.values()]
        try:
            return Worker(program, Identity(0, 1, 1), sockets, link).run()
        finally:
            close_all(spare)

    def _account(self, program: Program) -> osproc.Account | None:
        """Who the workers of a program become. Raises Error when there is no such user."""
        settings = program.process
        who = osproc.account(settings.user, settings.group)
        library = os.path.dirname(os.__file__)
        if who is None or osproc.may_enter(who, library):
            return who
        if settings.user_is_default:
            program.log.write("warn", f"workers stay root: the user {who.name} cannot read Python's library {library}")
            return None
        program.log.write("warn", f"the user {who.name} cannot read Python's library {library}: expect faults")
        return who

    def _note_facts(self, program: Program, generation: int) -> None:
        self._run_dir.note(
            {
                "pid": os.getpid(),
                "started": self._started,
                "generation": generation,
                "sources": list(program.sources),
                "worker_processes": program.process.workers,
            }
        )

    def _begin(self, program: Program, sockets: Sockets, account: osproc.Account | None) -> None:
        """Fork the workers of a new generation."""
        self._generations += 1
        generation = self._starting = Generation(self._generations, program, sockets, account)
        if account is not None:
            self._run_dir.give_to(account.uid, account.gid)
        if self._current is None:
            self._note_facts(program, generation.number)
        # What is there now is shared by all workers as long as no collector writes to it.
        gc.collect()
        gc.freeze()
        try:
            for index in range(program.process.workers):
                self._crew.spawn(generation, index)
        except OSError as error:
            self._give_up(generation, f"cannot start a worker: {error}")
            return
        if self._current is not None:
            self._start_timer = self._events.later(
                START_LIMIT, lambda: self._give_up(generation, f"not ready after {START_LIMIT:g} s")
            )

    def _commit(self, new: Generation) -> None:
        """All workers of the new generation serve: the old one goes."""
        old = self._current
        self._current, self._starting = new, None
        self._rpc.serve(new.program.process.rpc, new.open)
        if self._start_timer is not None:
            self._start_timer.cancel()
        self._log = self._crew.log = self._rpc.log = new.program.log
        if self._succession is not None:
            self._succession.log = self._log
        self._note_facts(new.program, new.number)
        if old is None:
            self._serves(new.program)
        else:
            old.retire()
            for child in list(old.children.values()):
                self._crew.stop(child, fast=False, heir=True)
            close_all(_apart(old.open, new.open))
            try:
                self._pid_file.write(new.program.process)
            except Error as error:
                self._log.write("error", str(error))
            old.program.close()
            gc.unfreeze()
            self._log.write("info", f"generation {new.number} serves, the workers of {old.number} finish")
        self._reload_if_asked()

    def _serves(self, program: Program) -> None:
        """The first generation serves: whoever waits for that is told."""
        if self._daemon is not None:
            self._daemon.ready()
        legacy, self._legacy = self._legacy, None
        if legacy is None:
            return
        try:
            self._pid_file.write(program.process)
        except Error as error:
            self._log.write("error", str(error))
        if self._current is not None:
            close_all(_apart(legacy.sockets, self._current.open))
        legacy.serve()

    def _give_up(self, generation: Generation, why: str) -> None:
        """A generation does not come up."""
        if self._starting is not generation:
            return
        self._starting = None
        generation.retire()
        for child in list(generation.children.values()):
            self._crew.stop(child, fast=True)
        if self._current is None:
            self._failure = why
            self._stop_all(fast=True)
            return
        if self._start_timer is not None:
            self._start_timer.cancel()
        close_all(_apart(generation.open, self._current.open))
        generation.program.close()
        self._log.write("error", f"reload failed, the old configuration stays: {why}")
        self._reload_if_asked()

    def _restart(self) -> None:
        """Start a new master that takes the listeners over."""
        if self._stopping is not None:
            return
        if self._starting is not None or self._current is None:
            self._restart_again = True
            return
        assert self._succession is not None
        self._succession.begin(self._current.open, by_hand=self._current.program.process.upgrade_by_hand)

    def succeeded(self) -> None:
        """A new master serves and this one is to go (told by the succession)."""
        self._rpc.serve(None, {})
        self._stop_all(fast=False, heir=True)

    def _rest(self) -> None:
        """End the workers and stay (nginx's WINCH); a reload starts them again."""
        if self._current is None or not self._current.program.process.upgrade_by_hand:
            return
        self._current.retire()
        for child in list(self._current.children.values()):
            self._crew.stop(child, fast=False)

    def _reload_if_asked(self) -> None:
        if self._restart_again:
            self._restart_again = False
            self._restart()
        if self._reload_again:
            self._reload_again = False
            self._reload()

    def _reload(self) -> None:
        if self._stopping is not None:
            return
        if self._starting is not None or self._current is None:
            self._reload_again = True
            return
        self._log.write("info", "reconfiguring")
        fresh: Sockets = {}
        try:
            program = self._load()
            account = self._account(program)
            fresh = open_all(program.listens(), self._current.open, self._log, patient=False)
            program.prepare(account.owner if account else None)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new configuration, the old one serves
            close_all(_apart(fresh, self._current.open))
            text = str(error) if isinstance(error, (Error, OSError)) else traceback.format_exc()
            self._log.write("error", f"reload failed, the old configuration stays: {text}")
            return
        self._begin(program, fresh, account)

    def child_ready(self, child: Child) -> None:
        """A worker serves (told by the crew)."""
        if self._starting is child.generation and child.generation.all_ready:
            self._commit(child.generation)

    def child_ended(self, child: Child, status: int) -> None:
        """A worker is gone (told by the crew): its place is filled again, unless that is no use."""
        generation = child.generation
        if self._stopping is not None or generation.retired:
            return
        if generation is self._starting:
            never = os.WIFEXITED(status) and os.WEXITSTATUS(status) == CANNOT_START
            if never or self._current is not None:
                self._give_up(generation, f"worker {child.index} {exit_text(status)}")
                return
        delay = generation.delay_after(child)
        if delay == 0.0:
            self._respawn(generation, child.index)
            return
        self._log.write("warn", f"worker {child.index} ended: next try in {delay:g} s")
        generation.restarts.append(self._events.later(delay, lambda: self._respawn(generation, child.index)))

    def _respawn(self, generation: Generation, index: int) -> None:
        if generation.retired or self._stopping is not None:
            return
        try:
            self._crew.spawn(generation, index)
        except OSError as error:
            self._log.write("error", f"cannot start worker {index}: {error}; next try in {_NO_ROOM:g} s")
            generation.restarts.append(self._events.later(_NO_ROOM, lambda: self._respawn(generation, index)))

    def foreign_sockets(self, generation: Generation) -> Iterator[socket.socket]:
        """Listeners of other generations (asked by the crew, in a fresh worker)."""
        for other in (self._current, self._starting):
            if other is not None and other is not generation:
                yield from _apart(other.open, generation.open)

    def leave(self) -> None:
        """In a fresh worker: the starter of the daemon must not wait for it, and the master's calls are not its own."""
        self._rpc.leave()
        for generation in (self._current, self._starting):
            rpc = generation.program.process.rpc if generation is not None else None
            if generation is not None and rpc is not None and rpc.key in generation.open:
                generation.open[rpc.key].close()
        if self._daemon is not None:
            self._daemon.close()
        if self._legacy is not None:
            self._legacy.close()
        if self._succession is not None:
            self._succession.close()

    def stranger_ended(self, pid: int) -> None:
        """A child that is no worker is gone (told by the crew)."""
        if self._succession is not None:
            self._succession.ended(pid)

    def _stop_all(self, *, fast: bool, heir: bool = False) -> None:
        if self._stopping and fast:
            self._crew.hurry()
            return
        self._stopping = fast or bool(self._stopping)
        if self._succession is not None:
            self._succession.call_off()
        for generation in (self._current, self._starting):
            if generation is not None:
                generation.retire()
        for child in list(self._crew.children.values()):
            self._crew.stop(child, fast=fast, heir=heir)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._crew.reap()
            return
        self._log.write("info", f"signal {int(number)} ({signal.Signals(number).name}) received")
        if number in {signal.SIGTERM, signal.SIGINT}:
            self._stop_all(fast=True)
        elif number == signal.SIGQUIT:
            if self._stopping is None:
                self._stop_all(fast=False)
        elif number == signal.SIGHUP:
            self._reload()
        elif number == signal.SIGUSR2:
            self._restart()
        elif number == signal.SIGWINCH:
            self._rest()
        elif number == signal.SIGUSR1:
            self._reopen()
        elif number == signal.SIGCONT:
            self._crew.tell(signal.SIGCONT)

    def _reopen(self) -> None:
        generation = self._current or self._starting
        if generation is not None:
            who = generation.account
            try:
                generation.program.reopen_logs(who.owner if who else None)
            except (Error, OSError) as error:
                self._log.write("error", f"cannot open the logs anew: {error}")
        self._crew.tell(signal.SIGUSR1)


def _apart(sockets: Sockets, kept: Sockets) -> Iterator[socket.socket]:
    """The sockets that are not among `kept`."""
    same = {id(sock) for sock in kept.values()}
    return (sock for sock in sockets.values() if id(sock) not in same)
