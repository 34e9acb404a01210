"""A temporary file that takes what a client is too slow for. It has no name once it is open."""

from __future__ import annotations

import os
import tempfile

from headrace.errors import HttpError


class Spool:
    """size: bytes written; given: bytes handed out. Raises HttpError 500 when the disk does not take it."""

    def __init__(self, folder: str) -> None:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self.fd, path = tempfile.mkstemp(dir=folder)
            os.unlink(path)
        except OSError as error:
            raise _failed(folder, error) from error
        self.name = os.fsencode(path)
        self.size = 0
        self.given = 0

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self.fd, view, self.size)
                self.size += done
                view = view[done:]
        except OSError as error:
            raise _failed(os.fsdecode(self.name), error) from error

    def give(self, limit: int) -> tuple[int, int]:
        """Where the next bytes stand: offset and length."""
        at = self.given
        length = min(self.size - at, limit)
        self.given += length
        return at, length

    def read(self, limit: int) -> bytes:
        """The next bytes. Raises OSError."""
        at, length = self.give(limit)
        return os.pread(self.fd, length, at)

    def reset(self) -> None:
        """Everything handed out is in the kernel: begin again, so that the file does not grow with the answer."""
        self.size = self.given = 0
        os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """Close the file, and with it free its space."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _failed(name: str, error: OSError) -> HttpError:
    return HttpError(500, f'temporary file "{name}" failed ({error.errno}: {error.strerror})')
