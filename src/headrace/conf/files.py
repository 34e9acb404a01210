"""The files a configuration is read from: one place that opens them, remembers them and counts lines."""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING

from headrace.errors import ConfError, Place

if TYPE_CHECKING:
    from collections.abc import Callable


class Files:
    """Reads configuration files and keeps what was read, for `-T`, for a dump and for reload.

    read: (path, text) of every file in the order of its first reading.
    """

    def __init__(self, opener: Callable[[str], bytes] | None = None) -> None:
        self.read: list[tuple[str, str]] = []
        self._opener = opener or _read_file

    def load(self, path: str, place: Place | None = None) -> str:
        """Return the text of `path` (UTF-8 with surrogateescape); `place` is where it was included.

        Raises ConfError with nginx's own message where the file cannot be read.
        """
        try:
            text = self._opener(path).decode("utf-8", "surrogateescape")
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            reason = f"({number}: {os.strerror(number)})" if number else f"({error})"
            raise ConfError(f'open() "{path}" failed {reason}', place) from error
        if all(path != known for known, _ in self.read):
            self.read.append((path, text))
        return text

    def dump(self) -> str:
        """Return every file with a header line, as `nginx -T` prints them."""
        return "".join(f"# configuration file {path}:\n{text}\n" for path, text in self.read)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class Lines:
    """Offset in a text -> line number, counted from 1."""

    def __init__(self, text: str, file: str) -> None:
        self._ends = [at for at, char in enumerate(text) if char == "\n"]
        self._file = file

    def line(self, offset: int) -> int:
        """Return the line that holds the character at `offset`."""
        return bisect.bisect_left(self._ends, offset) + 1

    def place(self, offset: int) -> Place:
        """Return the place of the character at `offset`."""
        return Place(self._file, self.line(offset))
