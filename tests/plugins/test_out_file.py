"""Output file: names, contents, what tags may do to them, and many writers on one file."""

import errno
import gzip
import json
import multiprocessing
import os
import stat
import zlib
from concurrent.futures import ProcessPoolExecutor

import pytest
import zstandard

from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch
from headrace.pipeline.files import Files
from headrace.plugins.file_path import template_of
from headrace.plugins.formatter_out_file import OutFileFormatter
from headrace.plugins.out_file import FileOutput
from headrace.testing.clock import FakeClock
from headrace.testing.pipelines import Kit

TIME = 1_700_000_000_123_456_789  # 2023-11-14T22:13:20Z
JSON = "<format>\n@type json\n</format>"


@pytest.mark.parametrize(
    ("path", "options", "wanted"),
    [
        ("/l/f", {"timekey": 86400}, "/l/f.%Y%m%d_**.log"),
        ("/l/f", {"timekey": 86400, "append": True}, "/l/f.%Y%m%d.log"),
        ("/l/f", {"timekey": 3600, "compress": "gzip"}, "/l/f.%Y%m%d%H_**.log.gz"),
        ("/l/f", {"timekey": 60, "append": True, "compress": "zstd"}, "/l/f.%Y%m%d%H%M.log.zstd"),
        ("/l/f", {"timekey": 30, "append": True, "suffix": ""}, "/l/f.%Y%m%d%H%M%S"),
        ("/l/f", {"timekey": None}, "/l/f_**.log"),
        ("/l/f.*.data", {"timekey": 86400}, "/l/f.%Y%m%d_**.data"),
        ("/l/f.*.data", {"timekey": 86400, "append": True, "compress": "gz"}, "/l/f.%Y%m%d.data.gz"),
        ("/l/%Y/%m/%d/f", {"timekey": 86400, "append": True}, "/l/%Y/%m/%d/f.log"),
        ("/l/${tag}", {"timekey": None, "append": True}, "/l/${tag}.log"),
    ],
)
def test_templates(path, options, wanted):
    assert template_of(path, **{"append": False, "suffix": ".log", "compress": "text"} | options) == wanted


@pytest.mark.parametrize(
    ("path", "timekey", "message"),
    [("/l/f.*", None, "needs the chunk key time"), ("/l/f.%Y", 86400, "but not %m, %d")],
)
def test_templates_that_cannot_be(path, timekey, message):
    with pytest.raises(ValueError, match=message):
        template_of(path, timekey=timekey, append=True, suffix="", compress="text")


def conf(prefix, lines="", buffer="<buffer []>\n@type memory\nflush_interval 1s\n</buffer>", path="out", format_=JSON):
    return f"<match **>\n@type file\npath {prefix}/{path}\n{lines}\n{format_}\n{buffer}\n</match>"


async def start(prefix, *args, files=None, settings=None, **options):
    kit = Kit(conf(prefix, *args, **options), files=files, settings=settings, clock=FakeClock(wall=TIME))
    return await kit.start()


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink())


async def test_a_file_for_each_chunk(prefix):
    kit = await start(prefix)
    for number in range(3):
        await kit.emit("t", {"n": number})
        await kit.clock.elapse(1.1)
    assert names(prefix) == ["out_0.log", "out_1.log", "out_2.log"]
    assert (prefix / "out_1.log").read_bytes() == b'{"n":1}\n'
    (prefix / "out_2.log").unlink()
    await kit.emit("t", {"n": 3})
    await kit.stop()
    assert (prefix / "out_2.log").read_bytes() == b'{"n":3}\n'
    assert kit.of(FileOutput).stats() == {"files": 4, "bytes": 32}


async def test_names_that_are_taken_are_left_alone(prefix):
    (prefix / "out_0.log").write_text("other")
    kit = await start(prefix)
    await kit.emit("t", {"n": 0})
    await kit.stop()
    assert (prefix / "out_0.log").read_text() == "other"
    assert (prefix / "out_1.log").read_bytes() == b'{"n":0}\n'


async def test_append_to_the_file_of_the_slice(prefix):
    kit = await start(
        prefix,
        "append true",
        "<buffer tag,time>\n@type memory\ntimekey 1h\ntimekey_wait 1s\ntimekey_use_utc true\n</buffer>",
        path="${tag}/x",
    )
    await kit.emit("a", {"n": 1}, time=TIME)
    await kit.emit("b", {"n": 2}, time=TIME)
    await kit.emit("a", {"n": 3}, time=TIME + 3600 * 10**9)
    await kit.stop()
    assert names(prefix) == ["a/x.2023111422.log", "a/x.2023111423.log", "b/x.2023111422.log"]
    assert (prefix / "a/x.2023111423.log").read_bytes() == b'{"n":3}\n'


async def test_the_default_buffer_is_on_disk_beside_the_files_and_daily(prefix):
    kit = await start(prefix, buffer="", path="logs/out", format_="")
    assert kit.of(FileOutput).runner.section.folder == os.path.realpath(prefix / "logs/out")
    await kit.emit("t", {"n": 1}, time=TIME)
    await kit.stop()
    kit = await start(prefix, buffer="", path="logs/out", format_="")
    kit.pipeline.flush()
    await kit.clock.elapse(1)
    await kit.stop()
    (file,) = [name for name in names(prefix) if name.endswith(".log")]
    assert file.startswith("logs/out.2023111")
    time, tag, record = (prefix / file).read_text().rstrip("\n").split("\t")
    assert (tag, json.loads(record)) == ("t", {"n": 1})
    assert time.startswith("2023-11-1")


@pytest.mark.parametrize("buffered", ["text", "gzip", "zstd"])
@pytest.mark.parametrize("recompress", ["true", "false"])
@pytest.mark.parametrize(("compress", "suffix"), [("gz", ".gz"), ("gzip", ".gz"), ("zstd", ".zstd"), ("text", "")])
async def test_compression(prefix, compress, suffix, buffered, recompress):
    kit = await start(
        prefix,
        f"append true\ncompress {compress}\nrecompress {recompress}",
        f"<buffer []>\n@type memory\ncompress {buffered}\nflush_interval 1s\n</buffer>",
    )
    await kit.emit("t", {"n": 1}, {"n": 2})
    await kit.clock.elapse(1.1)
    await kit.emit("t", {"n": 3})
    await kit.stop()
    data = (prefix / f"out.log{suffix}").read_bytes()
    if suffix == ".gz":
        data = gzip.decompress(data)
    elif suffix == ".zstd":
        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    assert data == b'{"n":1}\n{"n":2}\n{"n":3}\n'


async def test_a_large_chunk_is_one_gzip_member(prefix):
    kit = await start(prefix, "append true\ncompress gzip")
    await kit.emit("t", *({"n": number, "x": "y" * 100} for number in range(3000)))
    await kit.stop()
    member = zlib.decompressobj(31)
    text = member.decompress((prefix / "out.log.gz").read_bytes())
    assert member.eof
    assert member.unused_data == b""
    assert text.count(b"\n") == 3000


@pytest.mark.parametrize("tag", ["../up", "a/../../up", "..", "x/..", "/etc/x/../..", "nul\0"])
async def test_a_tag_never_leads_out_of_its_folder(prefix, tag):
    kit = await start(
        prefix / "in",
        "append true",
        "<buffer tag>\n@type memory\nflush_interval 1s\n</buffer>\n<secondary>\n@type script\n</secondary>",
        path="${tag}/f",
    )
    await kit.emit(tag, {"n": 1})
    await kit.emit("good", {"n": 2})
    await kit.stop()
    assert names(prefix) == ["in/good/f.log"]
    assert b'{"n":1}\n' in kit.script.raw


async def test_a_tag_may_lead_into_folders_below(prefix):
    kit = await start(prefix, "append true", "<buffer tag>\n@type memory\n</buffer>", path="${tag}")
    await kit.emit("a/b", {"n": 1})
    await kit.emit("/c", {"n": 2})
    await kit.stop()
    assert names(prefix) == ["a/b.log", "c.log"]


async def test_a_name_that_is_too_long_is_no_matter_of_retries(prefix):
    kit = await start(
        prefix, "append true", "<buffer tag>\n@type memory\nflush_interval 1s\ndisable_chunk_backup true\n</buffer>",
        path="${tag}",
    )  # fmt: skip
    await kit.emit("x" * 300, {"n": 1})
    await kit.clock.elapse(2)
    assert kit.stats()["buffered"] == 0
    assert kit.stats()["delivered"] == 0
    await kit.stop()


async def test_modes(prefix):
    old = os.umask(0)
    try:
        kit = await start(prefix, settings=Settings(dir_mode=0o750, file_mode=0o640), path="d/out")
        await kit.emit("t", {"n": 1})
        await kit.stop()
    finally:
        os.umask(old)
    assert stat.S_IMODE((prefix / "d").stat().st_mode) == 0o750
    assert stat.S_IMODE((prefix / "d/out_0.log").stat().st_mode) == 0o640


async def test_the_link_leads_to_the_newest_file(prefix):
    kit = await start(prefix, f"symlink_path {prefix}/now/link")
    for number in range(2):
        await kit.emit("t", {"n": number})
        await kit.clock.elapse(1.1)
        assert os.readlink(prefix / "now/link") == f"{prefix}/out_{number}.log"
    await kit.stop()
    kit = await start(prefix, f"symlink_path {prefix}/now/link\nsymlink_path_use_relative true")
    await kit.emit("t", {"n": 2})
    await kit.stop()
    assert os.readlink(prefix / "now/link") == "../out_2.log"
    assert names(prefix / "now") == ["link"]


async def test_as_a_secondary_it_writes_what_the_primary_formatted(prefix):
    text = f"""
    <match **>
      @type file
      path {prefix}/no/${{tag}}
      append true
      {JSON}
      <buffer tag>
        @type memory
        flush_interval 1s
      </buffer>
      <secondary>
        path {prefix}/dead
        {JSON}
      </secondary>
    </match>
    """
    kit = Kit(text)
    assert "no effect in <secondary>" in str(kit.problems.warnings[0])
    await kit.start()
    await kit.emit("../x", {"n": 1})
    await kit.emit("../y", {"n": 2})
    await kit.stop()
    assert names(prefix) == ["dead_0.log", "dead_1.log"]
    assert (prefix / "dead_0.log").read_bytes() == b'{"n":1}\n'


class FullDisk(Files):
    """A disk with room for some bytes."""

    room = 10**9

    def append(self, fd, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = super().append(fd, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("append", ["true", "false"])
async def test_a_full_disk_leaves_no_half_chunk(prefix, append):
    files = FullDisk()
    kit = await start(prefix, f"append {append}", files=files)
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(1.1)
    files.room = 5
    await kit.emit("t", {"n": 2}, {"n": 3})
    await kit.clock.elapse(1.1)
    first = prefix / ("out.log" if append == "true" else "out_0.log")
    assert names(prefix) == [first.name]
    assert first.read_bytes() == b'{"n":1}\n'
    files.room = 10**9
    await kit.clock.elapse(5)
    await kit.stop()
    everything = b"".join((prefix / name).read_bytes() for name in names(prefix))
    assert everything == b'{"n":1}\n{"n":2}\n{"n":3}\n'


@pytest.mark.parametrize(
    ("lines", "buffer", "path", "message"),
    [
        ("", "<buffer tag>\n@type memory\n</buffer>", "out", 'does not have "${tag}"'),
        ("", "<buffer []>\n@type memory\n</buffer>", "x.*", "needs the chunk key time"),
        ("", "<buffer time>\n@type memory\n</buffer>", "x.%Y", "but not %m, %d"),
        ("", "<buffer []>\n@type memory\n</buffer>", "${tag}", '"tag" is not a chunk key'),
        ("compress bz2", "", "out", "compress"),
        ("utc maybe", "", "out", "utc"),
        ("time_slice_format %Y", "", "out", "too long"),
    ],
)
def test_what_is_refused(prefix, lines, buffer, path, message):
    kit = Kit(conf(prefix, lines, buffer, path))
    assert any(message in error for error in kit.errors), kit.errors


def test_a_folder_that_forbids_it_is_reported(prefix, monkeypatch):
    prefix.chmod(0o500)
    if os.geteuid() == 0:  # root may write everywhere: the answer that anybody else gets
        monkeypatch.setattr(os, "access", lambda *_args, **_options: False)
    assert "does not let files be written" in Kit(conf(prefix)).errors[0]


def test_a_file_in_the_place_of_the_folder_is_reported(prefix):
    (prefix / "out").write_text("")
    assert "does not let files be written" in Kit(conf(prefix, path="out/x")).errors[0]


LINES = 10_000
WRITERS = 8


def write_lines(arguments):
    import asyncio  # noqa: PLC0415 - in a process of its own

    from headrace.core.clock import Clock  # noqa: PLC0415
    from headrace.plugins.file_append import append  # noqa: PLC0415

    path, writer = arguments

    async def run():
        clock = Clock(asyncio.get_running_loop())
        pad = "x" * 60
        for first in range(0, LINES, 500):
            lines = [f'{{"w":{writer},"n":{first + n},"p":"{pad}"}}\n' for n in range(500)]
            await append(path, ["".join(lines).encode()], files=Files(), clock=clock, mode=0o644)

    asyncio.run(run())


def test_many_workers_on_one_file(prefix):
    path = str(prefix / "shared.log")
    with ProcessPoolExecutor(WRITERS, multiprocessing.get_context("fork")) as pool:
        list(pool.map(write_lines, [(path, writer) for writer in range(WRITERS)]))
    seen = dict.fromkeys(range(WRITERS), 0)
    with open(path, "rb") as file:
        for line in file:
            record = json.loads(line)
            assert record["n"] == seen[record["w"]]
            seen[record["w"]] += 1
    assert set(seen.values()) == {LINES}
    assert names(prefix) == ["shared.log"]


SECONDS = [TIME, TIME + 1, TIME + 10**9, TIME, TIME + 2 * 10**9]
RECORDS = [{"n": 1}, {"n": float("nan")}, {1: b"\xff"}, {"n": 2**70}, {}]


@pytest.mark.parametrize("options", ["", "output_time false", "output_tag false\ntime_format %L", "delimiter COMMA"])
def test_many_events_are_formatted_as_each_of_them(options):
    kit = Kit(f"<match **>\n@type file\npath /nowhere/x\n<format>\n@type out_file\n{options}\n</format>\n</match>")
    formatter = OutFileFormatter()
    directive = next(one for one in kit.pipeline.plugins if isinstance(one, FileOutput)).format_section
    formatter.configure(directive, kit.problems)
    lines = [formatter.format("a.b", time, record) for time, record in zip(SECONDS, RECORDS, strict=True)]
    assert formatter.format_many("a.b", SECONDS, RECORDS) == b"".join(lines)
    assert formatter.format_many("a.b", SECONDS[:2], RECORDS[:2]) == b"".join(lines[:2])
    assert formatter.format_many("a.b", [], []) == b""


async def test_a_batch_over_a_time_slice_goes_to_its_files(tmp_path):
    buffer = (
        "<buffer time>\n@type memory\ntimekey 60\ntimekey_wait 0\nflush_mode interval\nflush_interval 1s\n</buffer>"
    )
    kit = await start(tmp_path, lines="append true", buffer=buffer)
    minute = 60 * 10**9
    emit = kit.pipeline.router.emit
    emit("t", Batch.of([(TIME, {"n": 1}), (TIME + 1, {"n": 2}), (TIME + minute, {"n": 3})]))
    emit("t", Batch.of([(TIME + minute, {"n": 4}), (TIME + minute + 5, {"n": 5})]))
    await kit.stop()
    found = [path.read_text().splitlines() for path in sorted(tmp_path.glob("out*"))]
    assert found == [['{"n":1}', '{"n":2}'], ['{"n":3}', '{"n":4}', '{"n":5}']]


SIZES = [
    [],
    [0],
    [5, 7],
    [300_000],
    [10, 300_000, 10],
    [200_000, 5, 200_000],
    [60_000] * 9,
    [1] * 70_000,
    [3_000_000, 1],
]


@pytest.mark.parametrize("sizes", SIZES)
async def test_pieces_of_a_chunk_come_in_their_order_and_in_few_writes(tmp_path, sizes):
    """Long pieces are not copied together, short ones are not written one by one."""
    from headrace.plugins.file_append import SLICE, append  # noqa: PLC0415

    written = []

    class Counting(Files):
        def append(self, fd, data):
            written.append(len(data))
            return super().append(fd, data)

    pieces = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
    path = tmp_path / "file"
    await append(str(path), pieces, files=Counting(), clock=FakeClock(), mode=0o644)
    whole = b"".join(pieces)
    assert path.read_bytes() == whole
    long = sum(size >= 64 << 10 for size in sizes)
    assert len(written) <= 2 * long + len(whole) // (256 << 10) + 1
    assert max(written, default=0) <= SLICE
