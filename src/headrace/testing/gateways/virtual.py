"""Virtual time for a whole process: a loop that jumps to its next timer when nothing else can go on.

Peers are in the same process, and what they send over a socket pair is there at once. So a loop that finds no
descriptor ready and has nothing to run waits for time alone, and time need not pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace.errors import Error

WALL: Final = 1_767_225_600.0
"""When virtual time begins, unless a test says so: 2026-01-01T00:00:00Z."""

_START: Final = 1_000_000.0  # what the monotonic clock says then
_PATIENCE: Final = 10.0  # real seconds that threads may take when nothing else is left to wait for


class Stuck(Error):
    """Everything waits for something that will not come."""


class _Selector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump
        self.threads: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self.threads():
            ready = super().select(_PATIENCE)
            if not ready:
                raise Stuck("nothing goes on, and nothing is waited for that has a time", kind="test")
            return ready
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. wall: seconds since 1970 when it begins. addresses: of names that are looked up."""

    def __init__(self, wall: float = WALL) -> None:
        self.passed = 0.0
        """Virtual seconds since the beginning."""
        self._wall = wall
        self._busy = 0
        self.addresses: Callable[[str], str | None] = lambda _name: None
        selector = _Selector(self._jump)
        selector.threads = lambda: self._busy > 0
        super().__init__(selector)

    def _jump(self, seconds: float) -> None:
        self.passed += seconds

    def time(self) -> float:
        """Monotonic seconds."""
        return _START + self.passed

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._wall + self.passed

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override] # types of ours
        """As of a loop; time stands still meanwhile."""
        self._busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _future: object) -> None:
        self._busy -= 1

    async def getaddrinfo(self, host: Any, port: Any, **_hints: Any) -> Any:
        """The address of a name that the test knows; socket.gaierror for others."""
        name = host.decode() if isinstance(host, bytes) else str(host)
        address = self.addresses(name)
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))]

    @contextlib.contextmanager
    def clocks(self) -> Iterator[None]:
        """While this lasts, time.time, time_ns, monotonic and monotonic_ns of this process tell virtual time."""
        kept = time.time, time.time_ns, time.monotonic, time.monotonic_ns
        time.time, time.monotonic = self.wall, self.time
        time.time_ns, time.monotonic_ns = lambda: round(self.wall() * 1e9), lambda: round(self.time() * 1e9)
        try:
            yield
        finally:
            time.time, time.time_ns, time.monotonic, time.monotonic_ns = kept
