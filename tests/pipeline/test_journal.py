"""The file buffer: restart, damage, power cuts, full disks, space."""

from __future__ import annotations

import asyncio
import errno
import re

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch
from headrace.pipeline.segment import HEADER_SIZE, scan
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, Script, TransientError, settle

FOLDER = "/buf/journal.0"


def conf(buffer: str = "", argument: str = "") -> str:
    return f"""
<match **>
  @type script
  @id out
  <buffer {argument}>
    @type file
    path /buf
    flush_interval 1s
    retry_randomize false
    {buffer}
  </buffer>
</match>
"""


async def start(disk: Disk, buffer: str = "", argument: str = "") -> Kit:
    return await Kit(conf(buffer, argument), files=disk, settings=Settings(root_dir="/root")).start()


async def run_again(disk: Disk, buffer: str = "", argument: str = "") -> list[int]:
    """What a new process delivers from what it finds."""
    kit = await start(disk, buffer, argument)
    await kit.clock.elapse(2)
    await kit.work()
    got = [record["n"] for record in kit.script.got]
    assert kit.stats()["buffered"] == 0
    await kit.stop()
    return got


async def written(count: int, buffer: str = "", argument: str = "") -> Disk:
    """A disk with some one-record transactions, left by a process that died."""
    disk = Disk()
    kit = await start(disk, "flush_interval 1h\n" + buffer, argument)
    for number in range(count):
        await kit.emit(f"t{number % 3}", {"n": number})
    after = disk.copy()
    await kit.stop()
    return after


async def test_a_restart_delivers_every_event_once_in_order():
    disk = await written(100, "chunk_limit_records 1\nqueued_chunks_limit_size 1000")
    assert await run_again(disk) == list(range(100))
    assert await run_again(disk) == []


@pytest.mark.parametrize(
    ("events", "text"), [(1, "1 chunk with 1 event was left"), (2, "2 chunks with 2 events were left")]
)
async def test_what_was_left_is_told_in_words_that_fit(caplog, events, text):
    disk = await written(events, "chunk_limit_records 1\nqueued_chunks_limit_size 1000")
    with caplog.at_level("INFO"):
        await run_again(disk)
    assert f"{FOLDER}: {text} by an earlier run" in caplog.text


async def test_many_chunks_with_equal_keys_are_all_restored():
    disk = Disk()
    kit = await start(disk, "chunk_limit_records 1\ntimekey 1h", "tag,time")
    kit.script.answers = [asyncio.get_running_loop().create_future()]
    for number in range(100):
        await kit.emit("t", {"n": number}, time=1_700_000_000 * 10**9)
    after = disk.copy()
    assert kit.stats()["buffered"] == 100
    kit2 = await start(after, argument="tag,time", buffer="timekey 1h")
    await kit2.work()
    assert [record["n"] for record in kit2.script.got] == list(range(100))
    assert len(kit2.script.chunks) == 100
    assert kit2.script.metas[0].timekey == 1_700_000_000 // 3600 * 3600
    assert kit2.balanced()
    await kit2.stop()
    await kit.stop(0.1)


async def test_a_clean_stop_keeps_what_is_not_flushed():
    disk = Disk()
    kit = await start(disk, "flush_interval 1h")
    await kit.emit("t", {"n": 1}, {"n": 2})
    await kit.stop()
    assert kit.script.got == []
    assert disk.open == {}
    assert await run_again(disk) == [1, 2]


async def test_delivered_chunks_do_not_come_back():
    disk = Disk()
    kit = await start(disk, "chunk_limit_records 1")
    for number in range(10):
        await kit.emit("t", {"n": number})
    await kit.clock.elapse(1)
    await kit.emit("t", {"n": 99})
    kit.script.answers = [asyncio.get_running_loop().create_future()]
    assert await run_again(disk.copy()) in ([], [99])
    await kit.stop(0.1)


@pytest.mark.parametrize("compress", ["text", "gzip", "zstd"])
async def test_every_cut_leaves_a_prefix(compress, caplog):
    whole = await written(12, f"compress {compress}")
    (path,) = whole.segments()
    data = whole.data(path)
    ends = [span.end for span in scan(data, 1)]
    assert len(ends) == 12
    for size in range(0, len(data), 7 if compress == "text" else 41):
        disk = whole.copy()
        disk.put(path, data[:size])
        complete = sum(end <= size for end in ends)
        assert await run_again(disk) == list(range(complete)), size
        caplog.clear()
        assert await run_again(disk) == []
        assert "damaged" not in caplog.text


async def test_a_flipped_byte_costs_its_record_and_no_other(caplog):
    whole = await written(64, argument="tag")
    (path,) = whole.segments()
    data = whole.data(path)
    spans = list(scan(data, 1))
    assert len(spans) == 64
    for number, span in enumerate(spans):
        for at in range(span.start + number % 5, span.end, 23):
            disk = whole.copy()
            disk.put(path, data[:at] + bytes((data[at] ^ 0x5A,)) + data[at + 1 :])
            caplog.clear()
            got = await run_again(disk, argument="tag")
            assert sorted(got) == [n for n in range(64) if n != number]
            lines = [line for line in caplog.messages if "is damaged" in line]
            assert len(lines) == 1
            assert path in lines[0]
            assert "2023-11-14T22:13:20" in lines[0]
            saved = [name for name in disk.files if name.startswith("/root/backup/worker0/out/")]
            assert any(disk.data(name) == disk_part(data, at, span) for name in saved)
            caplog.clear()
            assert await run_again(disk, argument="tag") == []
            assert "damaged" not in caplog.text


def disk_part(data: bytes, at: int, span) -> bytes:
    part = bytearray(data[span.start : span.end])
    part[at - span.start] ^= 0x5A
    return bytes(part)


async def test_a_compressed_chunk_is_delivered_up_to_the_gap():
    whole = await written(9, "compress gzip")
    (path,) = whole.segments()
    data = bytearray(whole.data(path))
    span = list(scan(bytes(data), 1))[5]
    data[span.end - 1] ^= 1
    disk = whole.copy()
    disk.put(path, bytes(data))
    assert await run_again(disk) == [0, 1, 2, 3, 4]
    assert any(name.endswith(".pieces") for name in disk.files)


async def test_zeroed_empty_and_halved_segments(caplog):
    disk = await written(40, "segment_size 4k\nchunk_limit_records 10")
    kit_disk = Disk()
    kit = await start(
        kit_disk, "flush_interval 1h\nsegment_size 4k\nchunk_limit_records 4\nqueued_chunks_limit_size 99"
    )
    kit.script.then = TransientError("down")
    for number in range(160):
        await kit.emit("t", {"n": number, "x": "y" * 50})
    disk = kit_disk.copy()
    await kit.stop(0.1)
    paths = disk.segments()
    assert len(paths) > 3
    bodies = [disk.data(path) for path in paths]
    per = [list(scan(body, number + 1)) for number, body in enumerate(bodies)]
    disk.put(paths[0], bodies[0][: len(bodies[0]) // 2])
    disk.put(paths[1], bytes(len(bodies[1])))
    disk.put(paths[2], b"")
    got = await run_again(disk)
    kept = {sum(len(x) for x in per[:3]) + at for at in range(sum(len(x) for x in per[3:]))}
    assert kept - set(got) <= {min(kept), min(kept) + 1, min(kept) + 2}  # a chunk begun in the lost part
    assert got == sorted(got)
    assert len(got) == len(set(got))
    named = [line for line in caplog.messages if "is damaged" in line]
    assert any(paths[0] in line for line in named)
    assert any(paths[1] in line for line in named)
    assert await run_again(disk) == []


async def test_a_power_cut_loses_at_most_what_was_not_synced():
    disk = Disk()
    kit = await start(disk, "flush_interval 1h")
    for number in range(5):
        await kit.emit("t", {"n": number})
    await kit.clock.elapse(0.45)
    for _ in range(200):
        if any(operation == "sync" for operation, _path in disk.log):
            break
        await asyncio.sleep(0.01)
    await settle()
    for number in range(5, 8):
        await kit.emit("t", {"n": number})
    after = disk.power_cut(keep=lambda _path, safe, _size: safe)
    assert await run_again(after) == [0, 1, 2, 3, 4]
    torn = disk.power_cut(keep=lambda _path, safe, size: (safe + size) // 2)
    got = await run_again(torn)
    assert got == list(range(len(got)))
    assert len(got) >= 5
    await kit.stop()


async def test_fsync_mode_acknowledges_only_what_is_on_the_disk():
    disk = Disk()
    kit = await start(disk, "flush_interval 1h\nsync fsync")
    outcomes = [kit.offer("t", {"n": number}) for number in range(50)]
    assert all(outcome is not None for outcome in outcomes)
    await asyncio.gather(*outcomes)
    syncs = sum(operation == "sync" for operation, _path in disk.log)
    assert syncs <= 3
    assert await run_again(disk.power_cut(keep=lambda _path, safe, _size: safe)) == list(range(50))
    disk.fail("sync", OSError(errno.EIO, "I/O error"))
    outcome = kit.offer("t", {"n": 50})
    with pytest.raises(BufferOverflow, match="cannot be synced"):
        await outcome
    await kit.emit("t", {"n": 51})
    await kit.stop()


class Cutter:
    """Takes a picture of the disk as a power cut at operation number `at` would leave it."""

    def __init__(self, disk: Disk, at: int) -> None:
        self.disk = disk
        self.at = at
        self.seen = 0
        self.picture: Disk | None = None
        self.acknowledged: list[int] = []
        self.safe: list[int] = []

    def __call__(self, operation: str, _path: str) -> None:
        if operation in {"append", "sync", "create", "unlink", "truncate", "sync_dir"}:
            if self.seen == self.at:
                self.picture = self.disk.power_cut(keep=lambda _p, safe, size: safe + (size - safe) // 2)
                self.safe = list(self.acknowledged)
            self.seen += 1


async def test_every_prefix_of_the_operations_recovers():
    """Power may go at any operation: what was acknowledged before it with fsync is there."""
    for at in range(1000):
        disk = Disk()
        disk.before = cut = Cutter(disk, at)
        kit = await start(disk, "flush_interval 1h\nsync fsync\nsegment_size 4k\nchunk_limit_records 3")
        kit.script.refuse = lambda chunk: None if chunk.events()[0][1]["n"] % 2 else TransientError("down")
        for number in range(12):
            await kit.emit("t", {"n": number, "x": "y" * 500})
            cut.acknowledged.append(number)
        await kit.clock.elapse(0.1)
        delivered = {record["n"] for record in kit.script.got}
        await kit.stop(0.1)
        if cut.picture is None:
            break
        got = await run_again(cut.picture)
        assert set(cut.safe) <= set(got) | delivered
        assert len(got) == len(set(got))
    assert at > 20


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_disk_that_refuses_keeps_nothing_and_works_again(code):
    disk = Disk()
    kit = await start(disk, "flush_interval 1h")
    await kit.emit("t", {"n": 0})
    disk.fail("append", OSError(code, "no"), times=2)
    with pytest.raises(BufferOverflow, match="cannot be written"):
        await kit.emit("t", {"n": 1}, {"n": 2})
    assert kit.stats()["buffered"] == 1
    await kit.emit("t", {"n": 3})
    assert await run_again(disk.copy()) == [0, 3]
    await kit.stop()


@pytest.mark.parametrize("compress", ["text", "gzip", "zstd"])
async def test_short_writes_are_undone(compress):
    disk = Disk()
    kit = await start(disk, f"flush_interval 1h\ncompress {compress}\nchunk_limit_size 4k")
    taken: list[int] = []
    disk.room = 3000
    for number in range(200):
        try:
            await kit.emit("t", {"n": number, "x": str(number) * 30})
        except BufferOverflow:
            continue
        taken.append(number)
    assert 5 < len(taken) < 200
    disk.room = None
    await kit.emit("t", {"n": 1000})
    assert sorted(await run_again(disk.copy())) == [*taken, 1000]
    await kit.stop()


async def test_a_file_that_cannot_be_cut_back_is_left():
    disk = Disk()
    kit = await start(disk, "flush_interval 1h")
    await kit.emit("t", {"n": 0})
    disk.room = 10
    disk.fail("truncate", OSError(errno.EIO, "no"), times=1)
    with pytest.raises(BufferOverflow):
        await kit.emit("t", {"n": 1})
    disk.room = None
    await kit.emit("t", {"n": 2})
    assert len(disk.segments()) == 2
    assert await run_again(disk.copy()) == [0, 2]
    await kit.stop()


async def test_segments_go_when_their_chunks_are_delivered():
    disk = Disk()
    kit = await start(disk, "segment_size 8k\nchunk_limit_records 5")
    for number in range(500):
        await kit.emit("t", {"n": number, "x": "y" * 100})
        await settle(3)
    await kit.clock.elapse(2)
    assert len(kit.script.got) == 500
    assert len(disk.segments()) == 1
    await kit.stop()
    assert disk.segments() == []


async def test_a_long_lived_chunk_does_not_pin_the_disk():
    disk = Disk()
    kit = await start(disk, "segment_size 8k\nflush_interval 1h\nchunk_limit_records 5", "tag")
    await kit.emit("old", {"n": -1})
    for number in range(2000):
        await kit.emit("t", {"n": number, "x": "y" * 100})
        await settle(3)
        if number % 100 == 0:
            await kit.clock.elapse(0.5)
            await asyncio.sleep(0.01)
    total = sum(disk.size(path) for path in disk.segments())
    assert total < 8 * 8192
    got = await run_again(disk.copy(), argument="tag")
    assert got[0] == -1
    assert len(got) <= 6
    await kit.stop()


async def test_another_process_gets_a_slot_of_its_own_and_what_is_left_is_adopted():
    disk = Disk()
    first = await start(disk, "flush_interval 1h")
    await first.emit("t", {"n": 1})
    second = await start(disk)
    await second.emit("t", {"n": 2})
    await second.clock.elapse(20)
    assert second.script.got == [{"n": 2}]
    await first.stop()
    await second.clock.elapse(10)
    assert second.script.got == [{"n": 2}, {"n": 1}]
    assert second.balanced()
    await second.stop()
    assert disk.segments() == []
    assert disk.open == {}


async def test_two_outputs_cannot_share_a_path():
    text = conf() + conf().replace("@id out", "@id other")
    kit = Kit(text, files=Disk())
    assert any('already that of "out"' in error for error in kit.errors)


async def test_a_path_is_needed():
    text = conf().replace("path /buf", "").replace("@id out", "")
    assert any("has no path" in error for error in Kit(text).errors)


async def test_ids_of_accepted_batches_survive():
    disk = Disk()
    kit = await start(disk, "flush_interval 1h")

    def again(target: Kit, name: bytes, number: int):
        batch = Batch.of([(1, {"n": number})])
        batch.id = name
        return target.pipeline.router.emit("t", batch)

    again(kit, b"one", 1)
    again(kit, b"one", 1)
    assert kit.stats()["buffered"] == 1
    kit2 = await start(disk.copy(), "flush_interval 1h")
    again(kit2, b"one", 1)
    again(kit2, b"two", 2)
    assert kit2.stats()["buffered"] == 2
    await kit.stop()
    await kit2.stop()


async def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("headrace.pipeline.filestore.CACHE", 1000)
    disk = Disk()
    kit = await start(disk, "compress gzip")
    for number in range(300):
        await kit.emit("t", {"n": number, "x": str(number * number)})
    await kit.clock.elapse(2)
    assert [record["n"] for record in kit.script.got] == list(range(300))
    await kit.stop()


async def test_real_files(tmp_path):
    text = conf("flush_interval 1h\nsegment_size 8k").replace("path /buf", f"path {tmp_path}/buf")
    kit = await Kit(text).start()
    for number in range(200):
        await kit.emit("t", {"n": number, "x": "y" * 100})
    await kit.stop()
    names = sorted(path.name for path in (tmp_path / "buf" / "journal.0").iterdir())
    assert len(names) > 2
    assert all(re.fullmatch(r"lock|\d{16}\.journal", name) for name in names)
    again = await Kit(text.replace("flush_interval 1h", "")).start()
    await again.clock.elapse(2)
    assert [record["n"] for record in again.script.got] == list(range(200))
    await again.stop()
    assert [path.name for path in (tmp_path / "buf" / "journal.0").iterdir()] == ["lock"]


def test_the_header_is_as_documented():
    assert HEADER_SIZE == 24
    assert Script.name == "script"
