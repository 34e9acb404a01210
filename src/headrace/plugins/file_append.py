"""Whole chunks into files that others append to as well: other lanes, other workers, another generation of them.

Every writer takes the file's own lock (flock) for the time of a chunk, so lines never mix and no lock files lie
about; it is waited for without holding the loop up. A chunk that could not be written to its end is taken out again,
so that its next attempt does not leave half a line or the same lines twice.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.core.clock import Clock
    from headrace.pipeline.files import Files

SLICE: Final = 1 << 20
"""Bytes written before others have their turn on the loop."""
_SHORT: Final = 64 << 10
"""Bytes of a piece from which on it is written by itself."""
_JOINED: Final = 256 << 10
_POLL: Final = 0.005
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


async def append(path: str, pieces: Sequence[bytes], *, files: Files, clock: Clock, mode: int) -> None:
    """Add to a file, which is made when it is not there. Raises OSError. pieces: of a chunk, in their order."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
    try:
        locked = await _lock(fd, clock)
        start = os.fstat(fd).st_size
        await _write(fd, pieces, files, start if locked else None)
    finally:
        files.close(fd)


async def create(
    prefix: str, rest: str, index: int, pieces: Sequence[bytes], *, files: Files, mode: int, joint: str = "_"
) -> int:
    """Write the first file of PREFIX_N REST that is free, from N = index on; return its N. Raises OSError.

    joint: what stands before N.
    """
    while True:
        path = f"{prefix}{joint}{index}{rest}"
        try:
            fd = files.create(path, mode)
        except FileExistsError:
            index += 1
            continue
        try:
            await _write(fd, pieces, files, None)
        except BaseException:
            files.unlink(path)
            raise
        finally:
            files.close(fd)
        return index


async def _lock(fd: int, clock: Clock) -> bool:
    """Take the lock of an open file; False where the file system has none."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await clock.sleep(_POLL)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


async def _write(fd: int, pieces: Sequence[bytes], files: Files, start: int | None) -> None:
    """Write everything. start: to what size the file is cut when that fails, if nobody else wrote behind."""
    done = turn = 0
    try:
        for block in _blocks(pieces):
            view = memoryview(block)
            while view:
                if done - turn >= SLICE:
                    turn = done
                    await asyncio.sleep(0)
                taken = files.append(fd, view[:SLICE])
                done += taken
                view = view[taken:]
    except BaseException:
        if start is not None and done and os.fstat(fd).st_size == start + done:
            files.truncate(fd, start)
        raise


def _blocks(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces worth a write: only short ones are copied."""
    short: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) < _SHORT:
            short.append(piece)
            size += len(piece)
            if size < _JOINED:
                continue
        if short:
            yield b"".join(short)
            short, size = [], 0
        if len(piece) >= _SHORT:
            yield piece
    if short:
        yield b"".join(short)
