"""What the tests of sources of messages share: a running source on a free port, with real sockets."""

from __future__ import annotations

import asyncio
import contextlib

from http_rig import Taken, context_of, make

from headrace.core.clock import Clock
from headrace.topology.pipelines import _open


class Rig:
    """A running source. `port`: where it listens; `taken`: what came out of it."""

    def __init__(self, plugin, taken, sock, context):
        self.plugin = plugin
        self.taken = taken
        self.port = sock.getsockname()[1] if isinstance(sock.getsockname(), tuple) else None
        self.context = context

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)

    async def events(self, count):
        await self.until(lambda: len(self.taken.records) >= count)
        return self.taken.records

    async def stop(self):
        async with asyncio.timeout(10):
            await self.plugin.quiesce()
            await self.plugin.stop()
            await self.plugin.close()


@contextlib.asynccontextmanager
async def running(text, *, taken=None, **settings):
    taken = taken or Taken()
    context = context_of(**settings)
    context.root.add_output("**", taken)
    plugin = make("input", f"<source>\n{text}\n</source>\n", context)
    loop = asyncio.get_running_loop()
    sockets = {spec.key: _open(spec) for spec in plugin.listeners()}
    context.run_on(loop, Clock(loop), sockets)
    rig = Rig(plugin, taken, next(iter(sockets.values())), context)
    await plugin.start()
    try:
        yield rig
    finally:
        await rig.stop()
