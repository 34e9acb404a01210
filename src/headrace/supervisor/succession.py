"""A new master in the place of a running one: zero-downtime restart, and nginx's upgrade on the fly.

The running master starts its own command line again (so that a new version of the program, or another
environment, takes effect) and gives it its listeners; their queues lose nothing, because they are never
closed. When all workers of the new master serve it says so through a pipe, and the old one finishes what it
has and ends. When the new one ends before that, nothing has happened.

    `Succession`  the side of the old master: at most one `Successor` at a time
    `Legacy`      what a new master finds: the listeners by key, and the pipe
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.core.listener import ListeningSocket
from headrace.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.supervisor.events import Events, Timer
    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.pidfile import PidFile

VARIABLE: Final = "HEADRACE_SUCCESSION"
"""What the new master finds in its environment: {"pipe": fd, "listeners": {key: fd}} as JSON."""

LIMIT: Final = 60.0
"""Seconds in which the new master must serve, or it is told to end."""

_READY: Final = b"R"


class Successor:
    """The new master, as the old one sees it. Raises OSError when it cannot be started.

    done(serves): called once, when it serves or has failed.
    """

    def __init__(self, sockets: Mapping[str, socket.socket], events: Events, done: Callable[[bool], None]) -> None:
        self.serves = False
        self._events = events
        self._done = done
        read, write = os.pipe2(os.O_CLOEXEC)
        fds = {key: sock.fileno() for key, sock in sockets.items()}
        environment = {**os.environ, VARIABLE: json.dumps({"pipe": write, "listeners": fds})}
        passed = [write, *fds.values()]
        try:
            for fd in passed:
                os.set_inheritable(fd, True)
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *sys.orig_argv[1:]],
                environment,
                setsigmask=(),
                setsigdef=events.numbers,
            )
        except OSError:
            os.close(read)
            raise
        finally:
            for fd in passed[1:]:
                os.set_inheritable(fd, False)
            os.close(write)
        self._pipe = read
        events.watch(read, self._told)
        self._timer: Timer | None = events.later(LIMIT, self._late)

    def _told(self) -> None:
        self.serves = os.read(self._pipe, 1) == _READY
        self.forget()
        self._done(self.serves)

    def _late(self) -> None:
        self._timer = None
        self.end()

    def end(self) -> None:
        """Tell a new master that does not serve yet to end."""
        if not self.serves:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 15)

    def forget(self) -> None:
        """Listen to it no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pipe >= 0:
            self._events.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def close(self) -> None:
        """In a fresh worker: let go of the pipe."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class Predecessor(Protocol):
    """The old master."""

    def succeeded(self) -> None:
        """The new master serves: go."""
        ...


class Succession:
    """The restarts of one master. taken: another master has the listeners."""

    def __init__(self, master: Predecessor, events: Events, pid_file: PidFile, log: EngineLog) -> None:
        self.log = log
        self._master = master
        self._events = events
        self._pid_file = pid_file
        self._new: Successor | None = None
        self._by_hand = False

    @property
    def taken(self) -> bool:
        """Whether a new master has the listeners, or will have them."""
        return self._new is not None

    def begin(self, sockets: Mapping[str, socket.socket], *, by_hand: bool) -> None:
        """Start a new master. by_hand: this one stays until it is told to go, with its pid file under another name."""
        if self._new is not None:
            self.log.write("warn", f"the new master {self._new.pid} is there already: signal ignored")
            return
        self._by_hand = by_hand
        try:
            if by_hand:
                self._pid_file.step_aside()
            self._new = Successor(sockets, self._events, self._told)
        except (Error, OSError) as error:
            self.log.write("error", f"a new master cannot be started: {error}")
            self._step_back()
            return
        self.log.write("info", f"zero-downtime restart: starting the new master {self._new.pid}")

    def _told(self, serves: bool) -> None:
        assert self._new is not None
        pid = self._new.pid
        if not serves:
            self._new = None
            self.log.write("error", f"the new master {pid} did not come up: this one goes on")
            self._step_back()
        elif self._by_hand:
            self.log.write("info", f"the new master {pid} serves beside this one")
        else:
            self.log.write("info", f"the new master {pid} serves, this one finishes")
            self._master.succeeded()

    def ended(self, pid: int) -> None:
        """A child is gone: when it was the new master, everything is as before it."""
        if self._new is not None and self._new.pid == pid and self._new.serves:
            self._new = None
            self.log.write("warn", f"the new master {pid} has ended: this one goes on")
            self._step_back()

    def _step_back(self) -> None:
        try:
            self._pid_file.step_back()
        except Error as error:
            self.log.write("error", str(error))

    def call_off(self) -> None:
        """End a new master that does not serve yet: ours was told to end."""
        if self._new is not None and not self._new.serves:
            self._new.end()

    def close(self) -> None:
        """In a fresh worker: let go of the pipe."""
        if self._new is not None:
            self._new.close()


class Legacy:
    """What the old master left to this one. sockets: its listeners by key; those that are not used are closed."""

    def __init__(self, pipe: int, sockets: dict[str, socket.socket]) -> None:
        self.sockets = sockets
        self._pipe = pipe

    @classmethod
    def found(cls) -> Legacy | None:
        """What the environment tells; None in a master that was started by nobody's successor.

        Raises Error when it tells what is not there.
        """
        text = os.environ.pop(VARIABLE, None)
        if text is None:
            return None
        sockets: dict[str, socket.socket] = {}
        try:
            told: dict[str, Any] = json.loads(text)
            os.set_inheritable(told["pipe"], False)
            for key, fd in told["listeners"].items():
                sockets[key] = _adopted(fd)
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise Error(
                f"{VARIABLE} does not name the listeners of an older master: {error}", kind="inherit"
            ) from error
        return cls(told["pipe"], sockets)

    def serve(self) -> None:
        """Tell the old master that all workers serve."""
        if self._pipe >= 0:
            with contextlib.suppress(OSError):  # it may have been killed meanwhile
                os.write(self._pipe, _READY)
        self.close()

    def close(self) -> None:
        """Without `serve()`: the old master goes on."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _adopted(fd: int) -> socket.socket:
    plain = socket.socket(fileno=fd)
    try:
        family, kind = plain.family, plain.type
        streams = kind == socket.SOCK_STREAM and plain.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    finally:
        plain.detach()
    sock = ListeningSocket(family, kind, fileno=fd) if streams else socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    sock.setblocking(False)
    return sock
