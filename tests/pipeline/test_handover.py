"""What is in memory at a reload while the destination is down goes to the worker that takes over."""

from __future__ import annotations

import errno
import os

import pytest

from headrace.pipeline.context import Settings
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, Script, TransientError

CONF = """
<match **>
  @type script
  @id out
  <buffer KEYS>
    @type memory
    EXTRA
    flush_interval 1s
    chunk_limit_records 2
    queued_chunks_limit_size 1000
    retry_forever true
    retry_max_interval 1s
  </buffer>
</match>
"""


def conf(keys: str = "tag", extra: str = "") -> str:
    return CONF.replace("KEYS>", keys.replace("\n", ">\n", 1) if "\n" in keys else f"{keys}>").replace("EXTRA", extra)


async def elder(text: str, disk: Disk, *, worker: int = 0, workers: int = 1, heir: bool = True) -> Kit:
    """A worker that ends while its destination is down, with ten events in memory."""
    settings = Settings(root_dir="/root", worker_id=worker, workers=workers)
    kit = await Kit(text, files=disk, settings=settings).start()
    kit.script.then = TransientError("down")
    for number in range(10):
        await kit.emit(f"t.{number % 2}", {"n": number})
        await kit.clock.elapse(0.01)
    await kit.clock.elapse(1.5)
    await kit.stop(within=30, heir=heir)
    return kit


def numbers(kit: Kit) -> list[int]:
    return [record["n"] for record in kit.script.got]


@pytest.mark.parametrize("extra", ["", "compress gzip", "compress zstd", "flush_at_shutdown false"])
@pytest.mark.parametrize("keys", ["", "tag", "tag,time\n timekey 1h\n timekey_wait 0"])
async def test_the_next_worker_delivers_it_once_and_in_order(keys, extra):
    disk = Disk()
    # The next one serves already when the elder is told to stop.
    younger = await Kit(conf(keys, extra), files=disk, settings=Settings(root_dir="/root")).start()
    old = await elder(conf(keys, extra), disk)
    assert old.balanced()
    assert old.stats()["dropped"]["lost_at_shutdown"] == 0
    assert not old.script.got
    await younger.clock.elapse(7)
    assert sorted(numbers(younger)) == list(range(10))
    for rest in (0, 1):
        mine = [number for number in numbers(younger) if number % 2 == rest]
        assert mine == sorted(mine)
    assert younger.balanced()
    await younger.stop()
    assert not [path for path in disk.files if "/replay/dead." in path]
    again = await Kit(conf(keys, extra), files=disk, settings=Settings(root_dir="/root")).start()
    await again.clock.elapse(7)
    assert numbers(again) == []
    await again.stop()


async def test_tags_are_kept():
    disk = Disk()
    await elder(conf(), disk)
    younger = await Kit(conf(), files=disk, settings=Settings(root_dir="/root")).start()
    await younger.clock.elapse(2)
    assert {meta.tag for meta in younger.script.metas} == {"t.0", "t.1"}
    await younger.stop()


async def test_without_a_next_worker_it_is_lost_and_counted():
    disk = Disk()
    old = await elder(conf(), disk, heir=False)
    assert old.stats()["dropped"]["lost_at_shutdown"] == 10
    assert old.balanced()
    assert not [path for path in disk.files if "/replay/" in path]


async def test_what_a_worker_left_of_which_there_is_none_any_more():
    """Four workers before, two now."""
    disk = Disk()
    younger = [
        await Kit(conf(), files=disk, settings=Settings(root_dir="/root", worker_id=index, workers=2)).start()
        for index in range(2)
    ]
    await elder(conf(), disk, worker=3, workers=4)
    for kit in younger:
        await kit.clock.elapse(7)
    assert sorted(numbers(younger[0])) == list(range(10))
    assert numbers(younger[1]) == []
    for kit in younger:
        await kit.stop()


async def test_a_disk_that_takes_nothing_loses_it_and_says_so(caplog):
    disk = Disk()
    disk.fail("append", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), times=10**6)
    old = await elder(conf(), disk)
    assert old.stats()["dropped"]["lost_at_shutdown"] == 10
    assert old.balanced()
    assert "cannot be handed over" in caplog.text
    assert "10 events in memory are lost" in caplog.text


async def test_an_output_that_formats_text():
    class Lines(Script):
        name = "script"

        def format(self, tag, time, record):
            return f"{record['n']}\n".encode()

        async def write(self, chunk, lane):
            if self.then is not None:
                raise self.then
            self.text = getattr(self, "text", b"") + chunk.read()

    disk = Disk()
    old = await Kit(conf(), plugins=[Lines], files=disk, settings=Settings(root_dir="/root")).start()
    old.of(Lines).then = TransientError("down")
    for number in range(4):
        await old.emit("t", {"n": number})
    await old.stop(heir=True)
    younger = await Kit(conf(), plugins=[Lines], files=disk, settings=Settings(root_dir="/root")).start()
    await younger.clock.elapse(2)
    assert younger.of(Lines).text == b"0\n1\n2\n3\n"
    await younger.stop()
