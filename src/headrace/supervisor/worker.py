"""One worker: one process, one loop. It starts its engine, serves, and always ends within a deadline.

Signals: TERM stops fast, QUIT gracefully, USR1 opens logs anew and flushes, CONT writes a dump. A second
stop signal that comes a moment after the first one shortens what is under way. INT and HUP are the
master's: a terminal sends them to every process of its group. When the master is gone (its pipe ends) the
worker stops gracefully by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from headrace.core.clock import Clock
from headrace.errors import Error
from headrace.supervisor import osproc
from headrace.supervisor.admin.server import AdminServer
from headrace.supervisor.admin.web import Web
from headrace.supervisor.metrics import Heart, worker_stats

if TYPE_CHECKING:
    import socket

    from headrace.supervisor.program import Engine, Feed, Identity, Program

CANNOT_START: Final = 2
"""Exit status of a worker that could not start: starting it again at once would not help."""

MARGIN: Final = 1.0
"""Seconds after its deadline that a worker waits for its parts before it ends without them."""

_SAME_REQUEST: Final = 0.5  # a second stop signal within these seconds is an echo of the first one
_DUMP_DELAY: Final = 0.2  # seconds
_SWITCH_INTERVAL: Final = 0.0002  # seconds; C calls that gave the GIL away must get it back soon


class Link:
    """The worker's ends of what connects it with the master.

    beat: called once per heartbeat. ready: called when the worker serves. parent: a descriptor that reaches
    its end with the master; None without a master. admin: the path of the stats socket, None for none.
    """

    def __init__(
        self,
        *,
        beat: Callable[[], None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
        parent: int | None = None,
        admin: str | None = None,
        account: osproc.Account | None = None,
    ) -> None:
        self.beat = beat
        self.ready = ready
        self.parent = parent
        self.admin = admin
        self.account = account


class Worker:
    """One run of an engine in this process; `run()` returns the exit status."""

    def __init__(self, program: Program, identity: Identity, sockets: Mapping[str, socket.socket], link: Link) -> None:
        self._program = program
        self._identity = identity
        self._sockets = sockets
        self._link = link
        self._log = program.log
        self._loop = uvloop.new_event_loop()
        self._clock = Clock(self._loop)
        self._heart = Heart(self._clock, self._beat)
        self._started = self._clock.now()
        self._state = "starting"
        self._stop_wish: asyncio.Future[bool] = self._loop.create_future()
        self._hurry = asyncio.Event()
        self._wished_at = 0.0

    def run(self) -> int:
        """Serve until told to stop."""
        # A backlog is many small objects that live long, and few cycles: with the default threshold a third of
        # the time at 80,000 queued chunks goes into looking at them again.
        gc.set_threshold(10_000, 20, 20)
        gc.enable()
        sys.setswitchinterval(_SWITCH_INTERVAL)
        osproc.keep_freed_memory()
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._report)
        self._install_signals()
        try:
            return self._loop.run_until_complete(self._life())
        finally:
            asyncio.set_event_loop(None)

    def _install_signals(self) -> None:
        alone = self._link.parent is None
        add = self._loop.add_signal_handler
        add(signal.SIGTERM, self.stop, True)
        add(signal.SIGQUIT, self.stop, False)
        add(signal.SIGUSR1, self._reopen)
        for number in (signal.SIGALRM, signal.SIGIO):  # they mean nothing here, and would end the process
            add(number, lambda: None)
        # A little later: who stops a process often wakes it first, and then no dump is wanted.
        add(signal.SIGCONT, self._clock.deadline, _DUMP_DELAY, self._dump)
        if alone:
            add(signal.SIGINT, self.stop, True)
            for number in (signal.SIGHUP, signal.SIGUSR2):
                add(number, self._log.write, "warn", "a reload needs a master process: signal ignored")
        else:
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGWINCH):
                signal.signal(number, signal.SIG_IGN)

    def _beat(self) -> None:
        self._link.beat()
        self._log.tend(rotate=self._link.parent is None)

    async def _life(self) -> int:
        # Not before the loop runs: what was sent meanwhile would be lost.
        osproc.unblock_signals()
        admin = AdminServer(self.stats, self._tap)
        try:
            if self._link.admin is not None:
                await admin.start(self._link.admin)
            osproc.settle(self._program.process)
            osproc.become(self._link.account)
            self._watch_parent()
            engine = self._program.engine(self._identity)
            self._engine: Engine = engine
            self._heart.start()
            await engine.start(self._loop, self._clock, self._sockets)
        except (Error, OSError) as error:
            self._log.write("error", f"worker {self._identity.index} cannot start: {error}")
            return CANNOT_START
        except Exception:  # noqa: BLE001 - a fault in any part must be told, and ends this worker only
            self._log.write("error", f"worker {self._identity.index} cannot start: {traceback.format_exc()}")
            return CANNOT_START
        self._state = "running"
        self._link.ready()
        web = self._web()
        try:
            if web is not None:
                await web.start()
            fast = await self._stop_wish
            if web is not None:
                await web.stop()
            return await self._wind_down(engine, fast=fast)
        finally:
            self._heart.stop()
            await admin.stop()

    def _web(self) -> Web | None:
        """The listener for monitoring, when there is one."""
        key = self._program.process.metrics
        if key is None or key not in self._sockets:
            return None
        admin = Path(self._link.admin) if self._link.admin is not None else None
        return Web(self._sockets[key], admin.parent if admin else None, admin.name if admin else "", self.stats)

    async def _wind_down(self, engine: Engine, *, fast: bool) -> int:
        settings = self._program.process
        timeout = settings.fast_timeout if fast else settings.shutdown_timeout
        self._state = "stopping"
        self._log.write("info", "stopping" if fast else "gracefully shutting down")
        stopping = asyncio.create_task(engine.stop(fast=fast, within=timeout))
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({stopping, hurry}, timeout=timeout + MARGIN, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                why = "told again to stop" if self._hurry.is_set() else f"not done after {timeout:g} s"
                self._log.write("warn", f"{why}: ending without what is still open")
                stopping.cancel()
                stopping = asyncio.create_task(engine.stop(fast=True, within=0.0))
                await asyncio.wait({stopping}, timeout=MARGIN)
        finally:
            hurry.cancel()
        if not stopping.done():
            return 1
        error = None if stopping.cancelled() else stopping.exception()
        if error is not None:
            self._log.write("error", "".join(traceback.format_exception(error)).rstrip())
            return 1
        return 0

    def stop(self, fast: bool) -> None:
        """Stop; a later call while a stop is under way ends it soon."""
        now = self._clock.now()
        if not self._stop_wish.done():
            self._wished_at = now
            self._stop_wish.set_result(fast)
        elif fast and now - self._wished_at > _SAME_REQUEST:
            self._hurry.set()

    def _watch_parent(self) -> None:
        parent = self._link.parent
        if parent is None:
            return
        osproc.die_with_parent(signal.SIGQUIT)
        self._loop.add_reader(parent, self._parent_gone)

    def _parent_gone(self) -> None:
        if self._link.parent is not None:
            self._loop.remove_reader(self._link.parent)
            self._link.parent = None
        self._log.write("warn", "the master process is gone: stopping")
        # Nobody is left to end a worker that does not come back to its loop.
        self._loop.remove_signal_handler(signal.SIGALRM)
        signal.alarm(int(self._program.process.shutdown_timeout + 2 * MARGIN) + 1)
        self.stop(fast=False)

    def _reopen(self) -> None:
        self._log.reopen()
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.reopen_logs()
            engine.flush()

    def _dump(self) -> None:
        if self._link.admin is None or self._state == "stopping":
            return
        path = Path(self._link.admin).with_name(f"dump-{os.getpid()}.txt")
        with contextlib.suppress(OSError), path.open("w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(self.stats(), file, indent=1, default=str)
            file.write("\n\n")
            for task in asyncio.all_tasks(self._loop):
                task.print_stack(file=file)
            file.flush()
            faulthandler.dump_traceback(file=file)
            self._log.write("info", f"dump written to {path}")

    def stats(self) -> dict[str, Any]:
        """The figures the admin socket serves."""
        engine = getattr(self, "_engine", None)
        if engine is None:
            return {"worker": self._identity.index, "state": self._state, "pid": os.getpid()}
        return worker_stats(engine, self._identity, self._clock, self._heart, self._started, self._state)

    def _tap(self, query: Mapping[str, str]) -> Feed:
        engine = getattr(self, "_engine", None)
        if engine is None or self._state != "running":
            raise Error(f"the worker is {self._state}", kind="not_running")
        feed: Feed = engine.tap(query)
        return feed

    def _report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = str(context.get("message", "error on the loop"))
        if isinstance(error, BaseException):
            text += ": " + "".join(traceback.format_exception(error)).rstrip()
        self._log.write("error", text)


def run_child(program: Program, identity: Identity, sockets: Mapping[str, socket.socket], link: Link) -> int:
    """A worker's whole life after the fork; returns the exit status."""
    osproc.set_name(f"{(program.process.name or 'headrace')[:11]}-w{identity.index}")
    program.log.set_worker(identity.index)
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable(file=2)
    try:
        return Worker(program, identity, sockets, link).run()
    except KeyboardInterrupt:
        return 1
    except Exception:  # noqa: BLE001 - the last line of defence: say why the process ends
        program.log.write("error", traceback.format_exc())
        return 1
    finally:
        osproc.flush_standard_streams()
