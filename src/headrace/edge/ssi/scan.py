"""Text and commands of a page: `<!--#name parameter="value" ... -->`, in pieces that may end anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

OPEN: Final = b"<!--#"
LONGEST: Final = 65536
"""Bytes of the longest command; a longer one is taken for an error."""
_COMMAND: Final = re.compile(
    rb"""<!--\#[ \t\r\n]*([A-Za-z]+)((?:[ \t\r\n]+[A-Za-z_]+[ \t\r\n]*=[ \t\r\n]*"""
    rb"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))*)[ \t\r\n]*-->""",
    re.DOTALL,
)
_PARAMETER: Final = re.compile(
    rb"""([A-Za-z_]+)[ \t\r\n]*=[ \t\r\n]*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL
)
_QUOTED: Final = re.compile(rb'\\(["\'\\])')


class Command:
    """One command. name: b"" for one that cannot be understood. words: the parameters in order."""

    __slots__ = ("name", "words")

    def __init__(self, name: bytes, words: list[tuple[bytes, bytes]]) -> None:
        self.name = name
        self.words = words

    def get(self, name: bytes) -> bytes | None:
        """The value of the last parameter of a name."""
        found = None
        for word, value in self.words:
            if word == name:
                found = value
        return found


class Scanner:
    """feed() and next() in turn: bytes of text, commands; None when more is needed."""

    def __init__(self) -> None:
        self._data = b""
        self._last = False

    def feed(self, data: bytes, *, last: bool) -> None:
        """Take some more of the page."""
        self._data += data
        self._last = self._last or last

    def __iter__(self) -> Iterator[bytes | Command]:
        while True:
            item = self.next()
            if item is None:
                return
            yield item

    def next(self) -> bytes | Command | None:
        """The next piece of text or command."""
        data = self._data
        if not data:
            return None
        at = data.find(OPEN)
        if at < 0:
            keep = 0 if self._last else next((n for n in range(4, 0, -1) if data.endswith(OPEN[:n])), 0)
            text, self._data = data[: len(data) - keep], data[len(data) - keep :]
            return text or None
        if at:
            self._data = data[at:]
            return data[:at]
        match = _COMMAND.match(data)
        if match is not None:
            self._data = data[match.end() :]
            words = [
                (name.lower(), _QUOTED.sub(rb"\1", value[1:-1])) for name, value in _PARAMETER.findall(match.group(2))
            ]
            return Command(match.group(1).lower(), words)
        end = data.find(b"-->")
        if end < 0 and not self._last and len(data) < LONGEST:
            return None
        if end >= 0 and not self._last and data[:end].count(b'"') % 2 and len(data) < LONGEST:
            return None
        self._data = data[end + 3 :] if end >= 0 else b""
        return Command(b"", [])
