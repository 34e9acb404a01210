"""Power cuts at every operation of the disk: what was acknowledged and safe is there, and recovery never raises."""

from __future__ import annotations

import asyncio

import pytest
from torture_disk import FATES, Recorder

from headrace.pipeline.context import Settings
from headrace.testing.clock import FakeClock, settle
from headrace.testing.pipelines import Kit, TransientError

CONF = """
<match **>
  @type script
  @id out
  <buffer tag>
    @type file
    path /buf
    flush_interval 0.3s
    chunk_limit_records 3
    segment_size 4k
    queued_chunks_limit_size 100000
    retry_wait 0.1s
    retry_max_interval 0.2s
    retry_randomize false
    retry_forever true
    EXTRA
  </buffer>
</match>
"""
AT_MOST = 0.5
"""Seconds of acknowledged events that a power cut may take where nothing waits for an fsync."""


class Run:
    """A pipeline's life on a recorded disk. acked, delivered: (operations before it, number)."""

    def __init__(self, extra: str) -> None:
        self.clock = FakeClock()
        self.disk = Recorder(self.clock.now)
        self.conf = CONF.replace("EXTRA", extra)
        self.acked: list[tuple[int, float, int]] = []
        self.delivered: list[tuple[int, int]] = []

    async def live(self, events: int) -> None:
        self.kit = kit = Kit(self.conf, files=self.disk, clock=self.clock, settings=Settings(root_dir="/root"))
        await kit.start()
        script = kit.script
        script.refuse = lambda chunk: TransientError("down") if b"pinned" in chunk.read() else None
        written = script.write

        async def write(chunk, lane):
            await written(chunk, lane)
            self.delivered += [(len(self.disk.operations), record["n"]) for _time, record in chunk.events()]

        script.write = write
        for number in range(events):
            tag = "pinned" if number == 5 else f"t{number % 2}"
            await kit.emit(tag, {"n": number, "tag": tag, "x": "y" * (number * 37 % 700)})
            self.acked.append((len(self.disk.operations), self.clock.now(), number))
            if number % 3 == 0:
                await self.elapse(0.07)
        await self.elapse(1.0)
        script.refuse = None
        await self.elapse(0.5)
        task = asyncio.ensure_future(kit.stop())
        while not task.done():
            await asyncio.sleep(0.001)
        await task

    async def elapse(self, seconds: float) -> None:
        """Let time pass; a disk that is asked answers at once."""
        store = self.kit.pipeline.runners[0].buffer.store
        end = self.clock.now() + seconds
        while self.clock.now() < end - 1e-9:
            await self.clock.elapse(0.01)
            while store._syncing is not None:
                await asyncio.sleep(0.0002)
            await settle(5)


async def survivors(run: Run, count: int, fate: str) -> list[int]:
    """What the next start delivers."""
    kit = await Kit(run.conf, files=run.disk.after(count, fate), settings=Settings(root_dir="/root")).start()
    kit.pipeline.flush()
    await kit.work()
    got = [record["n"] for record in kit.script.got]
    assert kit.stats()["buffered"] == 0
    await kit.stop(0.1)
    return got


@pytest.mark.parametrize("sync", ["fsync", "write"])
@pytest.mark.parametrize("compress", ["text", "gzip"])
async def test_power_cuts(sync, compress, scale, seen):
    run = Run(f"sync {sync}\n    compress {compress}")
    await run.live(scale("events", 45, 400))
    total = len(run.disk.operations)
    step = 1 if scale.full else max(total // 25, 1)
    cuts = lost_at_most = 0
    for count in range(0, total + 1, step):
        when = run.disk.times[min(count, total - 1)]
        for fate in FATES:
            got = await survivors(run, count, fate)
            cuts += 1
            here = set(got) | {number for at, number in run.delivered if at <= count}
            told = {number: time for at, time, number in run.acked if at <= count}
            lost = {number for number in told if number not in here}
            if sync == "fsync" or fate == "kept":
                assert not lost, (count, fate, run.disk.operations[count - 1][:2])
            late = {number for number in lost if told[number] < when - AT_MOST}
            assert not late, (count, fate, when, {number: told[number] for number in late})
            lost_at_most = max([lost_at_most, *(when - told[number] for number in lost)])
        seen.progress(count, total, f"{cuts} cuts")
    seen(f"{sync}, {compress}: {cuts} cuts at {total} operations; lost at most the last {lost_at_most * 1000:.0f} ms")
