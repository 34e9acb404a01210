"""The position file: Fluentd's bytes, and what is left of it after a kill between any two system calls."""

import contextlib
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.plugins.in_tail import positions as module
from headrace.plugins.in_tail.positions import UNWATCHED, PositionFile, parse


def opened(path):
    file = PositionFile(str(path), 0o644)
    assert file.acquire(0o755)
    file.load()
    return file


async def no_sync(_fd):
    return None


def contents(slots):
    return {(slot.path, slot.inode): slot.offset for slot in slots}


def test_bytes_are_fluentds(tmp_path):
    file = opened(tmp_path / "pos")
    slot = file.add(b"/var/log/a", 0, 0)
    assert (tmp_path / "pos").read_bytes() == b"/var/log/a\t0000000000000000\t0000000000000000\n"
    file.assign(slot, 26, 0x1234)
    file.save(slot, 0xABCDEF)
    assert (tmp_path / "pos").read_bytes() == b"/var/log/a\t0000000000abcdef\t0000000000001234\n"
    file.release(slot)
    assert (tmp_path / "pos").read_bytes() == b"/var/log/a\tffffffffffffffff\t0000000000001234\n"
    file.close()


def test_a_tidy_file_is_not_written_when_it_is_read(tmp_path):
    text = b"/a\t0000000000000001\t0000000000000002\n/b\t0000000000000003\t0000000000000004\n"
    (tmp_path / "pos").write_bytes(text)
    before = os.stat(tmp_path / "pos")
    file = opened(tmp_path / "pos")
    assert contents(file.slots()) == {(b"/a", 2): 1, (b"/b", 4): 3}
    assert os.stat(tmp_path / "pos").st_ino == before.st_ino
    assert file.compactions == 0
    file.close()


def test_what_is_damaged_is_left_out_and_told_by_its_line(tmp_path):
    good = b"/a\t0000000000000001\t0000000000000002\n"
    old = b"/old\t1f\t000000ab\n"
    text = good + b"nonsense\n\n/x\tzz\t0\n" + old + b"/gone\tffffffffffffffff\t0000000000000009\n/cut\t00000000000000"
    (tmp_path / "pos").write_bytes(text)
    assert parse(text).damaged == [2, 4, 7]
    file = opened(tmp_path / "pos")
    assert contents(file.slots()) == {(b"/a", 2): 1, (b"/old", 0xAB): 0x1F}
    assert (tmp_path / "pos").read_bytes() == good + b"/old\t000000000000001f\t00000000000000ab\n"
    file.close()


def test_a_cut_inode_is_no_inode():
    line = b"/a\t0000000000000001\t0000000000000022"
    assert len(parse(line).slots) == 1
    for cut in range(1, 16):
        assert parse(line[:-cut]).slots == []


def test_the_last_of_two_equal_lines_counts():
    text = b"/a\t0000000000000001\t0000000000000002\n/a\t0000000000000005\t0000000000000002\n"
    parsed = parse(text)
    assert [slot.offset for slot in parsed.slots] == [5]
    assert not parsed.tidy


def test_the_line_of_a_newer_file_comes_after_and_moves_forward(tmp_path):
    file = opened(tmp_path / "pos")
    for _ in range(50):  # rotations
        old = next(file.slots(), None) or file.add(b"/a", 1, 100)
        new = file.add(b"/a", 0, old.inode + 1)
        assert new.at > old.at, "Fluentd takes the last line of a path"
        file.save(old, 7)
        file.release(old)
        assert contents(parse((tmp_path / "pos").read_bytes()).slots) == {(b"/a", old.inode + 1): 0}
    assert (tmp_path / "pos").read_bytes().count(b"\n") == 2, "lines of one path are used again"
    file.close()


def test_only_one_has_the_file(tmp_path):
    first = opened(tmp_path / "pos")
    second = PositionFile(str(tmp_path / "pos"), 0o644)
    assert not second.acquire(0o755)
    first.close()
    assert second.acquire(0o755)
    second.close()


async def test_who_waits_gets_the_compacted_file(tmp_path):
    first = opened(tmp_path / "pos")
    first.release(first.add(b"/a", 1, 1))
    first.add(b"/b", 2, 2)
    waiting = PositionFile(str(tmp_path / "pos"), 0o644)
    assert not waiting.acquire(0o755)
    assert await first.compact(no_sync)
    assert not waiting.acquire(0o755)
    first.close()
    assert waiting.acquire(0o755)
    waiting.load()
    assert contents(waiting.slots()) == {(b"/b", 2): 2}
    waiting.close()


async def test_compaction_keeps_what_is_written_meanwhile(tmp_path):
    file = opened(tmp_path / "pos")
    file.release(file.add(b"/gone", 1, 1))
    kept = file.add(b"/kept", 2, 2)

    async def sync(_fd):
        file.save(kept, 99)
        file.add(b"/new", 3, 3)
        file.release(file.add(b"/brief", 4, 4))

    os.chmod(tmp_path / "pos", 0o640)
    assert await file.compact(sync)
    assert (tmp_path / "pos").read_bytes() == (
        b"/kept\t0000000000000063\t0000000000000002\n/new\t0000000000000003\t0000000000000003\n"
    )
    file.save(kept, 100)
    assert contents(parse((tmp_path / "pos").read_bytes()).slots) == {(b"/kept", 2): 100, (b"/new", 3): 3}
    assert os.stat(tmp_path / "pos").st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["pos"]
    file.close()


async def test_a_folder_that_cannot_be_written_to_leaves_the_file_as_it_is(tmp_path, monkeypatch):
    file = opened(tmp_path / "pos")
    file.release(file.add(b"/gone", 1, 1))
    before = (tmp_path / "pos").read_bytes()

    def refuse(path, *_rest, **_options):
        raise PermissionError(13, "no", path)

    monkeypatch.setattr(module.os, "open", refuse)
    assert not await file.compact(no_sync)
    assert (tmp_path / "pos").read_bytes() == before
    file.close()


class _KilledError(BaseException):
    """The process ends here."""


CALLS = ("open", "pwrite", "ftruncate", "rename", "fchmod", "unlink")


@pytest.mark.parametrize("at", range(40))
async def test_a_kill_in_a_compaction_loses_no_position(tmp_path, monkeypatch, at):
    path = tmp_path / "pos"
    file = opened(path)
    for number in range(5):
        file.release(file.add(b"/gone%d" % number, 1, 50 + number))
        file.add(b"/kept%d" % number, number, 100 + number)
    expected = contents(file.slots())
    counted = 0
    with monkeypatch.context() as patch:
        for name in CALLS:
            real = getattr(os, name)

            def call(*args, real=real, **options):
                nonlocal counted
                counted += 1
                if counted > at:
                    raise _KilledError
                return real(*args, **options)

            patch.setattr(module.os, name, call)
        with contextlib.suppress(_KilledError):
            await file.compact(no_sync)
    file.close()
    again = opened(path)
    assert contents(again.slots()) == expected
    again.close()


class Kills(RuleBasedStateMachine):
    """Any sequence of operations with kills in between: every live file has its last position."""

    def __init__(self):
        super().__init__()
        self.folder = os.path.join("/tmp", f"hr-pos-{os.getpid()}-{id(self)}")
        os.makedirs(self.folder)
        self.path = os.path.join(self.folder, "pos")
        self.file = opened(self.path)
        self.slots = {}
        self.inode = 0

    def teardown(self):
        self.file.close()
        shutil.rmtree(self.folder)

    @rule(path=st.sampled_from([b"/a", b"/bb", b"/a b"]), offset=st.integers(0, UNWATCHED - 1))
    def add(self, path, offset):
        self.inode += 1
        self.slots[self.inode] = self.file.add(path, offset, self.inode)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), offset=st.integers(0, UNWATCHED - 1))
    def save(self, data, offset):
        self.file.save(self.slots[data.draw(st.sampled_from(sorted(self.slots)))], offset)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def release(self, data):
        self.file.release(self.slots.pop(data.draw(st.sampled_from(sorted(self.slots)))))

    @rule()
    def compact(self):
        coroutine = self.file.compact(no_sync)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    @rule()
    def kill(self):
        self.file.close()
        self.file = opened(self.path)
        self.slots = {slot.inode: slot for slot in self.file.slots()}

    @invariant()
    def the_disk_says_the_same(self):
        with open(self.path, "rb") as file:
            parsed = parse(file.read())
        assert parsed.damaged == []
        assert contents(parsed.slots) == contents(self.slots.values())
        last = {}
        for slot in parsed.slots:
            last[slot.path] = max(last.get(slot.path, 0), slot.inode)
        for path, inode in last.items():
            lines = sorted((slot for slot in parsed.slots if slot.path == path), key=lambda slot: slot.at)
            assert lines[-1].inode == inode, "the newest file has the last line"


Kills.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestKills = Kills.TestCase


@given(st.binary(max_size=200))
def test_nothing_in_a_position_file_raises(data):
    parsed = parse(data)
    for slot in parsed.slots:
        assert b"\t" not in slot.path
