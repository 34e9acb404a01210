"""The files of one ..._cache_path: names, sizes, use, and who is asking an upstream for what.

A worker knows the files it has seen; those that were there before are looked up in slices after the start. Cleaning
(inactive, max_size, min_free) is by last use: the time of a file's last change is that of its last use, so that
workers see each other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headrace.edge.upstream.cache.entry import Entry, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

CLEAN_SECONDS: Final = 10.0
ABANDONED: Final = 3600.0
"""Seconds without a write after which an entry that is being written has no writer any more."""
SLICE: Final = 200
USES_KEPT: Final = 65536


class Zone:
    """levels: digits of each level of folders. inactive: seconds. max_size, min_free: bytes, 0 for no limit."""

    def __init__(
        self, name: str, path: str, levels: tuple[int, ...], *, inactive: float = 600.0, max_size: int = 0,
        min_free: int = 0,
    ) -> None:  # fmt: skip
        self.name = name
        self.path = path
        self.levels = levels
        self.inactive = inactive
        self.max_size = max_size
        self.min_free = min_free
        self.fetching: dict[str, asyncio.Future[None]] = {}
        """Entries that a request of this worker fetches under proxy_cache_lock."""
        self.updating: set[str] = set()
        self.uses: OrderedDict[str, int] = OrderedDict()
        self.total = 0
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._scan: Iterator[os.DirEntry[str]] | None = None

    @property
    def temp(self) -> str:
        """The folder of entries that are being written."""
        return os.path.join(self.path, ".temp")

    def file_of(self, digest: str) -> str:
        """The path of an entry."""
        parts, end = [], len(digest)
        for level in self.levels:
            parts.append(digest[end - level : end])
            end -= level
        return os.path.join(self.path, *parts, digest)

    @staticmethod
    def digest(key: bytes) -> str:
        """The name of an entry by its key, as nginx names it."""
        return hashlib.md5(key, usedforsecurity=False).hexdigest()

    def find(self, digest: str, key: bytes) -> Entry | None:
        """Open an entry, and count the use."""
        self._start()
        entry = read_entry(self.file_of(digest), key)
        if entry is None:
            self._forget(digest)
            return None
        now = time.time()
        known = self._known.get(digest)
        if known is None or now - known[1] > min(self.inactive / 8, 5.0):
            with contextlib.suppress(OSError):
                os.utime(entry.path, (now, now))
            self._know(digest, entry.body + entry.size, now)
        else:
            self._known.move_to_end(digest)
        return entry

    def used(self, digest: str) -> int:
        """Count a request for something that is not kept; how many there were."""
        count = self.uses[digest] = self.uses.pop(digest, 0) + 1
        if len(self.uses) > USES_KEPT:
            self.uses.popitem(last=False)
        return count

    def added(self, digest: str, size: int) -> None:
        """An entry has been written: make room for it where there is a limit."""
        self._start()
        self._know(digest, size, time.time())
        self._make_room()

    def remove(self, digest: str) -> None:
        """Remove an entry."""
        with contextlib.suppress(OSError):
            os.unlink(self.file_of(digest))
        self._forget(digest)

    def _know(self, digest: str, size: int, now: float) -> None:
        self._forget(digest)
        self._known[digest] = (size, now)
        self.total += size

    def _forget(self, digest: str) -> None:
        known = self._known.pop(digest, None)
        if known is not None:
            self.total -= known[0]

    def _make_room(self) -> None:
        while self._known and (self._over() or (self.min_free and self._free() < self.min_free)):
            if len(self._known) == 1:
                return
            self.remove(next(iter(self._known)))

    def _over(self) -> bool:
        return bool(self.max_size) and self.total > self.max_size

    def _free(self) -> int:
        try:
            found = os.statvfs(self.path)
        except OSError:
            return self.min_free
        return found.f_bavail * found.f_frsize

    def _start(self) -> None:
        if self._timer is None:
            self._sweep()
            self._scan = self._files(self.path)
            self._timer = asyncio.get_running_loop().call_later(0.1, self._turn)

    def _sweep(self) -> None:
        """Remove what workers that were killed have left unfinished."""
        with contextlib.suppress(OSError), os.scandir(self.temp) as items:
            for item in items:
                if time.time() - item.stat().st_mtime > ABANDONED:
                    os.unlink(item.path)

    def _turn(self) -> None:
        """A slice of what was there before, then whatever nobody used for too long."""
        if self._scan is not None:
            for _ in range(SLICE):
                item = next(self._scan, None)
                if item is None:
                    self._scan = None
                    break
                with contextlib.suppress(OSError):
                    info = item.stat()
                    if item.name not in self._known:
                        self._know(item.name, info.st_size, info.st_mtime)
        else:
            self._clean()
        wait = 0.1 if self._scan is not None else min(CLEAN_SECONDS, max(self.inactive / 2, 0.1))
        self._timer = asyncio.get_running_loop().call_later(wait, self._turn)

    def files(self) -> Iterator[os.DirEntry[str]]:
        """All entries, those of other workers too."""
        return self._files(self.path)

    def _files(self, folder: str) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(OSError), os.scandir(folder) as items:
            for item in items:
                if item.name.startswith("."):
                    continue
                if item.is_dir(follow_symlinks=False):
                    yield from self._files(item.path)
                elif len(item.name) == 32:
                    yield item

    def _clean(self) -> None:
        now = time.time()
        for digest, (size, used) in list(self._known.items())[:SLICE]:
            if now - used < self.inactive:
                continue
            try:
                used = os.stat(self.file_of(digest)).st_mtime  # noqa: PLW2901 - the others' use counts too
            except OSError:
                self._forget(digest)
                continue
            if now - used >= self.inactive:
                self.remove(digest)
            else:
                self._know(digest, size, used)
        self._make_room()

    def close(self) -> None:
        """The worker ends."""
        if self._timer is not None:
            self._timer.cancel()
