"""Open files, at most a part of what the process may open.

Ten thousand files are followed with 256 descriptors: a file that is at its end may be closed, the one that was read
longest ago first, and is opened again when it has something new. A file that was renamed or removed cannot be found
again by its name, so it is kept open until it is done with.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.plugins.in_tail.tailed import Tailed

PART: Final = 4
"""The part of the process's descriptors that one source may use."""
MOST: Final = 8192
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


class MovedError(OSError):
    """The name leads to another file now."""


def limit() -> int:
    """How many files a source keeps open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft < 0 else min(max(soft // PART, 8), MOST)


class Handles:
    """The open files of one source. opened, closed: how often, in all."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.opened = 0
        self.closed = 0
        self._open: dict[Tailed, int] = {}
        """In the order of their last use."""
        self._pinned: dict[Tailed, int] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self._pinned)

    @property
    def crowded(self) -> bool:
        """Whether files without a name leave others little room."""
        return len(self._pinned) > self.most // 2

    def known(self, tail: Tailed) -> int | None:
        """The descriptor of a file that is open."""
        fd = self._pinned.get(tail)
        return fd if fd is not None else self._open.get(tail)

    def get(self, tail: Tailed) -> int:
        """The descriptor of a file, opened if need be. Raises OSError; MovedError when its name is another's."""
        fd = self._pinned.get(tail)
        if fd is not None:
            return fd
        fd = self._open.pop(tail, None)
        if fd is None:
            fd = self._open_file(tail)
        self._open[tail] = fd
        return fd

    def pin(self, tail: Tailed) -> None:
        """Keep a file open until `close`. Raises OSError when it is not open and cannot be opened."""
        if tail not in self._pinned:
            fd = self.get(tail)
            del self._open[tail]
            self._pinned[tail] = fd

    def unpin(self, tail: Tailed) -> None:
        """The file can be found by its name again."""
        fd = self._pinned.pop(tail, None)
        if fd is not None:
            self._open[tail] = fd
            while len(self) > self.most and self._evict():
                pass

    def close(self, tail: Tailed) -> None:
        """Close a file, if it is open."""
        fd = self._open.pop(tail, None)
        if fd is None:
            fd = self._pinned.pop(tail, None)
        if fd is not None:
            os.close(fd)
            self.closed += 1

    def close_all(self) -> None:
        """Close everything."""
        for tail in [*self._open, *self._pinned]:
            self.close(tail)

    def _open_file(self, tail: Tailed) -> int:
        while len(self) >= self.most and self._evict():
            pass
        while True:
            try:
                fd = os.open(tail.name, _FLAGS)
            except OSError as error:
                if error.errno in _EXHAUSTED and self._evict():
                    continue
                raise
            break
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) != tail.identity:
            os.close(fd)
            raise MovedError(errno.ESTALE, "another file has this name now", tail.name)
        self.opened += 1
        return fd

    def _evict(self) -> bool:
        """Close the file that was used longest ago; False when there is none."""
        oldest = next(iter(self._open), None)
        if oldest is None:
            return False
        self.close(oldest)
        return True
