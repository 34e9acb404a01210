"""The textual form of the Forward Protocol: JSON values one after the other, with or without space between.

Only the end of each value is looked for here. Strings are skipped by one regular expression, so the cost is
in brackets and commas. Bounded: bytes and values of one message, and depth.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import Error, Side

BYTES_LIMIT: Final = 16 << 20
VALUES_LIMIT: Final = 1 << 18
DEPTH_LIMIT: Final = 512

_SPACE: Final = re.compile(rb"[ \t\r\n,]*+")
"""Between messages. The comma is for those who write an array without its brackets."""
_TOKEN: Final = re.compile(rb'[\[\]{},"]')
_STRING_END: Final = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)


class JsonError(Error):
    """What comes cannot be cut into JSON values: the connection is of no use any more."""

    kind = "bad_message"
    side = Side.CLIENT


class JsonStream:
    """Cuts a stream into JSON arrays and objects."""

    __slots__ = ("_buffer", "_depth", "_scanned", "_string", "_values")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._values = 0
        self._string = False

    def push(self, data: bytes) -> None:
        """Take bytes of the connection."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next value, None when it is not whole yet. Raises JsonError."""
        buffer = self._buffer
        if not self._depth:
            lead = _SPACE.match(buffer)
            if lead is not None and lead.end():
                del buffer[: lead.end()]
            if not buffer:
                return None
            if buffer[0] not in b"[{":
                raise JsonError("a JSON array is expected")
        end = self._scan(buffer)
        if end is None:
            if len(buffer) > BYTES_LIMIT:
                raise JsonError(f"a message has more than {BYTES_LIMIT} bytes")
            return None
        value = bytes(buffer[:end])
        del buffer[:end]
        self._scanned = self._values = 0
        return value

    def _scan(self, buffer: bytearray) -> int | None:
        at = self._scanned
        depth, values = self._depth, self._values
        while True:
            if self._string:
                at = self._string_end(buffer, at)
                if self._string:
                    break
            match = _TOKEN.search(buffer, at)
            if match is None:
                at = len(buffer)
                break
            at = match.end()
            token = buffer[at - 1]
            if token == 0x22:
                self._string = True
                continue
            if token in b"[{":
                depth += 1
            elif token in b"]}":
                depth -= 1
            values += 1
            if depth > DEPTH_LIMIT:
                raise JsonError(f"a message is nested deeper than {DEPTH_LIMIT}")
            if values > VALUES_LIMIT:
                raise JsonError(f"a message holds more than {VALUES_LIMIT} values")
            if not depth:
                self._depth = 0
                return at
        self._scanned, self._depth, self._values = at, depth, values
        return None

    def _string_end(self, buffer: bytearray, at: int) -> int:
        """The position behind the string that is open at `at`, or where to go on with more bytes."""
        match = _STRING_END.match(buffer, at)
        if match is not None:
            self._string = False
            return match.end()
        # Not ended yet: everything is part of it, but for an escape whose second byte is to come.
        end = last = len(buffer)
        while last > at and buffer[last - 1] == 0x5C:
            last -= 1
        return end - (end - last) % 2
