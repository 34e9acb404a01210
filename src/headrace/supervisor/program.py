"""What the supervisor runs: the seam between it and topology (tests give it small programs of their own).

A program is built and checked in the master before anything is forked. Only `Program.engine` and the
engine's methods run in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    import socket

    from headrace.core.clock import Clock
    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.rpc import RpcSettings

GRACE: Final = 300.0
"""Seconds a graceful stop may take where the configuration sets no worker_shutdown_timeout."""

FAST: Final = 30.0
"""Seconds a fast stop may take: connections are closed at once, but buffers are still flushed."""

WATCHDOG: Final = 60.0
"""Seconds a worker may stay away from its loop before it is replaced."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How the processes are run.

    user, group: who the workers become when the master is root; user_is_default: nobody asked for it.
    pid_file: absolute, or None.
    prefix: missing folders are made below it only. rlimit_nofile: for workers, None keeps the hard limit.
    rlimit_core (bytes), priority, directory, environment (the whole of it): of workers, None leaves them.
    upgrade_by_hand: a new master (USR2) leaves it to the operator when the old one goes, as in nginx.
    restart_interval: the least time until the place of an ended worker is filled again. umask: None leaves it.
    rpc: calls that the master answers, None for none. metrics: the key of the listener for figures, None for none.
    Times in seconds; a watchdog of 0 is off. master: False serves in the only process. name: for ps.
    """

    workers: int = 1
    user: str | None = None
    group: str | None = None
    user_is_default: bool = False
    pid_file: str | None = None
    prefix: str | None = None
    daemon: bool = False
    master: bool = True
    rlimit_nofile: int | None = None
    rlimit_core: int | None = None
    priority: int | None = None
    directory: str | None = None
    environment: Mapping[str, str] | None = None
    shutdown_timeout: float = GRACE
    fast_timeout: float = FAST
    watchdog: float = WATCHDOG
    name: str | None = None
    upgrade_by_hand: bool = False
    restart_interval: float = 0.0
    umask: int | None = None
    rpc: RpcSettings | None = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Which worker this is. index: from 0, stable over restarts; generation: from 1, counts reloads.

    heir: once it is told to stop, whether the worker of another generation goes on with what it leaves.
    """

    index: int
    generation: int
    workers: int
    heir: Callable[[], bool] = bool


@dataclass(frozen=True, slots=True)
class Listen:
    """A listener that the master holds open for the workers.

    key: equal keys of two generations share the socket. open: called as root in the master; OSError when
    it cannot be opened.
    """

    key: str
    open: Callable[[], socket.socket]


class Feed(Protocol):
    """Something that goes on for as long as its reader wants."""

    async def next(self) -> bytes:
        """What comes next; it is some bytes each time, at least every few seconds."""
        ...

    def close(self) -> None:
        """The reader is gone."""
        ...


class Engine(Protocol):
    """What one worker runs."""

    async def start(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        """Serve. Raises when the worker cannot; the process then ends with status 2."""
        ...

    async def stop(self, *, fast: bool, within: float) -> None:
        """Stop taking, answer what is there (not when `fast`), flush; in about `within` seconds at most."""
        ...

    def stats(self) -> dict[str, Any]:
        """Figures for JSON, by room."""
        ...

    def tap(self, query: Mapping[str, str]) -> Feed:
        """A feed of what happens, chosen by `query`. Raises Error when there is no such thing."""
        ...

    def reopen_logs(self) -> None:
        """Open log files anew, after they were moved away."""
        ...

    def flush(self) -> None:
        """Send what is buffered, now."""
        ...


class Program(Protocol):
    """One checked configuration."""

    @property
    def process(self) -> ProcessSettings:
        """How to run it."""
        ...

    @property
    def sources(self) -> Sequence[str]:
        """The files it came from."""
        ...

    @property
    def log(self) -> EngineLog:
        """Where the master and the workers tell what they do."""
        ...

    def listens(self) -> Sequence[Listen]:
        """Every listener of all parts."""
        ...

    def prepare(self, owner: tuple[int, int] | None) -> None:
        """Run what runs once in the master (init_by_lua), after the listeners are open.

        owner: (uid, gid) of workers that are not root: whom the folders belong to that they write to.
        """
        ...

    def reopen_logs(self, owner: tuple[int, int] | None) -> None:
        """Open all logs anew in the master, before the workers do; owner: (uid, gid) of workers that are not root."""
        ...

    def engine(self, identity: Identity) -> Engine:
        """The parts of one worker; called in the worker."""
        ...

    def close(self) -> None:
        """Let go of what the master holds for it; called when a reload has replaced it."""
        ...
