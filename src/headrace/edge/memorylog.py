"""error_log memory:SIZE: the last lines, kept in memory, for a level that a disk would not bear.

Each process has a ring of its own, made with its first line: an anonymous file of SIZE bytes, which
`cat /proc/PID/fd/N` shows while the process lives (`ls -l /proc/PID/fd` names it memfd:error_log).
https://nginx.org/en/docs/ngx_core_module.html#error_log
"""

from __future__ import annotations

import os

from headrace.edge.log import LogFile


class MemoryLog(LogFile):
    """A ring of `size` bytes. Where the newest line ends, the oldest ones begin again, the first of them cut."""

    def __init__(self, size: int) -> None:
        super().__init__(f"memory:{size}")
        self.size = size
        self._pid = 0
        self._at = 0

    def check(self) -> None:
        """Nothing can fail."""

    def open(self) -> None:
        """It is made with the first line of a process."""

    def reopen(self) -> None:
        """It has no name that could be another file's."""

    def write(self, data: bytes) -> None:
        """Append, over the oldest lines; a line that is larger than the ring is cut."""
        pid = os.getpid()
        if self._pid != pid:
            self._pid, self._at = pid, 0
            self.fd = os.memfd_create("error_log")
        data = data[-self.size :]
        first = data[: self.size - self._at]
        try:
            os.pwrite(self.fd, first, self._at)
            if len(first) < len(data):
                os.pwrite(self.fd, data[len(first) :], 0)
        except OSError:
            return
        self._at = (self._at + len(data)) % self.size

    def lines(self) -> bytes:
        """What is kept by this process, the oldest first."""
        if self._pid != os.getpid():
            return b""
        kept = os.pread(self.fd, self.size, 0)
        return kept[self._at :] + kept[: self._at] if len(kept) == self.size else kept
