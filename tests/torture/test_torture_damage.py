"""Damage of a chunk of 64 records: every byte flipped, the file cut at every length.

At most the record that was hit is lost, none is wrong, and each loss is counted and named.
"""

from __future__ import annotations

import logging

import pytest

from headrace.pipeline.context import Settings
from headrace.pipeline.segment import HEADER_SIZE, scan
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit

CONF = """
<match **>
  @type script
  @id out
  <buffer tag>
    @type file
    path /buf
    flush_interval 1h
    chunk_limit_records 64
    chunk_full_threshold 1.0
  </buffer>
</match>
"""
RECORDS = 64


def record(number: int) -> dict:
    return {"n": number, "text": f"line {number} of sixty-four", "f": number / 7}


async def start(disk: Disk) -> Kit:
    return await Kit(CONF, files=disk, settings=Settings(root_dir="/root")).start()


async def written() -> tuple[Disk, str]:
    disk = Disk()
    kit = await start(disk)
    for number in range(RECORDS - 1):
        await kit.emit("t", record(number))
    after = disk.copy()
    assert kit.stats()["buffer_stage_length"] == 1  # one chunk
    await kit.stop()
    (path,) = after.segments()
    return after, path


async def read(disk: Disk, caplog) -> tuple[list[dict], dict, list[str]]:
    """What is delivered, the figures, and the lines about damage."""
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        kit = await start(disk)
    kit.pipeline.flush()
    await kit.work()
    got, figures = kit.script.got, kit.stats()
    await kit.stop(0.1)
    return got, figures, [line for line in caplog.messages if "damaged" in line]


def judge(got, figures, lines, *, hit: set[int], path: str) -> None:
    """hit: the records whose bytes were touched; empty for the header of the file."""
    numbers = [one["n"] for one in got]
    assert numbers == sorted(set(numbers))
    assert all(one == record(one["n"]) for one in got)
    lost = set(range(RECORDS - 1)) - set(numbers)
    assert lost <= hit
    assert figures["damaged"] == len(lines)
    if lines:
        assert len(lines) == 1
        assert path in lines[0]
        assert "/root/backup/worker0/out/" in lines[0] or "all zeros" in lines[0]


async def test_every_byte_flipped(caplog, scale, seen):
    disk, path = await written()
    data = disk.data(path)
    spans = list(scan(data, 1))
    assert len(spans) == RECORDS - 1
    step = scale("byte_step", 41, 1)
    losses = 0
    places = range(0, len(data), step)
    for at in places:
        for mask in (0xFF, 0x01) if scale.full else (0xFF,):
            after = disk.copy()
            after.put(path, data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :])
            got, figures, lines = await read(after, caplog)
            hit = {number for number, span in enumerate(spans) if span.start <= at < span.end}
            judge(got, figures, lines, hit=hit, path=path)
            assert len(got) == RECORDS - 1 - len(hit)
            assert len(lines) == len(hit)
            losses += len(hit)
        seen.progress(at, len(data))
    seen(f"{len(places)} of {len(data)} bytes flipped: {losses} times the one record hit was lost, counted and named")


async def test_cut_at_every_length(caplog, scale, seen):
    disk, path = await written()
    data = disk.data(path)
    spans = list(scan(data, 1))
    cuts = range(0, len(data), scale("cut_step", 47, 1))
    for size in cuts:
        after = disk.copy()
        after.put(path, data[:size])
        got, figures, lines = await read(after, caplog)
        whole = sum(span.end <= size for span in spans)
        judge(got, figures, lines, hit=set(range(whole, RECORDS)), path=path)
        assert len(got) == whole
        clean = size in {0, HEADER_SIZE} or size in {span.end for span in spans}
        assert len(lines) == (not clean)
        seen.progress(size, len(data))
    seen(f"cut at {len(cuts)} lengths: every whole record is there")


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"HEADRACE"])
async def test_a_sector_that_is_overwritten(caplog, filler, scale, seen):
    disk, path = await written()
    data = disk.data(path)
    spans = list(scan(data, 1))
    for start in range(512, len(data), 512 if scale.full else 1536):
        after = disk.copy()
        end = min(start + 512, len(data))
        after.put(path, data[:start] + (filler * 512)[: end - start] + data[end:])
        got, figures, lines = await read(after, caplog)
        numbers = {one["n"] for one in got}
        hit = {number for number, span in enumerate(spans) if span.start < end and span.end > start}
        assert numbers == set(range(RECORDS - 1)) - hit
        assert figures["damaged"] == len(lines) == 1
    seen(f"sectors filled with {filler!r}: only records in them are lost")
