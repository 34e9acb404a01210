"""The descriptor by which a loop waits: looked at by a socket that retries, to see whether others have work.

Neither uvloop nor asyncio gives it away in general. A selector loop has it; for others a probe is registered with
the loop, and the epoll descriptor of this process that watches the probe is the loop's (/proc/self/fdinfo).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable


def _watches(epoll_fd: str, fd: int) -> bool:
    try:
        with open(f"/proc/self/fdinfo/{epoll_fd}", encoding="ascii") as info:
            return any(line.split()[:2] == ["tfd:", str(fd)] for line in info)
    except OSError:
        return False


def _scan(fd: int) -> int:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]" and _watches(name, fd):
                return int(name)
    return -1


def find(loop: asyncio.AbstractEventLoop, found: Callable[[int], None]) -> None:
    """Call `found` with the loop's epoll descriptor, at once or within its next turns; never when there is none."""
    selector = getattr(loop, "_selector", None)
    if selector is not None and hasattr(selector, "fileno"):
        found(selector.fileno())
        return
    probe, other = socket.socketpair()
    loop.add_reader(probe.fileno(), lambda: None)

    def look(tries: int) -> None:
        fd = _scan(probe.fileno())
        if fd < 0 and tries > 0:
            loop.call_later(0.001, look, tries - 1)
            return
        loop.remove_reader(probe.fileno())
        probe.close()
        other.close()
        if fd >= 0:
            found(fd)

    # A registration reaches the kernel when the loop polls next.
    loop.call_later(0.0, look, 5)
