"""Input `load`: how busy the machine is, every few seconds."""

import asyncio
import contextlib
import os

from headrace.conf.params import string, time
from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Source


class LoadInput(Source):
    """Emits the load averages."""

    name = "load"

    tag = string(default="load", doc="Tag of the events")
    interval = time(default=10.0, doc="Seconds between two events")

    async def start(self):
        self._task = self.context.loop.create_task(self._run())

    async def _run(self):
        while True:
            one, five, fifteen = os.getloadavg()
            await self._emit({"load1": one, "load5": five, "load15": fifteen})
            await self.context.clock.sleep(self.interval)

    async def _emit(self, record):
        batch = Batch.of([(self.context.clock.wall_ns(), record)])
        try:
            waiting = self.router.emit(self.tag, batch)
            if waiting is not None:
                await waiting
        except BufferOverflow:
            self.log.warning("the buffer is full: an event is left out")

    async def quiesce(self):
        if hasattr(self, "_task"):
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
