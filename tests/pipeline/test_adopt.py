"""Fluentd's buffer files are taken over: in order, each once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zlib

import pytest
import zstandard

from headrace.pipeline.adopt import whole_lines
from headrace.pipeline.context import Settings
from headrace.pipeline.event import pack_event
from headrace.pipeline.files import Files
from headrace.pipeline.fluentfiles import ChunkMeta, Location, escaped, locations, read_meta, unescaped, write_meta
from headrace.pipeline.placeholders import Meta
from headrace.testing.pipelines import Kit, TransientError

NOW = 1_700_000_000


def ident(number: int) -> bytes:
    return bytes([0x61]) + number.to_bytes(15, "big")


def packed(*numbers: int) -> bytes:
    return b"".join(pack_event(NOW * 10**9, {"n": number}) for number in numbers)


def put(
    folder, number, data, *, state="q", count=None, tag="t", modified=None, name="buffer", suffix=".log", meta=None
):
    """Write a chunk and its .meta as Fluentd does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{state}{ident(number).hex()}{suffix}"
    path.write_bytes(data)
    if meta is None:
        told = ChunkMeta(ident(number), count or 0, NOW + number, modified or NOW + number + 0.5, Meta(tag))
        meta = write_meta(told)
    path.with_name(path.name + ".meta").write_bytes(meta)
    return path


def conf(path, argument="tag", extra="", type_="file") -> str:
    return f"""
<match **>
  @type script
  @id out
  <buffer {argument}>
    @type {type_}
    path {path}
    flush_interval 1s
    {extra}
  </buffer>
</match>
"""


def kit_of(tmp_path, text, **settings) -> Kit:
    return Kit(text, settings=Settings(root_dir=str(tmp_path / "root"), **settings))


async def delivered(tmp_path, text, **settings) -> list[int]:
    kit = await kit_of(tmp_path, text, **settings).start()
    await kit.work()
    assert kit.balanced()
    await kit.stop()
    return [record["n"] for record in kit.script.got]


def left(folder) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name.startswith(("buffer", "fsb", "custom")))


async def test_queued_chunks_come_first_then_staged_ones_each_by_age(tmp_path):
    put(tmp_path / "b", 5, packed(5), state="b", count=1)
    put(tmp_path / "b", 4, packed(4), count=1)
    put(tmp_path / "b", 3, packed(3), count=1)
    put(tmp_path / "b", 1, packed(1, 2), count=2, modified=NOW)
    put(tmp_path / "b", 6, packed(6), state="b", count=1, modified=NOW + 100)
    assert await delivered(tmp_path, conf(tmp_path / "b")) == [1, 2, 3, 4, 5, 6]
    assert left(tmp_path / "b") == []
    assert await delivered(tmp_path, conf(tmp_path / "b")) == []


async def test_the_metadata_come_with_the_chunk(tmp_path):
    told = ChunkMeta(ident(1), 1, NOW, NOW, Meta("a.b", 1_699_999_200, {"k": 7}))
    put(tmp_path / "b", 1, packed(1), meta=write_meta(told))
    kit = await kit_of(tmp_path, conf(tmp_path / "b", "tag,time,k", "timekey 1h")).start()
    await kit.work()
    assert kit.script.metas == [told.meta]
    assert kit.script.tries[0][1] == ident(1)
    await kit.stop()


@pytest.mark.parametrize("compress", [lambda data: zlib.compress(data, wbits=31), zstandard.compress])
async def test_compressed_chunks_have_a_member_for_each_append(tmp_path, compress):
    put(tmp_path / "b", 1, compress(packed(1, 2)) + compress(packed(3)), count=3)
    assert await delivered(tmp_path, conf(tmp_path / "b")) == [1, 2, 3]


async def test_chunks_without_events_disappear_and_other_files_stay(tmp_path, caplog):
    put(tmp_path / "b", 1, b"", state="b", count=0)
    (tmp_path / "b" / "buffer.other.log").write_text("not a chunk")
    assert await delivered(tmp_path, conf(tmp_path / "b")) == []
    assert left(tmp_path / "b") == ["buffer.other.log"]
    assert "damaged" not in caplog.text


async def test_damaged_pairs_are_set_aside_with_a_line_each(tmp_path, caplog):
    folder = tmp_path / "b"
    whole = packed(*range(10))
    put(folder, 1, whole[: len(whole) // 2 + 3], count=10)
    put(folder, 2, packed(20), meta=bytes(60))
    put(folder, 3, b"", meta=b"")
    put(folder, 4, packed(40), count=1)
    put(folder, 5, packed(50) + bytes(100), count=1)
    kit = await kit_of(tmp_path, conf(folder)).start()
    await kit.clock.elapse(30)
    assert [record["n"] for record in kit.script.got] == [0, 1, 2, 3, 4, 40, 50]
    assert kit.balanced()
    lines = [record.message for record in caplog.records if "damaged" in record.message]
    assert len(lines) == 4
    for number, line in zip((1, 2, 3, 5), sorted(lines), strict=True):
        assert ident(number).hex() in line
        assert " written between " in line
        assert "+00:00" in line
    assert "5 of 10 events are missing" in caplog.text
    assert kit.stats()["damaged"] == 4
    backup = {one.name for one in (tmp_path / "root" / "backup" / "worker0" / "out").iterdir()}
    assert {f"{ident(1).hex()}.damaged", f"{ident(2).hex()}.log", f"{ident(3).hex()}.log"} <= backup
    assert left(folder) == []
    await kit.stop()


async def test_every_cut_of_a_chunk_leaves_its_whole_records(tmp_path):
    whole = packed(1, 2, 3)
    one = len(packed(1))
    for cut in range(1, len(whole)):
        put(tmp_path / f"b{cut}", 1, whole[:cut], count=3)
        assert await delivered(tmp_path, conf(tmp_path / f"b{cut}")) == [1, 2, 3][: cut // one]


async def test_a_cut_compressed_chunk_is_delivered_as_far_as_it_goes(tmp_path):
    data = zlib.compress(packed(1), wbits=31) + zlib.compress(packed(*range(2, 5000)), wbits=31)
    put(tmp_path / "b", 1, data[: len(data) // 2], count=4999)
    got = await delivered(tmp_path, conf(tmp_path / "b"))
    assert got == list(range(1, len(got) + 1))
    assert 1 < len(got) < 4999


async def test_what_cannot_be_delivered_stays_where_fluentd_finds_it(tmp_path):
    path = put(tmp_path / "b", 1, packed(1), count=1)
    before = path.read_bytes()
    kit = await kit_of(tmp_path, conf(tmp_path / "b")).start()
    kit.script.then = TransientError("down")
    await kit.work()
    await kit.stop()
    assert path.read_bytes() == before
    assert read_meta(path.with_name(path.name + ".meta").read_bytes()).events == 1
    assert await delivered(tmp_path, conf(tmp_path / "b")) == [1]


async def test_new_events_and_old_chunks_share_the_limits(tmp_path):
    put(tmp_path / "b", 1, packed(*range(100)), count=100)
    kit = await kit_of(tmp_path, conf(tmp_path / "b")).start()
    kit.script.then = TransientError("down")
    await kit.emit("t", {"n": 1})
    assert kit.stats()["buffered"] == 101
    assert kit.stats()["restored"] == 100
    assert kit.balanced()
    await kit.stop()


async def test_each_worker_takes_its_own_and_worker_0_what_nobody_has(tmp_path):
    folder = tmp_path / "b"
    put(folder, 1, packed(1), count=1)
    for number in range(4):
        put(folder / f"worker{number}", 10 + number, packed(10 + number), count=1)
    assert await delivered(tmp_path, conf(folder), worker_id=1, workers=2) == [11]
    assert sorted(await delivered(tmp_path, conf(folder), worker_id=0, workers=2)) == [1, 10, 12, 13]


async def test_names_with_a_star(tmp_path):
    put(tmp_path, 1, packed(1), count=1, name="custom")
    assert await delivered(tmp_path, conf(tmp_path / "custom.*")) == [1]
    put(tmp_path, 1, packed(1), count=1, name="custom", suffix=".chunk")
    assert await delivered(tmp_path, conf(tmp_path / "custom.*.chunk")) == [1]
    put(tmp_path / "c", 1, packed(1), count=1, suffix=".buf")
    assert await delivered(tmp_path, conf(tmp_path / "c", extra="path_suffix .buf")) == [1]


async def test_a_second_generation_waits_for_the_first(tmp_path):
    put(tmp_path / "b", 1, packed(1), count=1)
    first = await kit_of(tmp_path, conf(tmp_path / "b")).start()
    first.script.then = TransientError("down")
    await first.work()
    second = await kit_of(tmp_path, conf(tmp_path / "b")).start()
    await second.work()
    assert second.script.got == []
    await first.stop()
    await second.clock.elapse(6)
    assert second.script.got == [{"n": 1}]
    await second.stop()


async def test_files_that_a_living_fluentd_has_open_are_left_alone(tmp_path, caplog):
    path = put(tmp_path / "b", 1, packed(1), count=1)
    code = "import sys; file = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        kit = await kit_of(tmp_path, conf(tmp_path / "b")).start()
        await kit.clock.elapse(12)
        assert kit.script.got == []
        assert caplog.text.count(f"process {other.pid}") == 1
    finally:
        other.communicate()
    await kit.clock.elapse(6)
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_a_damaged_chunk_that_cannot_be_moved_holds_up_no_other(tmp_path, caplog):
    folder = tmp_path / "b"
    put(folder, 1, packed(1), meta=bytes(60))
    put(folder, 2, packed(2), count=1)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "backup").write_text("a file in the way")
    kit = await kit_of(tmp_path, conf(folder)).start()
    await kit.work()
    assert kit.script.got == [{"n": 2}]
    assert "cannot be taken over now" in caplog.text
    (tmp_path / "root" / "backup").unlink()
    await kit.clock.elapse(6)
    assert [path.name for path in (tmp_path / "root" / "backup" / "worker0" / "out").glob("*.log")] == [
        f"{ident(1).hex()}.log"
    ]
    await kit.stop()


def test_text_that_was_cut_within_a_line_is_delivered_up_to_it():
    assert whole_lines(b"a\nb\nc", 3) == (2, 4)
    assert whole_lines(b"a\nb\nc\n", 3) == (3, 6)
    assert whole_lines(b"a\nb\n" + bytes(10), 2) == (2, 4)
    assert whole_lines(b"a\nb" + bytes(10), 2) == (1, 2)
    assert whole_lines(b"no newlines at all", 5) == (5, 18)
    assert whole_lines(bytes(10), 1) == (0, 0)
    assert whole_lines(b"a\nb\n", -1) == (2, 4)


async def test_a_chunk_without_meta_needs_no_chunk_keys(tmp_path, caplog):
    for number in (1, 2):
        path = put(tmp_path / f"b{number}", number, packed(number))
        os.unlink(f"{path}.meta")
    assert await delivered(tmp_path, conf(tmp_path / "b1", "")) == [1]
    assert await delivered(tmp_path, conf(tmp_path / "b2", "tag")) == []
    assert "its .meta file is missing" in caplog.text


async def test_a_kill_at_any_operation_neither_loses_nor_repeats(tmp_path):
    """Delivery and removal are two steps; what is repeated is at most the chunk between them."""

    class Dying(Files):
        left = 0

        def unlink(self, path):
            if path.startswith(str(tmp_path)) and ".q61" in path:
                if not self.left:
                    raise OSError(5, "the process is gone")
                self.left -= 1
            super().unlink(path)

    for steps in range(7):
        folder = tmp_path / f"b{steps}"
        for number in (1, 2, 3):
            put(folder, number, packed(number), count=1)
        files = Dying()
        files.left = steps
        kit = Kit(conf(folder), settings=Settings(root_dir=str(tmp_path / "root")), files=files)
        await kit.start()
        kit.script.answers = [None] * (steps // 2 + 1) + [TransientError("cut")] * 9
        await kit.work()
        await kit.stop()
        got = [record["n"] for record in kit.script.got]
        again = await delivered(tmp_path, conf(folder))
        assert sorted({*got, *again}) == [1, 2, 3]
        assert len(got) + len(again) <= 4
        assert left(folder) == []


def test_meta_files_come_back_as_they_were():
    told = ChunkMeta(ident(1), 3, 1.5, 2.5, Meta("t", 60, {"a": "\udcff", "b": None}), {"dead": {"error": "x"}})
    assert read_meta(write_meta(told)) == told
    assert read_meta(write_meta(told)[6:]) == told


@pytest.mark.parametrize("data", [b"", bytes(60), b"\xc1\x00", b"\xc1\x00\x00\x00\x00\x09\x80", b"\x80", b"\x01"])
def test_damaged_meta_files_are_told(data):
    with pytest.raises(ValueError, match=r"."):
        read_meta(data)


@pytest.mark.parametrize("tag", ["a.b", "a/b c", "\u00e9%", "\udcff", ""])
def test_tags_in_names(tag):
    assert unescaped(escaped(tag)) == tag
    place = Location("/x", "fsb", ".buf", single=True)
    name = place.name("q", ident(1), escaped(tag))
    assert "/" not in name
    assert place.parse(name) == ("q", ident(1), escaped(tag))


def test_locations_follow_fluentd(tmp_path):
    def at(path, **options):
        asked = {"worker": 0, "workers": 1, "names": (), "single": False, **options}
        return [(one.folder, one.prefix, one.suffix) for one in locations(path, ".log", **asked)]

    assert at("/no/where") == [("/no/where", "buffer", ".log")]
    assert at("/no/where", workers=2, worker=1) == [("/no/where/worker1", "buffer", ".log")]
    assert at("/no/x.*") == [("/no", "x", ".log")]
    assert at("/no/x.*.y") == [("/no", "x", ".y")]
    (tmp_path / "file").write_text("")
    assert at(str(tmp_path / "file")) == [(str(tmp_path), "file", ".log")]
    assert at("/no/x.*.y", single=True) == [("/no", "fsb", ".buf")]
    assert at("/no/x.*", worker=1, workers=2) == []


async def test_the_loop_is_not_needed_to_adopt(tmp_path):
    """Many files cost no descriptors."""
    for number in range(1, 400):
        put(tmp_path / "b", number, packed(number), count=1)
    open_before = len(os.listdir("/proc/self/fd"))
    kit = await kit_of(tmp_path, conf(tmp_path / "b")).start()
    assert len(os.listdir("/proc/self/fd")) < open_before + 10
    await kit.work()
    await asyncio.sleep(0)
    assert [record["n"] for record in kit.script.got] == list(range(1, 400))
    await kit.stop()
