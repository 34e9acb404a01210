"""Descriptors of logs whose names have variables, kept open between lines.

https://nginx.org/en/docs/http/ngx_http_log_module.html#open_log_file_cache
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict


class LogCache:
    """Files by path.

    most: files kept. inactive: seconds without a line after which one is closed. least: lines within that time that
    make it worth keeping. valid: seconds after which it is looked whether the name still means the same file.
    """

    def __init__(self, most: int, inactive: float = 10.0, least: int = 1, valid: float = 60.0) -> None:
        self.most = most
        self.inactive = inactive
        self.least = least
        self.valid = valid
        self._files: OrderedDict[bytes, _Entry] = OrderedDict()

    def write(self, path: bytes, line: bytes) -> None:
        """Append a line. Raises OSError when the file cannot be opened."""
        now = time.monotonic()
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = _Entry(now)
        elif found.fd >= 0 and now - found.checked >= self.valid:
            found.checked = now
            if not _same(found.fd, path):
                found.close()
        if found.fd < 0:
            found.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        found.used = now
        found.lines += 1
        self._files.move_to_end(path)
        os.write(found.fd, line)
        if found.lines < self.least:
            found.close()
        while self._files:
            oldest = next(iter(self._files.values()))
            if len(self._files) <= self.most and now - oldest.used < self.inactive:
                return
            oldest.close()
            self._files.popitem(last=False)


class _Entry:
    """One file; fd is -1 while it is not worth keeping open."""

    __slots__ = ("checked", "fd", "lines", "used")

    def __init__(self, now: float) -> None:
        self.fd = -1
        self.lines = 0
        self.used = self.checked = now

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _same(fd: int, path: bytes) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False
