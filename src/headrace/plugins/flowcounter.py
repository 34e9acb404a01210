"""What the output and the filter `flowcounter_simple` share: count, and log the count each second, minute, hour or day.

The names, the units and the line are those of fluent-plugin-flowcounter-simple; unlike it, what was counted since
the last line is logged at the end too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, enum, string
from headrace.pipeline.event import NS, pack_value

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch

SECONDS: Final[Mapping[str, int]] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


class FlowParams(Configurable):
    """Parameters of both plugins."""

    unit = enum(tuple(SECONDS), default="second", doc="How often the count is logged")
    indicator = enum(("num", "byte"), default="num", doc="Count events, or bytes of their records as msgpack")
    comment = string(default=None, doc="Text to add to the line")


class FlowCounter:
    """The count of one plugin. A unit without events has no line."""

    def __init__(self, params: FlowParams, context: Context, log: logging.Logger) -> None:
        self.total = 0
        self._count = 0
        self._bytes = params.indicator == "byte"
        self._period = SECONDS[params.unit]
        self._clock = context.clock
        self._log = log
        self._line = f"\tindicator:{params.indicator}\tunit:{params.unit}"
        if params.comment is not None:
            self._line += f"\tcomment:{params.comment}"
        self._task = context.loop.create_task(self._run())

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        if self._bytes:
            self._count += sum([len(pack_value(record)) for _, record in batch.events()])
        else:
            self._count += batch.count

    async def _run(self) -> None:
        clock = self._clock
        # Seconds of the wall clock, so that lines of several processes are of the same seconds.
        due = clock.now() - clock.wall_ns() % NS / NS + self._period
        while True:
            await clock.sleep(due - clock.now())
            self._flush()
            due += self._period * (1 + max(clock.now() - due, 0.0) // self._period)

    def _flush(self) -> None:
        count, self._count = self._count, 0
        if count:
            self.total += count
            self._log.info("plugin:out_flowcounter_simple\tcount:%d%s", count, self._line)

    async def stop(self) -> None:
        """Log what is left."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._flush()
