"""What the position file says about files that are found now, and about those that are not.

A file is found again by its inode. Rules, where Fluentd's documentation leaves a file to chance the one that loses
and repeats nothing:
- the line of its path has its inode: it is read on from there;
- another line has its inode, and that line's path does not lead to it any more: it was renamed, and is read on;
- the line of its path has another inode: it is a new file, made while nobody looked; it is read from its beginning,
  and the file of that line is looked for in the same folder, under a name that begins alike: what was not read of it
  yet is read first.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.plugins.in_tail.positions import Slot


FOLDERS: Final = 64
"""Folders whose names are remembered."""


class History:
    """Lines of the position file that belong to no file yet. by_inode: paths do not count (follow_inodes)."""

    def __init__(self, slots: Iterable[Slot], *, by_inode: bool) -> None:
        self._by_inode = by_inode
        self._paths: dict[bytes, list[Slot]] = {}
        self._inodes: dict[int, list[Slot]] = {}
        self._names: dict[str, dict[int, str]] = {}
        self._known: set[bytes] = set()
        for slot in slots:
            if slot.inode:
                self._known.add(slot.path)
            self._paths.setdefault(slot.path, []).append(slot)
            self._inodes.setdefault(slot.inode, []).append(slot)

    def __bool__(self) -> bool:
        return bool(self._inodes)

    def knows(self, path: bytes) -> bool:
        """Whether a file of this path was read before."""
        return path in self._known

    def claim(self, path: bytes, identity: tuple[int, int]) -> Slot | None:
        """Take the line of a file; its path may be another one. None when the file is new."""
        inode = identity[1]
        found = self._inodes.get(inode, []) if inode else []
        best = next((slot for slot in reversed(found) if slot.path == path), None)
        if best is None:
            best = next(
                (slot for slot in reversed(found) if self._by_inode or not _leads_to(slot.path, identity)), None
            )
        if best is not None:
            self._remove(best)
        return best

    def claim_empty(self, path: bytes) -> Slot | None:
        """Take a line of a path for which no file was read yet: Fluentd writes one before it reads."""
        for slot in self._paths.get(path, ()):
            if not slot.inode:
                self._remove(slot)
                return slot
        return None

    def orphans(self) -> list[Slot]:
        """Take the lines whose files are not among those that are followed, and not where they were either."""
        found = [slot for slots in self._inodes.values() for slot in slots if not _is_there(slot)]
        for slot in found:
            self._remove(slot)
        return found

    def _remove(self, slot: Slot) -> None:
        for table, key in ((self._paths, slot.path), (self._inodes, slot.inode)):
            slots = table[key]  # type: ignore[index]
            slots.remove(slot)
            if not slots:
                del table[key]  # type: ignore[arg-type]

    def renamed(self, slot: Slot) -> str | None:
        """Where the file of a line lies now, if it has more than was read of it; None when it is not found."""
        for folder, base in _places(os.fsdecode(slot.path)):
            if folder not in self._names:
                self._names[folder] = _inodes(folder)
            name = self._names[folder].get(slot.inode)
            stem = os.path.splitext(base)[0]
            if name is not None and name.startswith(stem) and _goes_on(folder + name, slot.inode, slot.offset):
                return folder + name
        return None


class Names:
    """Finds files that have left their path in the folder where they were; what a folder holds is remembered."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._folders: dict[str, tuple[float, dict[int, str]]] = {}

    def find(self, path: str, identity: tuple[int, int], since: float) -> str | None:
        """Where a file lies that had this path until `since`; None when it is gone, or elsewhere."""
        for folder, _base in _places(path):
            if (found := self._find(folder, identity, since)) is not None:
                return found
        return None

    def _find(self, folder: str, identity: tuple[int, int], since: float) -> str | None:
        looked, names = self._folders.get(folder, (-math.inf, {}))
        name = names.get(identity[1])
        if name is not None and _leads_to(os.fsencode(folder + name), identity):
            return folder + name
        if name is None and looked > since:
            return None
        if len(self._folders) >= FOLDERS:
            self._folders.clear()
        names = _inodes(folder)
        self._folders[folder] = (self._now(), names)
        name = names.get(identity[1])
        return folder + name if name is not None and _leads_to(os.fsencode(folder + name), identity) else None


def _places(path: str) -> list[tuple[str, str]]:
    """Where a path lies, as (folder, name): by itself, and where its link leads to."""
    places = []
    for one in dict.fromkeys((path, os.path.realpath(path) if os.path.islink(path) else path)):
        folder, slash, base = one.rpartition("/")
        places.append((folder + slash, base))
    return places


def _inodes(folder: str) -> dict[int, str]:
    try:
        with os.scandir(folder or ".") as entries:
            return {entry.inode(): entry.name for entry in entries}
    except OSError:
        return {}


def _leads_to(path: bytes, identity: tuple[int, int]) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == identity


def _is_there(slot: Slot) -> bool:
    try:
        return os.stat(slot.path).st_ino == slot.inode
    except OSError:
        return False


def _goes_on(path: str, inode: int, offset: int) -> bool:
    """Whether a file has whole lines before an offset and something behind it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        info = os.fstat(fd)
        if info.st_ino != inode or info.st_size <= offset:
            return False
        return offset == 0 or os.pread(fd, 1, offset - 1) == b"\n"
    except OSError:
        return False
    finally:
        os.close(fd)
