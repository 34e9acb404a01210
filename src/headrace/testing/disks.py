"""A file system in memory behind the seam `pipeline.files.Files`: it records, fails, and loses power.

disk = Disk()                     # give it to a pipeline as `files`
disk.fail("append", OSError(errno.ENOSPC, "full"))
after = disk.power_cut(lose=...)  # a new Disk with what had reached the platter
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from headrace.pipeline.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _File:
    __slots__ = ("data", "safe")

    def __init__(self, data: bytes = b"", safe: int = 0) -> None:
        self.data = bytearray(data)
        self.safe = safe
        """How many bytes at the beginning have been synced."""


class Disk(Files):
    """Files in memory. `log` names every operation that changes something, in order."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.folders: set[str] = set()
        self.locks: dict[str, int] = {}
        self.log: list[tuple[str, str]] = []
        self.room: int | None = None
        """Bytes that may still be appended in all; a write that does not fit is short, the next fails."""
        self.open: dict[int, tuple[str, _File]] = {}
        self._next = 100
        self._failures: dict[str, list[OSError]] = {}
        self.before: Callable[[str, str], None] | None = None

    def fail(self, operation: str, error: OSError, times: int = 1) -> None:
        """Let the next calls of an operation fail."""
        self._failures.setdefault(operation, []).extend([error] * times)

    def power_cut(self, keep: Callable[[str, int, int], int] | None = None) -> Disk:
        """Return the disk as the next start finds it. keep(path, synced, written): how many bytes survive."""
        after = Disk()
        after.folders = set(self.folders)
        for path, one in self.files.items():
            size = len(one.data) if keep is None else keep(path, one.safe, len(one.data))
            after.files[path] = _File(bytes(one.data[:size]), size)
        return after

    def copy(self) -> Disk:
        """Return the disk as the next start finds it when only the process dies."""
        return self.power_cut()

    def _do(self, operation: str, path: str) -> None:
        if self.before is not None:
            self.before(operation, path)
        if waiting := self._failures.get(operation):
            raise waiting.pop(0)
        self.log.append((operation, path))

    def makedirs(self, path: str, mode: int) -> None:
        """Make a folder."""
        self.folders.add(path)

    def listdir(self, path: str) -> list[str]:
        """Names of files and folders in a folder."""
        prefix = path.rstrip("/") + "/"
        names = {one[len(prefix) :].partition("/")[0] for one in (*self.files, *self.folders) if one.startswith(prefix)}
        return sorted(names)

    def _open(self, path: str, one: _File) -> int:
        self._next += 1
        self.open[self._next] = (path, one)
        return self._next

    def create(self, path: str, mode: int) -> int:
        """Make a file."""
        if path in self.files:
            raise FileExistsError(errno.EEXIST, "exists", path)
        self._do("create", path)
        self.files[path] = _File()
        return self._open(path, self.files[path])

    def open_read(self, path: str) -> int:
        """Open a file."""
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._do("open_read", path)
        return self._open(path, self.files[path])

    def append(self, fd: int, data: bytes | memoryview) -> int:
        """Write at the end, as far as there is room."""
        path, one = self.open[fd]
        self._do("append", path)
        data = bytes(data)
        if self.room is not None:
            if self.room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = data[: self.room]
            self.room -= len(data)
        one.data += data
        return len(data)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Write over a part."""
        self._do("overwrite", path)
        self.files[path].data[offset : offset + len(data)] = data

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read."""
        path, one = self.open[fd]
        self._do("read_at", path)
        return bytes(one.data[offset : offset + size])

    def size(self, path: str) -> int:
        """Length."""
        return len(self.files[path].data)

    def free(self, path: str) -> int | None:
        """Room, where a test sets one."""
        return self.room

    def modified(self, path: str) -> float:
        """When a file was last written: always the same."""
        return 1_700_000_000.0 if path in self.files else 0.0

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        return path in self.files

    def opened_by(self, paths: Sequence[str]) -> int | None:
        """No other process has a file open."""
        return None

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file."""
        path, one = self.open[fd]
        self._do("truncate", path)
        self._cut(one, size)

    def truncate_path(self, path: str, size: int) -> None:
        """Cut a file."""
        self._do("truncate", path)
        self._cut(self.files[path], size)

    def _cut(self, one: _File, size: int) -> None:
        if self.room is not None:
            self.room += len(one.data) - size
        del one.data[size:]
        one.safe = min(one.safe, size)

    def sync(self, fd: int) -> None:
        """Note that the bytes are safe."""
        path, one = self.open[fd]
        self._do("sync", path)
        one.safe = len(one.data)

    def sync_dir(self, path: str) -> None:
        """Names are always safe here."""
        self._do("sync_dir", path)

    def rename(self, old: str, new: str) -> None:
        """Rename."""
        self._do("rename", old)
        self.files[new] = self.files.pop(old)

    def unlink(self, path: str) -> None:
        """Remove; the room comes back."""
        self._do("unlink", path)
        one = self.files.pop(path, None)
        if one is not None and self.room is not None:
            self.room += len(one.data)

    def close(self, fd: int) -> None:
        """Close; a lock is given up."""
        path, _one = self.open.pop(fd)
        if self.locks.get(path) == fd:
            del self.locks[path]

    def lock(self, path: str, mode: int) -> int | None:
        """Take a lock."""
        if path in self.locks:
            return None
        fd = self._open(path, _File())
        self.locks[path] = fd
        return fd

    def data(self, path: str) -> bytes:
        """Return the content of a file."""
        return bytes(self.files[path].data)

    def put(self, path: str, data: bytes) -> None:
        """Set the content of a file, all of it safe."""
        self.files[path] = _File(data, len(data))

    def segments(self) -> list[str]:
        """Paths of the journals' segments, in order."""
        return sorted(path for path in self.files if path.endswith(".journal"))
