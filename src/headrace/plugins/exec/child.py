"""One child process. It is the head of a process group of its own, so that what a shell has started ends with it.

Ending: TERM to the group, KILL after KILL_AFTER seconds; both are waited for, so nothing stays a zombie.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.values import from_json
from headrace.errors import Error

if TYPE_CHECKING:
    from headrace.core.clock import Clock

KILL_AFTER: Final = 2.0
"""Seconds between TERM and KILL."""
_WRITE_LIMIT: Final = 1 << 16


def as_command(value: object) -> Any:
    """A command for the shell, or an array: a program and its arguments. Raises ValueError."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            value = from_json(value)
    if isinstance(value, list):
        if not value or not all(isinstance(item, str) for item in value):
            raise ValueError("an array of texts is needed: a program and its arguments")
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError("it is empty")
    if "\0" in value:
        raise ValueError("it holds a NUL")
    return value


def shown(command: str | list[str]) -> str:
    """A command for log lines."""
    return command if isinstance(command, str) else " ".join(command)


class Child:
    """A running process; see `start`."""

    def __init__(self, process: asyncio.subprocess.Process, command: str | list[str], clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self.command = command
        self.pid = process.pid
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, command: str | list[str], clock: Clock, *, read: bool, write: bool = False, with_stderr: bool = False
    ) -> Child:
        """Start a process. read: its output comes to us; with_stderr: what it says on standard error too.

        Raises Error (kind "exec") when the system cannot start it.
        """
        options: dict[str, Any] = {
            "stdin": PIPE if write else DEVNULL,
            "stdout": PIPE if read else DEVNULL,
            "stderr": STDOUT if with_stderr else DEVNULL,
            "start_new_session": True,
        }
        try:
            if isinstance(command, str):
                process = await asyncio.create_subprocess_shell(command, **options)
            else:
                process = await asyncio.create_subprocess_exec(*command, **options)
        except (OSError, ValueError) as error:
            raise Error(f"cannot start {shown(command)}: {error}", kind="exec", retryable=True) from error
        return cls(process, command, clock)

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as we know."""
        return self._process.returncode is None

    async def read(self, size: int) -> bytes:
        """Some of its output; b"" at the end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        """Write to its input, as fast as it reads. Raises Error when it has gone."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            for at in range(0, len(data), _WRITE_LIMIT):
                pipe.write(data[at : at + _WRITE_LIMIT])
                await pipe.drain()
        except (OSError, RuntimeError) as error:
            raise Error(f"{shown(self.command)} does not read any more", kind="exec", retryable=True) from error

    def close_input(self) -> None:
        """Let it see the end of its input."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.close()

    async def wait(self) -> int:
        """Its exit status; minus the signal's number when one has ended it."""
        return await self._process.wait()

    async def end(self) -> None:
        """End it, and what it has started; return when it is gone."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self.close_input()
        if not self.alive:
            return
        self._signal(signal.SIGTERM)
        killing = self._clock.deadline(KILL_AFTER, self._signal, signal.SIGKILL)
        try:
            await self._process.wait()
        finally:
            killing.cancel()
        self._signal(signal.SIGKILL)  # what a shell has left behind in its group

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def ended_how(status: int) -> str:
    """An exit status for log lines."""
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"
