"""What the tests of the ecosystem's plugins share: a running output, or a running source, on the real loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import tempfile

from http_rig import Taken, context_of, make

from headrace.core.clock import Clock
from headrace.core.listener import open_listener
from headrace.pipeline.event import Batch

SECOND = 1_000_000_000
TIME = 1_700_000_000 * SECOND + 123_456_789


def batch(*records, time=TIME):
    return Batch.of([(time, record) for record in records])


class Running:
    """A running output. `errors` took what went to @ERROR."""

    def __init__(self, plugin, context, log, errors, folder):
        self.plugin = plugin
        self.context = context
        self.runner = plugin.runner
        self.log = log
        self.errors = errors
        self.folder = folder

    async def emit(self, tag, *records, time=TIME):
        waiting = self.context.root.emit(tag, batch(*records, time=time))
        if waiting is not None:
            await waiting

    def flush(self):
        self.runner.flush()

    def figures(self):
        return self.runner.stats()

    async def until(self, condition, seconds=20):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)

    async def idle(self):
        """Everything is delivered or given up."""
        self.flush()
        await self.until(lambda: not self.runner.stats()["buffered"])


@contextlib.asynccontextmanager
async def output(text, *, folder=None, **settings):
    """A running output of a <match> section's inside, with a root_dir of its own and an @ERROR label that collects."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logger = logging.getLogger("headrace.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        context = context_of(root_dir=folder, **settings)
        errors = Taken()
        label = type(context.root)("@ERROR", context.desk, context.log)
        label.add_output("**", errors)
        context.labels["@ERROR"] = context.desk.collector = label
        plugin = make("output", f"<match **>\n{text}\n</match>\n", context)
        context.root.add_output("**", plugin)
        loop = asyncio.get_running_loop()
        clock = Clock(loop)
        context.run_on(loop, clock, {})
        await plugin.start()
        if plugin.runner is not None:
            await plugin.runner.start()
        try:
            yield Running(plugin, context, log, errors, folder)
        finally:
            async with asyncio.timeout(20):
                if plugin.runner is not None:
                    await plugin.runner.stop(clock.now() + 10)
                await plugin.stop()
                await plugin.close()
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)


@contextlib.asynccontextmanager
async def source(text, *, taken=None, context=None, **settings):
    """A running source and what it emitted; its sockets are on free ports (`plugin.bound`)."""
    taken = taken or Taken()
    context = context or context_of(**settings)
    context.root.add_output("**", taken)
    plugin = make("input", f"<source>\n{text}\n</source>\n", context)
    sockets = {}
    for spec in plugin.listeners():
        sockets[spec.address] = open_listener(("127.0.0.1", 0))
        plugin.bound = sockets[spec.address].getsockname()[1]
    loop = asyncio.get_running_loop()
    context.run_on(loop, Clock(loop), sockets)
    await plugin.start()
    try:
        yield plugin, taken
    finally:
        async with asyncio.timeout(20):
            await plugin.quiesce()
            await plugin.stop()
            await plugin.close()
