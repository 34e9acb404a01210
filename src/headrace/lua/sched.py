"""The loop's side of the scheduler: what Lua asks the loop for, and the results of handlers that had to wait.

Lua has one timer armed at a time, registers a descriptor once and keeps it registered across waits, and asks for
a turn when threads are left over. Callbacks of descriptors are Lua functions themselves: no Python frame in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.core.dns import NotResolved, Resolver
from headrace.core.watch import watch

if TYPE_CHECKING:
    from headrace.core.watch import Watch
    from headrace.lua.late import Late
    from headrace.lua.vm import VM

LOOKUP: Final = 3600.0
"""Seconds of a lookup at most; the script that waits has a deadline of its own."""


class Scheduler:
    """Serves one VM. Before attach() nothing can wait (init_by_lua)."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending: dict[int, asyncio.Future[bytes | int] | Late] = {}
        """Who waits for the end of a handler, by request."""
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self.resolvers: list[Resolver] = []
        self._lookups: set[asyncio.Task[None]] = set()
        self._entries: dict[str, Callable[..., Any]] = {}
        self._watches: dict[int, Watch] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What the prelude calls."""
        return {
            "watch": self.watch,
            "unwatch": self.unwatch,
            "watch_write": self.watch_write,
            "unwatch_write": self.unwatch_write,
            "arm": self.arm,
            "soon": self.soon,
            "done": self.done,
            "resolve": self.resolve,
        }

    def bind(self, vm: VM) -> None:
        """Take the entries of the VM."""
        names = ("on_readable", "on_writable", "tick", "turn_posted", "resolved", "run", "forget", "aborted")
        self._entries = {name: vm.entry(name) for name in names}
        self._readable = self._entries["on_readable"]
        self._writable = self._entries["on_writable"]

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on this loop runs the VM; what Lua armed before the fork is armed here."""
        self.loop = loop
        self._entries["tick"]()

    def detach(self) -> None:
        """Leave the loop."""
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        for task in self._lookups:
            task.cancel()
        self._watches.clear()
        self._timer = self._turn = self.loop = None

    # descriptors

    def watch(self, fd: int) -> None:
        """Call the VM when fd is readable, until unwatch()."""
        assert self.loop is not None
        self._watches[fd] = watch(self.loop, fd, partial(self._readable, fd), self)

    def unwatch(self, fd: int) -> None:
        """See watch()."""
        if self.loop is not None and self._watches.pop(fd, None) is not None:
            self.loop.remove_reader(fd)

    def watch_again(self, gone: Watch) -> None:
        """See headrace.core.watch."""
        if self._watches.get(gone.fd) is gone:
            self.unwatch(gone.fd)
            self.watch(gone.fd)

    def watch_write(self, fd: int) -> None:
        """Call the VM when fd is writable, until unwatch_write()."""
        assert self.loop is not None
        self.loop.add_writer(fd, self._writable, fd)

    def unwatch_write(self, fd: int) -> None:
        """See watch_write()."""
        if self.loop is not None:
            self.loop.remove_writer(fd)

    # time and turns

    def arm(self, seconds: float) -> None:
        """Call the VM's tick in some seconds, instead of when it was armed for."""
        if self.loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._entries["tick"]()

    def soon(self) -> None:
        """Run posted threads in the loop's next turn."""
        if self._turn is None and self.loop is not None:
            self._turn = self.loop.call_soon(self._run_posted)

    def _run_posted(self) -> None:
        self._turn = None
        self._entries["turn_posted"]()

    # results

    def wait_for(self, request_id: int) -> asyncio.Future[bytes | int]:
        """The result of a handler that did not end in its run."""
        assert self.loop is not None
        future: asyncio.Future[bytes | int] = self.loop.create_future()
        self.pending[request_id] = future
        return future

    def done(self, request_id: int, result: bytes | int) -> None:
        """A handler that waited has ended."""
        future = self.pending.pop(request_id, None)
        if future is not None and not future.done():
            future.set_result(result)

    def forget(self, request_id: int) -> None:
        """The request has ended; its Lua threads and sockets with it."""
        self.pending.pop(request_id, None)
        self._entries["forget"](request_id)

    def end_all(self) -> None:
        """End the handlers that still wait: the worker stops, and their time is over."""
        for request_id, future in list(self.pending.items()):
            self.forget(request_id)
            if not future.done():
                future.set_result(-1)

    def aborted(self, request_id: int) -> None:
        """The client of a request went away."""
        # Not within the call that noticed it: that may be a write made by Lua itself.
        if self.loop is not None:
            self.loop.call_soon(self._entries["aborted"], request_id)

    # names

    def resolve(self, number: int, name: bytes, resolver: int) -> None:
        """Look up the addresses of a name; the answer goes to the VM's `resolved`.

        resolver: which of `resolvers`, -1: the system's.
        """
        assert self.loop is not None
        asking = self._resolve if resolver < 0 else partial(self._ask, self.resolvers[int(resolver)])
        task = self.loop.create_task(asking(number, name.decode("latin-1")))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _ask(self, resolver: Resolver, number: int, name: str) -> None:
        try:
            addresses = await resolver.resolve(name, LOOKUP)
        except NotResolved as error:
            self._entries["resolved"](number, None, f"{error.code}: {error.words}".encode())
            return
        self._entries["resolved"](number, " ".join(addresses).encode(), None)

    async def _resolve(self, number: int, name: str) -> None:
        assert self.loop is not None
        try:
            found = await self.loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # a name with a zero byte, or one that IDNA refuses
            text = "Host not found" if isinstance(error, socket.gaierror) else str(error)
            self._entries["resolved"](number, None, f"3: {text}".encode())
            return
        addresses = list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))
        self._entries["resolved"](number, " ".join(addresses).encode(), None)
