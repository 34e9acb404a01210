"""ngx.errlog: what goes to the error log, kept for scripts (lua_capture_error_log).

https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/errlog.md
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headrace.edge import log

HEADER: Final = 16
"""Bytes that a message takes beside its text."""
LEAST: Final = 4096
"""Bytes of the smallest buffer."""


class ErrlogApi:
    """size: bytes of the buffer, 0: nothing is kept. The oldest messages make room for new ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.level = log.DEBUG
        self._used = 0
        self._kept: deque[tuple[int, float, bytes]] = deque()
        if size:
            log.captures[:] = [self._capture]  # a configuration has one; at a reload the new one takes its place

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {"errlog_level": self.errlog_level, "errlog_take": self.errlog_take}

    def _capture(self, level: int, text: bytes) -> None:
        if level > self.level:
            return
        room = HEADER + len(text)
        if room > self.size:
            return
        while self._used + room > self.size:
            self._used -= HEADER + len(self._kept.popleft()[2])
        self._used += room
        self._kept.append((level, round(time.time(), 3), text))

    def errlog_level(self, level: int) -> int:
        """Keep what is at least as urgent as this; 0: nothing is kept at all."""
        self.level = int(level)
        return 1 if self.size else 0

    def errlog_take(self) -> tuple[int, float, bytes] | int | None:
        """The oldest message; None: there is none; 0: nothing is kept at all."""
        if not self.size:
            return 0
        if not self._kept:
            return None
        found = self._kept.popleft()
        self._used -= HEADER + len(found[2])
        return found

    def close(self) -> None:
        """Keep nothing any more."""
        if self._capture in log.captures:
            log.captures.remove(self._capture)
