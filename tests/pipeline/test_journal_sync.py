"""The journal and its syncs in a thread: what happens meanwhile, and what an error means."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.context import Settings
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, TransientError, settle

CONF = """
<match **>
  @type script
  @id out
  <buffer tag>
    @type file
    path /buf
    flush_interval 1s
    segment_size 4k
    EXTRA
  </buffer>
</match>
"""


class SlowDisk(Disk):
    """A disk whose syncs wait for `go`, and that notes a sync of a descriptor which is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.asked = threading.Event()
        self.stray: list[int] = []

    def sync(self, fd: int) -> None:
        self.asked.set()
        assert self.go.wait(20)
        if fd not in self.open:
            self.stray.append(fd)
            return
        super().sync(fd)


async def start(disk: Disk, extra: str) -> Kit:
    return await Kit(CONF.replace("EXTRA", extra), files=disk, settings=Settings(root_dir="/root")).start()


async def reached(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not reached")


@pytest.mark.parametrize("extra", ["sync fsync", "sync write\nsync_interval 0.1s"])
async def test_a_segment_that_goes_while_it_is_synced_is_closed_afterwards(extra):
    """Its descriptor may be another file's a moment later."""
    disk = SlowDisk()
    kit = await start(disk, extra + "\nchunk_limit_records 1\nqueued_chunks_limit_size 1000")
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    disk.go.clear()
    outcomes = [kit.offer("t", {"n": number, "x": "y" * 1000}) for number in range(12)]
    await kit.clock.elapse(0.2)
    await reached(disk.asked.is_set)
    gate.set_result(None)
    await kit.clock.elapse(2)
    await reached(lambda: len(kit.script.got) == 12)
    assert len(disk.segments()) == 1
    disk.go.set()
    for outcome in outcomes:
        if outcome is not None:
            await outcome
    await settle()
    assert disk.stray == []
    await kit.clock.elapse(0.5)
    await reached(lambda: len(disk.open) <= 3)  # the lock, the segment that is written, one that is read
    await kit.stop()
    assert disk.open == {}
    assert disk.stray == []


async def test_after_a_failed_sync_nothing_is_added_to_the_chunks_before_it():
    """What the kernel holds of them may never reach the disk, and the next sync says nothing of it (fsync(2))."""
    disk = Disk()
    kit = await start(disk, "sync fsync")
    kit.script.then = TransientError("down")
    await kit.emit("t", {"n": 0})
    await kit.emit("t", {"n": 1})
    disk.fail("sync", OSError(errno.EIO, "I/O error"))
    with pytest.raises(BufferOverflow, match="cannot be synced"):
        await kit.emit("t", {"n": 2})
    await kit.emit("t", {"n": 3})
    first, second = disk.segments()
    after = disk.copy()
    after.put(first, disk.data(first)[:24])  # what was not synced is gone, and what was before it with it
    again = await start(after, "sync fsync")
    await again.clock.elapse(2)
    await again.work()
    assert [record["n"] for record in again.script.got] == [3]
    assert second in disk.segments()
    await again.stop()
    await kit.stop(0.1)


@pytest.mark.parametrize("extra", ["sync fsync", "sync write\nsync_interval 0.1s"])
async def test_the_end_of_a_chunk_reaches_the_disk_without_another_event(extra):
    disk = Disk()
    kit = await start(disk, extra)
    await kit.emit("t", {"n": 0})
    await kit.clock.elapse(1.1)
    await kit.work()
    assert kit.script.got == [{"n": 0}]
    await kit.clock.elapse(0.5)
    await reached(lambda: kit.pipeline.runners[0].buffer.store._syncing is None)
    again = await start(disk.power_cut(keep=lambda _path, safe, _size: safe), extra)
    await again.clock.elapse(2)
    await again.work()
    assert again.script.got == []
    await again.stop()
    await kit.stop()


async def test_a_full_disk_sends_what_is_staged_before_its_time():
    disk = Disk()
    disk.room = 20_000
    kit = await start(disk, "flush_interval 1h")
    taken = []

    async def fill() -> None:
        for number in range(len(taken), 1000):
            await kit.emit("t", {"n": number, "x": "y" * 500})
            taken.append(number)

    for _ in range(3):
        with pytest.raises(BufferOverflow, match="No space"):
            await fill()
        await kit.clock.elapse(1)
        await kit.work()
        assert kit.stats()["buffered"] == 0
    assert [record["n"] for record in kit.script.got] == taken
    await kit.stop()


async def test_one_fsync_for_all_that_comes_in_a_turn_of_the_loop():
    kit = await start(SlowDisk(), "sync fsync")
    store = kit.pipeline.runners[0].buffer.store
    before = store.fsyncs
    waits = [kit.offer("t", {"n": number}) for number in range(20)]
    assert store.fsyncs == before
    await asyncio.gather(*waits)
    assert store.fsyncs == before + 1
    await kit.stop()
