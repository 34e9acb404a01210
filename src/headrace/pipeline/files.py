"""The one seam to the file system: everything that must survive goes through a `Files` object.

Tests put their own object here to record the operations, to fail one of them, or to replay a prefix of
them as a power cut would leave it. All errors are OSError.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ: Final = 4 << 20


class Files:
    """File operations on real files. Descriptors are plain integers."""

    def makedirs(self, path: str, mode: int) -> None:
        """Make a directory and its parents; it may exist."""
        os.makedirs(path, mode, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] when it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def create(self, path: str, mode: int) -> int:
        """Make a new file for appending. Raises FileExistsError."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, mode)

    def open_read(self, path: str) -> int:
        """Open a file for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def append(self, fd: int, data: bytes | memoryview) -> int:
        """Write at the end; return how many bytes were taken, which may be fewer than given."""
        return os.write(fd, data)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Write over a part of a file and bring it to the disk."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, offset)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes at `offset`."""
        return os.pread(fd, size, offset)

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        return os.stat(path).st_size

    def free(self, path: str) -> int | None:
        """Return how many bytes the disk of a folder still takes; None when that is not known."""
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def content(self, path: str) -> bytes:
        """Return a whole file."""
        fd = self.open_read(path)
        parts: list[bytes] = []
        at = 0
        try:
            while part := self.read_at(fd, _READ, at):
                parts.append(part)
                at += len(part)
        finally:
            self.close(fd)
        return b"".join(parts)

    def replace(self, path: str, data: bytes, mode: int) -> None:
        """Write a file beside, bring it to the disk, and let it take the place of `path` in one step."""
        fresh = f"{path}.new"
        self.unlink(fresh)
        fd = self.create(fresh, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[self.append(fd, view[:_READ]) :]
            self.sync(fd)
        except OSError:
            self.unlink(fresh)
            raise
        finally:
            self.close(fd)
        self.rename(fresh, path)
        self.sync_dir(os.path.dirname(path))

    def modified(self, path: str) -> float:
        """Return when a file was last written: seconds since the epoch."""
        return os.stat(path).st_mtime

    def is_file(self, path: str) -> bool:
        """Whether a path is that of a regular file."""
        return os.path.isfile(path)

    def opened_by(self, paths: Sequence[str]) -> int | None:
        """Return a process other than this one that has one of the files open, as far as it can be seen."""
        wanted = {os.path.realpath(path) for path in paths}
        for pid in filter(str.isdigit, self.listdir("/proc")):
            if int(pid) == os.getpid():
                continue
            with suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    if os.readlink(f"/proc/{pid}/fd/{fd}") in wanted:
                        return int(pid)
        return None

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file."""
        os.ftruncate(fd, size)

    def truncate_path(self, path: str, size: int) -> None:
        """Cut a file."""
        os.truncate(path, size)

    def sync(self, fd: int) -> None:
        """Bring the data of a file, and its length, to the disk. May run in a thread."""
        os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing the new name."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def lock(self, path: str, mode: int) -> int | None:
        """Take the lock file at `path`; None when another process (or descriptor) holds it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd
