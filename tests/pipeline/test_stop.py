"""The end of a buffered output: what it waits for, and for how long."""

from __future__ import annotations

import pytest

from headrace.pipeline.context import Settings
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, Script, TransientError

CONF = """
<match **>
  @type slow
  @id out
  <buffer>
    @type TYPE
    path /buf
    flush_interval 1s
    chunk_limit_records 1
    queued_chunks_limit_size 1000
    retry_randomize false
    retry_forever true
    retry_max_interval 1s
    flush_thread_count 2
    EXTRA
  </buffer>
</match>
"""


class Slow(Script):
    """Every write takes `seconds`."""

    name = "slow"
    seconds = 0.0

    async def write(self, chunk, lane):
        self.begun = getattr(self, "begun", 0) + 1
        await self.context.clock.sleep(self.seconds)
        await super().write(chunk, lane)


async def started(kind: str, *, seconds: float, down: bool = False, events: int = 50) -> Kit:
    text = CONF.replace("TYPE", kind).replace("EXTRA", "")
    if kind == "memory":
        text = text.replace("path /buf", "")
    kit = await Kit(text, plugins=[Slow], files=Disk(), settings=Settings(root_dir="/root")).start()
    output = kit.of(Slow)
    if down:
        output.then = TransientError("down")
        await kit.emit("t", {"n": -1})
        await kit.clock.elapse(2)
        assert kit.stats()["retry_step"] > 0
    output.seconds = seconds
    for number in range(events):
        await kit.emit("t", {"n": number})
    await kit.clock.elapse(1.3)
    return kit


async def seconds_of_stop(kit: Kit) -> float:
    start = kit.clock.now()
    await kit.stop(within=300)
    assert kit.balanced()
    return kit.clock.now() - start


async def test_a_backlog_on_disk_is_left_there():
    """The lanes finish what they have and take nothing more."""
    kit = await started("file", seconds=2.0)
    output = kit.of(Slow)
    begun = output.begun
    assert await seconds_of_stop(kit) < 4
    assert output.begun == begun
    assert len(output.got) == begun
    assert kit.stats()["buffered"] == 50 - begun


async def test_a_backlog_in_memory_is_sent():
    kit = await started("memory", seconds=2.0, events=20)
    assert await seconds_of_stop(kit) < 30
    assert len(kit.of(Slow).got) == 20


@pytest.mark.parametrize("kind", ["file", "memory"])
async def test_a_destination_that_is_down_and_answers_no_more(kind):
    """What hangs at a destination that had failed before is not waited for long."""
    kit = await started(kind, seconds=1e6, down=True, events=2)
    await kit.clock.elapse(2)
    assert kit.stats()["buffer_in_flight"] > 0
    assert await seconds_of_stop(kit) < 4.5


async def test_a_destination_that_hangs_for_the_first_time():
    """On disk it is safe; the process need not stay as long as it may."""
    kit = await started("file", seconds=1e6)
    assert kit.stats()["retry_step"] == 0
    assert await seconds_of_stop(kit) < 4.5
    assert kit.stats()["buffered"] == 50


async def test_a_destination_that_is_slow_as_ever_gets_its_time():
    kit = await started("file", seconds=7.0)
    output = kit.of(Slow)
    await kit.clock.elapse(7)
    begun = output.begun
    assert 5 < await seconds_of_stop(kit) < 9
    assert len(output.got) == begun
