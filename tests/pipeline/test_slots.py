"""Slots of a buffer: what other processes leave is taken over, whatever they knew and wherever they were."""

from __future__ import annotations

import asyncio

import pytest

from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, TransientError

CONF = """
<match **>
  @type script
  @id out
  <buffer>
    @type file
    PATH
    flush_interval 1s
    EXTRA
  </buffer>
</match>
"""


async def start(disk: Disk, extra: str = "", *, path: str = "path /buf", workers: int = 1, worker: int = 0) -> Kit:
    settings = Settings(root_dir="/root", workers=workers, worker_id=worker)
    text = CONF.replace("PATH", path).replace("EXTRA", extra)
    return await Kit(text, files=disk, settings=settings).start()


def offer(kit: Kit, name: bytes, number: int) -> None:
    batch = Batch.of([(1, {"n": number})])
    batch.id = name
    assert kit.pipeline.router.emit("t", batch) is None


async def test_ids_of_batches_go_over_with_a_slot_that_is_empty():
    disk = Disk()
    old = await start(disk)
    offer(old, b"one", 1)
    await old.clock.elapse(2)
    await old.work()
    assert old.script.got == [{"n": 1}]
    new = await start(disk)
    await old.stop()
    await new.clock.elapse(20)
    assert not any(path.startswith("/buf/journal.0/") for path in disk.segments())
    offer(new, b"one", 1)
    assert new.stats()["buffered"] == 0
    written = len(disk.log)
    await new.clock.elapse(60)
    assert not [operation for operation, _path in disk.log[written:] if operation == "create"]
    again = await start(disk.copy())
    offer(again, b"one", 1)
    assert again.stats()["buffered"] == 0
    await again.stop()
    await new.stop()


@pytest.mark.parametrize("path", ["path /buf", ""])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (2, 4)])
async def test_what_workers_left_that_there_are_no_more(path, before, after):
    disk = Disk()
    for worker in range(before):
        kit = await start(disk, "flush_interval 1h", path=path, workers=before, worker=worker)
        await kit.emit("t", {"n": worker})
        await kit.stop()
    got = []
    for worker in range(after):
        kit = await start(disk, path=path, workers=after, worker=worker)
        await kit.clock.elapse(20)
        await kit.work()
        got += [record["n"] for record in kit.script.got]
        assert kit.balanced()
        await kit.stop()
    assert sorted(got) == list(range(before))
    assert disk.segments() == []


async def test_a_slot_that_cannot_be_read_now_is_tried_again(caplog):
    disk = Disk()
    old = await start(disk, "flush_interval 1h")
    new = await start(disk)
    await old.emit("t", {"n": 1})
    await old.stop()
    disk.fail("open_read", OSError(5, "I/O error"), times=2)
    await new.clock.elapse(30)
    await new.work()
    assert new.script.got == [{"n": 1}]
    assert "cannot be taken over now" in caplog.text
    await new.stop()


async def test_much_that_was_left_does_not_hold_the_loop():
    """Segment after segment: others have their turn, and a stop in the middle loses nothing."""
    disk = Disk()
    old = await start(disk, "flush_interval 1h\nsegment_size 4k\nchunk_limit_records 1\nqueued_chunks_limit_size 1000")
    new = await start(disk)
    old.script.then = TransientError("down")
    for number in range(200):
        await old.emit("t", {"n": number, "x": "y" * 300})
    await old.stop()
    assert len(disk.segments()) > 15
    store = new.pipeline.runners[0].buffer.store
    store._look_for_left()
    turns = 0
    while not new.script.got:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 15
    await new.clock.elapse(5)
    await new.work()
    assert sorted(record["n"] for record in new.script.got) == list(range(200))
    await new.stop()


async def test_a_stop_while_a_slot_is_taken_over_leaves_it_whole():
    disk = Disk()
    old = await start(disk, "flush_interval 1h\nsegment_size 4k\nchunk_limit_records 1\nqueued_chunks_limit_size 1000")
    new = await start(disk)
    old.script.then = TransientError("down")
    for number in range(200):
        await old.emit("t", {"n": number, "x": "y" * 300})
    await old.stop()
    store = new.pipeline.runners[0].buffer.store
    store._look_for_left()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.close()
    await asyncio.sleep(0)
    assert disk.open == {}
    again = await start(disk)
    await again.clock.elapse(5)
    await again.work()
    assert sorted(record["n"] for record in again.script.got) == list(range(200))
    await again.stop()
