"""ngx.pipe: processes of scripts. They are begun and awaited here; their pipes are read and written in Lua.

A process is awaited by a descriptor of its own (pidfd), so no signal is handled and no other child of this process
is taken: neither the loop's nor the supervisor's.
https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/pipe.md
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.log import ALERT, NOTICE

if TYPE_CHECKING:
    from headrace.lua.api.process import ProcessApi

Why = tuple[None, bytes]
_DEFAULT: Final = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD)
"""Signals that this process handles or ignores, and a child must not."""
_POLL: Final = 0.05
"""Seconds between two looks where the system has no descriptors for processes."""


@dataclass(slots=True)
class _Child:
    number: int
    pid: int
    pidfd: int


class PipesApi:
    """exited(number, reason, status): the VM's entry for the end of a process."""

    def __init__(self, process: ProcessApi) -> None:
        self.process = process
        self.exited: Callable[[int, bytes, int], None] = lambda *_: None
        self._children: dict[int, _Child] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {"pipe_spawn": self.pipe_spawn}

    def pipe_spawn(self, number: int, args: bytes, environ: bytes | None, merge: int) -> tuple[int, ...] | Why:
        """Begin a process; its pid and our ends of its stdin, stdout and stderr (-1: merged into stdout).

        args, environ: words, each ended by NUL; None: the environment of this process.
        """
        words = args.split(b"\0")[:-1]
        env = None if environ is None else dict(word.split(b"=", 1) for word in environ.split(b"\0")[:-1])
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for at in range(2 if merge else 3):
                read, write = os.pipe2(os.O_CLOEXEC)
                ours.append(write if at == 0 else read)
                theirs.append(read if at == 0 else write)
                os.set_blocking(ours[at], False)
            pid = self._begin(words, env, theirs)
        except OSError as error:
            for fd in ours:
                os.close(fd)
            return None, b"%b failed: %b" % (
                b"fork" if len(theirs) > 2 else b"pipe",
                os.strerror(error.errno or 0).encode(),
            )
        finally:
            for fd in theirs:
                os.close(fd)
        self._watch(number, pid)
        return pid, *ours, *(() if len(ours) == 3 else (-1,))

    def _begin(self, words: list[bytes], env: dict[bytes, bytes] | None, theirs: list[int]) -> int:
        actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(theirs)]
        if len(theirs) == 2:
            actions.append((os.POSIX_SPAWN_DUP2, theirs[1], 2))
        options: dict[str, Any] = {"file_actions": actions, "setsigmask": (), "setsigdef": _DEFAULT}
        try:
            return os.posix_spawnp(words[0], words, os.environ if env is None else env, **options)
        except OSError as error:
            # The original learns this in the child, which says so in the log and ends with 1.
            text = b"lua pipe child execvp() failed while executing %b (%d: %b)"
            self.process.error_log.line(ALERT, text % (words[0], error.errno, os.strerror(error.errno or 0).encode()))
            return os.posix_spawn("/bin/sh", ["sh", "-c", "exit 1"], os.environ, **options)

    def _watch(self, number: int, pid: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            pidfd = -1
        child = self._children[number] = _Child(number, pid, pidfd)
        if pidfd >= 0:
            loop.add_reader(pidfd, self._look, child)
        else:
            loop.call_later(_POLL, self._look, child)

    def _look(self, child: _Child) -> None:
        """The process has ended, or is to be looked at again."""
        if child.number not in self._children:
            return
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = child.pid, 0
        if not pid:
            if child.pidfd < 0:
                asyncio.get_running_loop().call_later(_POLL, self._look, child)
            return
        self._forget(child)
        self.process.error_log.line(NOTICE, b"signal %d (SIGCHLD) received from %d" % (signal.SIGCHLD, pid))
        code = os.waitstatus_to_exitcode(status)
        self.exited(child.number, b"exit" if code >= 0 else b"signal", abs(code))

    def _forget(self, child: _Child) -> None:
        del self._children[child.number]
        if child.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(child.pidfd)
            os.close(child.pidfd)

    def close(self) -> None:
        """The worker ends: its processes too."""
        for child in list(self._children.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            self._forget(child)
