"""The log bridge: records of `access_log pipeline:TAG` and of Lua's `ngx.emit` go to the pipeline in the same worker.

A request that has ended cannot wait for a full buffer. What the pipeline wants waited for is waited for here, so
many batches at most; beyond that, and when the buffer refuses, a record is dropped and counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headrace.edge import log as edge_log
from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.log import Record
    from headrace.pipeline.router import Router
    from headrace.supervisor.log import EngineLog

WAITING: Final = 1000
"""Records that may wait for the buffer at once."""

_DRAIN: Final = 2.0  # seconds that waiting records get when the worker stops


class Bridge:
    """Counters: emitted, dropped."""

    def __init__(self, router: Router, loop: asyncio.AbstractEventLoop, log: EngineLog) -> None:
        self._router = router
        self._loop = loop
        self._log = log
        self._waiting: set[asyncio.Task[None]] = set()
        self.emitted = 0
        self.dropped = 0

    def connect(self) -> None:
        """Take the records of this process from now on."""
        edge_log.sinks[:] = [self.take]

    def take(self, tag: str, at: int, record: Record) -> None:
        """Emit one record; never raises for a full buffer."""
        try:
            rest = self._router.emit(tag, Batch.of([(at, dict(record))]))
        except BufferOverflow:
            self._drop()
            return
        if rest is None:
            self.emitted += 1
            return
        if len(self._waiting) >= WAITING:
            close = getattr(rest, "close", None)
            if close is not None:
                close()
            self._drop()
            return
        task = self._loop.create_task(self._wait(rest))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait(self, rest: Awaitable[None]) -> None:
        try:
            await rest
        except BufferOverflow:
            self._drop()
        else:
            self.emitted += 1

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
            self._log.write("warn", f"gateway records: the buffer is full, {self.dropped} dropped so far")

    async def drain(self) -> None:
        """Give waiting records a last chance."""
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=_DRAIN)

    def stats(self) -> dict[str, Any]:
        """Figures."""
        return {"emitted": self.emitted, "dropped": self.dropped, "waiting": len(self._waiting)}
