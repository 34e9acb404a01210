"""The position file, in Fluentd's format and written in place as Fluentd writes it, so that either can go on.

A line is `PATH <TAB> OFFSET <TAB> INODE`, both numbers as 16 hex digits. A new line is appended by one write; later
writes change the 16 or 33 bytes of its numbers and nothing else. A kill between any two system calls leaves a file
that either program can read:
- a line that is cut short, or was never one, is left out with a warning that names the place;
- of two lines for one path Fluentd takes the last. So a rotated file that is not read to its end keeps its line, and
  the new file gets another one behind it; when the first is done, the second moves into its place. Whoever starts
  after a kill finds both;
- a file that is not followed any more has the offset ffffffffffffffff;
- compaction writes a new file beside the old one, syncs it, and renames it over the old one.

The lock (flock) is on the position file itself. Only who holds it reads or writes positions: after a reload the new
worker waits here for the old one.
"""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

UNWATCHED: Final = 0xFFFFFFFFFFFFFFFF
_LINE: Final = re.compile(rb"([^\t\n]+)\t([0-9a-fA-F]{1,16})\t([0-9a-fA-F]{1,16})")
_NUMBERS: Final = 34
"""Bytes of a line behind the path and its tab."""
TEMPORARY: Final = ".compact"


@dataclass(slots=True, eq=False)
class Slot:
    """A line of the file. at: where its numbers begin."""

    path: bytes
    offset: int
    inode: int
    at: int

    @property
    def text(self) -> bytes:
        """The whole line."""
        return b"%b\t%016x\t%016x\n" % (self.path, self.offset, self.inode)


@dataclass(slots=True)
class Parsed:
    """What a position file says. damaged: numbers of lines that say nothing, from 1. tidy: nothing to clean up."""

    slots: list[Slot]
    damaged: list[int]
    tidy: bool


def parse(data: bytes) -> Parsed:
    """Read a position file; of lines that say the same, the last counts."""
    slots: dict[tuple[bytes, int], Slot] = {}
    damaged: list[int] = []
    tidy = True
    at = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        start, at = at, at + len(line) + 1
        if not line:
            tidy = tidy and start == len(data)
            continue
        match = _LINE.match(line)
        whole = at <= len(data)
        # Fluentd reads a number of any length; the last line may have been cut short in it.
        if match is None or not (whole or len(match[3]) == 16):
            damaged.append(number)
            tidy = False
            continue
        path, offset, inode = match[1], int(match[2], 16), int(match[3], 16)
        if len(match[2]) != 16 or len(match[3]) != 16 or len(line) != len(path) + _NUMBERS or not whole:
            tidy = False
        if offset == UNWATCHED:
            tidy = False
            continue
        slot = Slot(path, offset, inode, start + len(path) + 1)
        tidy = tidy and (path, inode) not in slots
        slots.pop((path, inode), None)
        slots[path, inode] = slot
    return Parsed(list(slots.values()), damaged, tidy)


class PositionFile:
    """The open, locked file. Every method may raise OSError."""

    def __init__(self, path: str, mode: int) -> None:
        self.path = os.path.realpath(path)
        self._mode = mode
        self._fd = -1
        self._end = 0
        self._lines: dict[bytes, list[Slot]] = {}
        """Path -> its live lines in the order of their place; one, as a rule."""
        self._free: dict[bytes, list[int]] = {}
        """Path -> places of lines that nobody uses."""
        self.compactions = 0

    @property
    def opened(self) -> bool:
        """Whether the file is open and ours."""
        return self._fd >= 0

    def acquire(self, dir_mode: int) -> bool:
        """Open the file, which is made when it is not there, and take its lock; False when somebody has it."""
        if self._fd >= 0:
            return True
        os.makedirs(os.path.dirname(self.path), dir_mode, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who held the lock before may have put another file in its place.
            ours = os.fstat(fd)
            there = os.stat(self.path)
        except (BlockingIOError, FileNotFoundError):
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            os.close(fd)
            return False
        self._fd = fd
        return True

    def close(self) -> None:
        """Let go of the file and its lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def load(self) -> Parsed:
        """Read the file, and clean it up if that is possible and needed."""
        size = os.fstat(self._fd).st_size
        data = b""
        while len(data) < size and (piece := os.pread(self._fd, size - len(data), len(data))):
            data += piece
        parsed = parse(data)
        self._end = len(data)
        for slot in parsed.slots:
            self._lines.setdefault(slot.path, []).append(slot)
        if not parsed.tidy:
            fd = self._prepare()
            if fd is not None:
                os.fdatasync(fd)
                self._replace(fd)
            elif not data.endswith(b"\n"):
                self._end += os.pwrite(self._fd, b"\n", self._end)
        return parsed

    def slots(self) -> Iterator[Slot]:
        """The live lines in the order of their place."""
        return iter(sorted([slot for lines in self._lines.values() for slot in lines], key=_place))

    def add(self, path: bytes, offset: int, inode: int) -> Slot:
        """Append a line, behind every other of the same path."""
        free = self._free.get(path)
        lines = self._lines.setdefault(path, [])
        if free and (not lines or free[-1] > lines[-1].at):
            slot = Slot(path, offset, inode, free.pop())
            os.pwrite(self._fd, b"%016x\t%016x" % (offset, inode), slot.at)
        else:
            slot = Slot(path, offset, inode, self._end + len(path) + 1)
            text = slot.text
            written = os.pwrite(self._fd, text, self._end)
            if written != len(text):
                os.ftruncate(self._fd, self._end)
                raise OSError(f"only {written} of {len(text)} bytes of a position could be written")
            self._end += len(text)
        lines.append(slot)
        return slot

    def save(self, slot: Slot, offset: int) -> None:
        """Write an offset."""
        slot.offset = offset
        if self._fd >= 0:
            os.pwrite(self._fd, b"%016x" % offset, slot.at)

    def assign(self, slot: Slot, offset: int, inode: int) -> None:
        """Give a line to another file."""
        slot.offset = offset
        slot.inode = inode
        if self._fd >= 0:
            os.pwrite(self._fd, b"%016x\t%016x" % (offset, inode), slot.at)

    def release(self, slot: Slot) -> None:
        """The file of this line is not followed any more."""
        lines = self._lines[slot.path]
        lines.remove(slot)
        if not lines:
            del self._lines[slot.path]
        elif len(lines) == 1 and lines[0].at > slot.at:
            # The line of the newer file moves forward: while it stands twice, both say the same.
            other = lines[0]
            slot.at, other.at = other.at, slot.at
            self.assign(other, other.offset, other.inode)
        if self._fd >= 0:
            os.pwrite(self._fd, b"%016x" % UNWATCHED, slot.at)
        slot.offset = UNWATCHED
        self._free.setdefault(slot.path, []).append(slot.at)
        self._free[slot.path].sort()

    async def compact(self, sync: Callable[[int], Awaitable[None]]) -> bool:
        """Write the file anew with the live lines only; False when the folder does not allow it.

        sync: brings a descriptor's data to the disk, in a thread maybe; positions may be written meanwhile.
        """
        if self._fd < 0 or not self._free:
            return True
        fd = self._prepare()
        if fd is None:
            return False
        try:
            await sync(fd)
        except BaseException:
            self._drop(fd)
            raise
        if self._fd < 0:
            self._drop(fd)
            return True
        self._replace(fd)
        return True

    def _prepare(self) -> int | None:
        """The new file, locked and filled; None when none can be made."""
        name = self.path + TEMPORARY
        try:
            old = os.fstat(self._fd)
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self._mode)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, old.st_mode & 0o7777)
            made = os.fstat(fd)
            if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
                os.fchown(fd, old.st_uid, old.st_gid)
            self._fill(fd)
        except OSError:
            self._drop(fd)
            return None
        return fd

    def _drop(self, fd: int) -> None:
        os.close(fd)
        try:
            os.unlink(self.path + TEMPORARY)
        except OSError:
            return

    def _fill(self, fd: int) -> int:
        """Write every live line; return the size."""
        data = b"".join([slot.text for slot in self.slots()])
        os.ftruncate(fd, len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
        return len(data)

    def _replace(self, fd: int) -> None:
        """Put the new file, which is on the disk, in the place of the old one."""
        slots = list(self.slots())
        # Again, and without a sync: what changed since then is as safe as any other write of a position.
        end = self._fill(fd)
        os.rename(self.path + TEMPORARY, self.path)
        old, self._fd = self._fd, fd
        os.close(old)
        at = 0
        for slot in slots:
            slot.at = at + len(slot.path) + 1
            at += len(slot.text)
        self._end = end
        self._free = {}
        self.compactions += 1


def _place(slot: Slot) -> int:
    return slot.at
