"""A disk that records every operation, and what a power cut leaves of it.

disk = Recorder()                     # give it to a pipeline as `files`
after = disk.after(count, fate)       # a Disk: the power went before operation number `count`

What survives: the content of a file as of its last sync; its name when the folder was synced after it was
made. What was not synced meets its fate:
    dropped   none of it is there, and what was removed without a sync of the folder is there again
    torn      the first half of it is there, cut at a sector of 512 bytes
    sectors   the file has its length, but only some of its sectors have content, the others are zeros
    kept      all of it is there, as when only the process dies
"""

from __future__ import annotations

import random
from collections.abc import Callable

from headrace.testing.disks import Disk

SECTOR = 512
FATES = ("dropped", "torn", "sectors", "kept")


class Recorder(Disk):
    """Notes operations with their content and time (`now`, seconds)."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.operations: list[tuple[str, str, object]] = []
        self.times: list[float] = []
        self._now = now

    def _note(self, operation: str, path: str, value: object = None) -> None:
        self.operations.append((operation, path, value))
        self.times.append(self._now())

    def create(self, path, mode):
        fd = super().create(path, mode)
        self._note("create", path)
        return fd

    def append(self, fd, data):
        path = self.open[fd][0]
        before = len(self.files[path].data) if path in self.files else 0
        taken = super().append(fd, data)
        self._note("append", path, (before, bytes(data[:taken])))
        return taken

    def overwrite(self, path, offset, data):
        super().overwrite(path, offset, data)
        self._note("append", path, (offset, bytes(data)))
        self._note("sync", path, len(self.files[path].data))

    def truncate(self, fd, size):
        super().truncate(fd, size)
        self._note("truncate", self.open[fd][0], size)

    def truncate_path(self, path, size):
        super().truncate_path(path, size)
        self._note("truncate", path, size)

    def sync(self, fd):
        path = self.open[fd][0]
        super().sync(fd)
        self._note("sync", path)

    def sync_dir(self, path):
        super().sync_dir(path)
        self._note("sync_dir", path)

    def unlink(self, path):
        there = path in self.files
        super().unlink(path)
        if there:
            self._note("unlink", path)

    def after(self, count: int, fate: str) -> Disk:
        """The disk as the next start finds it when the power goes before operation number `count`."""
        chance = random.Random(count)
        now: dict[str, bytearray] = {}
        safe: dict[str, bytes] = {}
        named: set[str] = set()
        removed: set[str] = set()
        for operation, path, value in self.operations[:count]:
            if operation == "create":
                now[path] = bytearray()
                safe[path] = b""
            elif operation == "append":
                at, data = value
                now[path][at : at + len(data)] = data
            elif operation == "truncate":
                del now[path][value:]
            elif operation == "sync":
                if path in now:  # else it was removed while it was synced
                    safe[path] = bytes(now[path])
            elif operation == "unlink":
                removed.add(path)
            elif operation == "sync_dir":
                inside = {one for one in now if one.rpartition("/")[0] == path}
                named |= inside - removed
                for one in inside & removed:
                    del now[one], safe[one]
                removed -= inside
        disk = Disk()
        disk.folders = set(self.folders)
        for path, data in now.items():
            if path in removed and (fate != "dropped" or path not in named):
                continue
            if path not in named and fate == "dropped":
                continue
            disk.put(path, _met(fate, safe[path], bytes(data), chance))
        return disk


def _met(fate: str, safe: bytes, data: bytes, chance: random.Random) -> bytes:
    if fate == "kept":
        return data
    if fate == "dropped" or safe[: len(data)] != data[: len(safe)]:
        return safe
    if fate == "torn":
        half = (len(safe) + len(data)) // 2 // SECTOR * SECTOR
        return data[: max(half, len(safe))]
    result = bytearray(data)
    first = len(safe) // SECTOR
    for sector in range(first, (len(data) + SECTOR - 1) // SECTOR):
        if chance.random() < 0.5:
            start = max(sector * SECTOR, len(safe))
            end = min((sector + 1) * SECTOR, len(data))
            result[start:end] = bytes(max(end - start, 0))
    return bytes(result)
