"""Standard output, or the log that stands for it, written by whole lines.

Lines go out in one write each time: a pipe takes up to 4 KB, and a file that is open for appending any size,
without mixing them with the lines of other workers.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys


def write_lines(fd: int, data: bytes) -> None:
    """Write everything. Raises OSError; a reader that is gone (EPIPE) included.

    A descriptor that somebody made non-blocking is waited for: this is output for a person or a pipe, and
    the way to be independent of who reads it is a <buffer> or a file.
    """
    if fd == 1:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
