"""The systemd source: the export format, a scripted journalctl, and a real journal where one can be made."""

import asyncio
import contextlib
import json
import os
import shutil
import stat
import struct
import subprocess
import sys

import pytest
from eco_rig import source
from http_rig import Taken, problems_of
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BufferOverflow
from headrace.plugins.in_systemd import input as module
from headrace.plugins.in_systemd.export import ExportError, ExportParser
from headrace.plugins.in_systemd.input import match_arguments
from headrace.plugins.systemd_entry import EntryFields
from headrace.testing.contracts import check_filter

REMOTE = shutil.which("systemd-journal-remote", path="/lib/systemd:/usr/lib/systemd:" + os.environ.get("PATH", ""))


def exported(number, **fields):
    fields = {"__CURSOR": f"s=1;i={number}", "__REALTIME_TIMESTAMP": f"{1_700_000_000_000_000 + number}", **fields}
    out = b""
    for name, value in fields.items():
        data = value if isinstance(value, bytes) else value.encode()
        if b"\n" in data or not data.isascii():
            out += name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
        else:
            out += name.encode() + b"=" + data + b"\n"
    return out + b"\n"


STREAM = exported(1, MESSAGE="a=b", _PID="12") + exported(2, MESSAGE=b"two\nlines \xff", EMPTY="") + exported(3)
WHOLE = [
    ("s=1;i=1", 1_700_000_000_000_001_000, {"MESSAGE": "a=b", "_PID": "12"}),
    ("s=1;i=2", 1_700_000_000_000_002_000, {"MESSAGE": "two\nlines \udcff", "EMPTY": ""}),
    ("s=1;i=3", 1_700_000_000_000_003_000, {}),
]


def entries(*pieces):
    parser = ExportParser()
    return [(entry.cursor, entry.time, entry.fields) for piece in pieces for entry in parser.feed(piece)]


@pytest.mark.parametrize("at", range(len(STREAM)))
def test_the_format_at_every_split(at):
    assert entries(STREAM[:at], STREAM[at:]) == WHOLE


@given(st.binary(max_size=200))
def test_anything_else_is_an_error_or_no_entry(data):
    with contextlib.suppress(ExportError):
        entries(data, b"\n\n")


def test_lengths_that_lie():
    with pytest.raises(ExportError, match="bytes"):
        entries(b"A\n" + struct.pack("<Q", 1 << 60))
    with pytest.raises(ExportError, match="newline"):
        entries(b"A\n" + struct.pack("<Q", 1) + b"xx\n")


def test_matches():
    assert match_arguments([{"_SYSTEMD_UNIT": "a.service", "PRIORITY": [1, 2]}, {"_PID": "5"}]) == [
        "_SYSTEMD_UNIT=a.service", "PRIORITY=1", "PRIORITY=2", "+", "_PID=5",
    ]  # fmt: skip
    for wrong in (["a"], [{}], [{"a-b": "x"}], [{"lower": "x"}], [{"A": {"b": 1}}], [{"A": None}]):
        with pytest.raises(ValueError, match=r"."):
            match_arguments(wrong)


def renamed(record, **options):
    fields = EntryFields()
    vars(fields).update(options)

    class Silent:
        error = warn = staticmethod(lambda *_, **__: None)

    fields.validate(Silent())
    change = fields.change()
    return record if change is None else change(record)


def test_fields():
    record = {"_MACHINE_ID": "bb", "MESSAGE": "text", "_PID": "123", "_CMDLINE": "login", "_COMM": "cmd"}
    mapping = {"MESSAGE": "log", "_PID": ["process", "pid"], "_CMDLINE": "process", "_COMM": "cmd"}
    both = {"fields_lowercase": True, "fields_strip_underscores": True}
    assert renamed(record) == record
    assert renamed(record, field_map=mapping, **both) == {
        "machine_id": "bb", "log": "text", "pid": "123", "process": "123 login", "cmd": "cmd",
    }  # fmt: skip
    assert renamed(record, field_map={"MESSAGE": "log"}, field_map_strict=True) == {"log": "text"}
    assert renamed({"_A": "1", "A": "2"}, fields_strip_underscores=True) == {"A": "2 1"}


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """A scripted journalctl: prints `stream` (once), notes its arguments, and follows until killed."""

    class Journal:
        stream = tmp_path / "stream"
        calls = tmp_path / "calls"
        script = tmp_path / "script.py"
        folder = tmp_path

        def arguments(self):
            if not self.calls.exists():
                return []
            return [json.loads(line) for line in self.calls.read_text().splitlines()]

    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    Journal.script.write_text(
        "import sys, time, json, pathlib\n"
        f"with open({str(Journal.calls)!r}, 'a') as calls: calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        f"extra = pathlib.Path({str(tmp_path / 'extra.py')!r})\n"
        "if extra.exists(): exec(extra.read_text())\n"
        f"path = pathlib.Path({str(Journal.stream)!r})\n"
        "if path.exists(): sys.stdout.buffer.write(path.read_bytes()); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Journal.script} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return Journal()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_entries_become_events_and_the_cursor_is_kept(journal, tmp_path):
    journal.stream.write_bytes(STREAM)
    store = tmp_path / "cursor.json"
    conf = f"@type systemd\ntag t.j\npath {tmp_path}\nread_from_head true\n<storage>\npath {store}\n</storage>"
    matches = '\nmatches [{"_PID":"1"},{"A":"b c"}]\n<entry>\nfields_lowercase true\n</entry>'
    async with source(conf + matches) as (plugin, taken):
        storage = plugin._storage
        await storage.start()
        await until(lambda: len(taken.records) == 3)
        assert taken.tags[0] == "t.j"
        assert taken.records[0] == {"message": "a=b", "_pid": "12"}
        assert taken.times[0] == 1_700_000_000_000_001_000
        assert storage.get("journal") == "s=1;i=3"
        child = plugin._child
    assert child.returncode is not None
    (arguments,) = journal.arguments()
    assert arguments[:5] == ["--quiet", "--no-pager", "--output=export", "--follow", "--all"]
    assert arguments[5:7] == [f"--directory={tmp_path}", "--no-tail"]
    assert arguments[7:] == ["_PID=1", "+", "A=b c"]


class Kept:
    """A storage in memory."""

    def __init__(self, **values):
        self.values = values

    async def ready(self):
        """Is here."""

    def get(self, key):
        return self.values.get(key)

    def put(self, key, value):
        self.values[key] = value


async def follow(journal, kept, condition, taken=None, more=""):
    taken = taken or Taken()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "storage_of", lambda *_args, **_options: kept)
        async with source(f"@type systemd\ntag t\npath {journal.folder}\n{more}", taken=taken) as (plugin, _):
            await until(lambda: condition(plugin, taken))
    return taken


async def test_it_goes_on_behind_the_cursor(journal):
    journal.stream.write_bytes(exported(7, A="b"))
    kept = Kept(journal="s=1;i=6")
    await follow(journal, kept, lambda plugin, taken: taken.records)
    assert journal.arguments()[0][6] == "--after-cursor=s=1;i=6"
    assert kept.values == {"journal": "s=1;i=7"}


async def test_without_a_cursor_only_what_is_new(journal):
    await follow(journal, Kept(), lambda plugin, taken: journal.arguments())
    assert journal.arguments()[0][6] == "--lines=0"


async def test_a_cursor_that_is_not_valid(journal):
    journal.stream.write_bytes(exported(1))
    (journal.folder / "extra.py").write_text(
        "if any('--after' in text for text in sys.argv): sys.exit('Failed to seek to cursor: Invalid argument')\n"
    )
    await follow(journal, Kept(journal="bad"), lambda plugin, taken: taken.records, more="read_from_head true")
    assert [arguments[6] for arguments in journal.arguments()] == ["--after-cursor=bad", "--no-tail"]


async def test_a_program_that_ends_is_started_again_behind_what_was_read(journal, caplog):
    journal.stream.write_bytes(exported(1))
    (journal.folder / "extra.py").write_text(
        "if not any('--after' in text for text in sys.argv):\n"
        f"    sys.stdout.buffer.write(open({str(journal.stream)!r}, 'rb').read()); sys.stdout.flush()\n"
        "    sys.exit('the journal was rotated away')\n"
    )
    await follow(journal, Kept(), lambda plugin, taken: len(taken.records) == 2)
    assert [arguments[6] for arguments in journal.arguments()] == ["--lines=0", "--after-cursor=s=1;i=1"]
    assert "rotated away" in caplog.text


async def test_entries_wait_for_room(journal):
    journal.stream.write_bytes(STREAM)
    taken = Taken()
    taken.refuse = BufferOverflow("full")

    def roomy(plugin, taken):
        if plugin._overflows.count:
            taken.refuse = None
        return len(taken.records) == 3

    kept = Kept()
    await follow(journal, kept, roomy, taken)
    assert kept.values == {"journal": "s=1;i=3"}


def test_check(monkeypatch, tmp_path):
    errors, _ = problems_of("input", '<source>\n@type systemd\ntag t\nmatches [{"a":"b"}]\n</source>')
    assert any("no name of a field" in error for error in errors)
    errors, _ = problems_of("input", "<source>\n@type systemd\n</source>")
    assert any('"tag" is required' in error for error in errors)
    monkeypatch.setenv("PATH", str(tmp_path))
    errors, _ = problems_of("input", "<source>\n@type systemd\ntag t\n</source>")
    assert any("journalctl, which is not here" in error for error in errors)


def test_the_filter():
    asyncio.run(check_filter("<filter **>\n@type systemd_entry\n</filter>"))
    asyncio.run(check_filter('<filter **>\n@type systemd_entry\nfield_map {"a":["b","c"],"message":"b"}\n</filter>'))


@pytest.mark.peer
@pytest.mark.skipif(REMOTE is None or shutil.which("journalctl") is None, reason="needs systemd-journal-remote")
async def test_a_real_journal(tmp_path):
    file = tmp_path / "system.journal"

    def write(data):
        subprocess.run([REMOTE, "--output", str(file), "-"], input=data, check=True, capture_output=True)

    boot = "b" * 32
    common = {"_BOOT_ID": boot, "_MACHINE_ID": "a" * 32, "__MONOTONIC_TIMESTAMP": "5"}
    first = [exported(n, MESSAGE=f"line {n}", PRIORITY=str(n % 2), **common) for n in range(10)]
    first = [data.replace(f"__CURSOR=s=1;i={n}\n".encode(), b"") for n, data in enumerate(first)]
    await asyncio.to_thread(write, b"".join(first))
    conf = f'@type systemd\ntag t\npath {tmp_path}\nread_from_head true\nmatches [{{"PRIORITY":"1"}}]'
    async with source(conf) as (plugin, taken):
        await plugin._storage.start()
        await until(lambda: len(taken.records) == 5)
        assert [record["MESSAGE"] for record in taken.records] == [f"line {n}" for n in (1, 3, 5, 7, 9)]
        assert plugin._storage.get("journal")
