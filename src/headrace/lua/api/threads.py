"""ngx.run_worker_thread: calls that helper processes run, each with a VM of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable
from typing import Any


def pack(fields: Iterable[bytes]) -> bytes:
    """A message: its size in 8 bytes, then each field with its own."""
    body = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    return len(body).to_bytes(8, "big") + body


def unpack(body: bytes) -> list[bytes]:
    """The fields of a message without its size."""
    fields: list[bytes] = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 8], "big")
        fields.append(body[at + 8 : at + 8 + size])
        at += 8 + size
    return fields


class ThreadsApi:
    """arguments: those of threadmain. most: helpers at one time; further calls wait (lua_worker_thread_vm_pool_size).

    pools: names of the configuration's thread pools. done(number, ok, data): the VM's entry for the end of a call.
    """

    def __init__(self, arguments: list[str], most: int) -> None:
        self.arguments = arguments
        self.pools: set[str] = {"default"}
        self.done: Callable[[int, int, bytes], None] = lambda *_: None
        self._room = asyncio.Semaphore(most)
        self._idle: list[Process] = []
        self._all: set[Process] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {"thread_pool": self.thread_pool, "thread_run": self.thread_run}

    def thread_pool(self, name: bytes) -> int:
        """1 when the configuration has a pool of this name."""
        return 1 if name.decode("utf-8", "surrogateescape") in self.pools else 0

    def thread_run(self, number: int, module: bytes, function: bytes, data: bytes) -> None:
        """Begin a call; its end goes to `done`."""
        task = asyncio.get_running_loop().create_task(self._run(number, pack((module, function, data))))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int, message: bytes) -> None:
        ok, data = b"0", b"the worker thread has died"
        async with self._room:
            try:
                helper = self._idle.pop() if self._idle else await self._start()
                assert helper.stdin is not None
                assert helper.stdout is not None
                helper.stdin.write(message)
                await helper.stdin.drain()
                size = int.from_bytes(await helper.stdout.readexactly(8), "big")
                ok, data = unpack(await helper.stdout.readexactly(size))
                self._idle.append(helper)
            except (OSError, EOFError) as error:
                if isinstance(error, OSError) and error.strerror:
                    data += b": " + error.strerror.encode()
        self.done(number, int(ok), data)

    async def _start(self) -> Process:
        command = (sys.executable, "-m", "headrace.lua.threadmain", *self.arguments)
        helper = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        self._all.add(helper)
        return helper

    def close(self) -> None:
        """The worker ends: its helpers too."""
        for task in self._tasks:
            task.cancel()
        for helper in self._all:
            with contextlib.suppress(ProcessLookupError):
                helper.kill()
            # The loop may end before it hears of the death: what it holds of the process is given up here.
            helper._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no public way
