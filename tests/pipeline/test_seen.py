"""Ids of accepted batches: bounded, and shared by the workers of a buffer on disk."""

import errno
import os

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.ack import BUFFER, DELIVERY, FSYNC
from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch
from headrace.pipeline.seen import Seen, SharedTable
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit

TEXT = """
<match **>
  @type script
  <buffer>
    @type file
    path {path}
    flush_mode immediate
    {more}
  </buffer>
</match>
"""


def test_the_oldest_are_forgotten():
    seen = Seen(limit=3)
    assert [seen.add(bytes([number])) for number in (1, 2, 3, 1, 4)] == [None, None, None, None, b"\x02"]
    assert [bytes([number]) in seen for number in (1, 2, 3, 4)] == [True, False, True, True]
    assert len(seen) == 3


def test_twins_know_each_other_and_no_one_else():
    table = SharedTable()
    one, twin, other = Seen(table=table, scope=b"a"), Seen(table=table, scope=b"a"), Seen(table=table, scope=b"b")
    one.add(b"id")
    assert b"id" not in twin
    assert twin.elsewhere(b"id")
    assert not other.elsewhere(b"id")
    assert not twin.elsewhere(b"di")
    assert not Seen().elsewhere(b"id")


def test_a_table_forgets_the_oldest_of_a_bucket_and_keeps_each_once():
    table = SharedTable()
    keys = [b"same" + bytes([number]) * 12 for number in range(1, 12)]
    for key in keys[:8]:
        table.add(key)
    for _ in range(10):
        table.add(keys[0])
    assert all(key in table for key in keys[:8])
    table.add(keys[8])
    assert keys[0] not in table
    assert all(key in table for key in keys[1:9])
    assert b"ame" + bytes([1]) * 13 not in table


def test_a_child_and_its_parent_share_a_table():
    table = SharedTable()
    pid = os.fork()
    if not pid:
        table.add(b"0123456789abcdef")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert b"0123456789abcdef" in table


def offer(kit, batch_id, number, ack=0):
    batch = Batch.of([(1, {"n": number})])
    batch.id = batch_id
    batch.ack = ack
    return kit.pipeline.router.emit("t", batch)


async def workers(tmp_path, more=""):
    text = TEXT.format(path=tmp_path / "buffer", more=more)
    return [await Kit(text, settings=Settings(worker_id=number, workers=2)).start() for number in (0, 1)]


async def test_a_batch_that_is_sent_again_to_another_worker_is_left_out(tmp_path):
    first, second = await workers(tmp_path)
    assert offer(first, b"x" * 16, 1) is None
    assert offer(second, b"x" * 16, 1) is None
    assert offer(second, b"y" * 16, 2) is None
    await first.work()
    await second.work()
    assert first.script.got == [{"n": 1}]
    assert second.script.got == [{"n": 2}]
    await first.stop()
    await second.stop()


@pytest.mark.parametrize(("more", "ack"), [("sync fsync", BUFFER), ("", FSYNC)])
@pytest.mark.parametrize("place", ["path", "root_dir"])
async def test_what_another_worker_has_is_on_the_disk_when_it_must_be(place, more, ack):
    """The disk of the elder need not have been asked yet: who is asked again sees to it."""
    disk, name = Disk(), os.urandom(16)
    text = TEXT.format(path="/buffer", more=more)
    if place == "root_dir":
        text = text.replace("path /buffer", "").replace("@type script", "@type script\n@id worker1")
    first, second = [
        await Kit(text, files=disk, settings=Settings(worker_id=number, workers=2, root_dir="/root")).start()
        for number in (0, 1)
    ]
    disk.fail("sync", OSError(errno.EIO, "broken"))  # the first one's own
    with pytest.raises(BufferOverflow):
        await offer(first, name, 1, ack)
    before = len(disk.log)
    assert offer(second, name, 1, ack) is None
    assert [path for name, path in disk.log[before:] if name == "sync" and "worker0" in path]
    await first.work()
    await second.work()
    assert first.script.got == [{"n": 1}]
    assert second.script.got == []
    await first.stop()
    await second.stop()


async def test_a_disk_that_fails_lets_it_be_taken_anew():
    disk, name = Disk(), os.urandom(16)
    text = TEXT.format(path="/buffer", more="sync fsync")
    first, second = [
        await Kit(text, files=disk, settings=Settings(worker_id=number, workers=2)).start() for number in (0, 1)
    ]
    await offer(first, name, 1)
    disk.fail("sync", OSError(errno.EIO, "broken"))
    await offer(second, name, 1)
    await first.work()
    await second.work()
    assert first.script.got == second.script.got == [{"n": 1}]
    await first.stop()
    await second.stop()


async def test_whether_it_is_delivered_only_the_other_worker_knows(tmp_path):
    first, second = await workers(tmp_path)
    name = os.urandom(16)
    waiting = [offer(kit, name, 1, DELIVERY) for kit in (first, second)]
    await first.work()
    await second.work()
    for one in waiting:
        assert one is not None
        await one
    assert first.script.got == second.script.got == [{"n": 1}]
    await first.stop()
    await second.stop()
