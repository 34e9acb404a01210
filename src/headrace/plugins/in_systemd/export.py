"""The journal's export format: bytes in, entries out (https://systemd.io/JOURNAL_EXPORT_FORMATS/). No I/O.

An entry is fields, one after the other, and an empty line. A field is NAME=VALUE in a line; or, where the value may
hold anything, NAME in a line, its length in eight bytes (little endian), the value and a newline.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

MAX_ENTRY: Final = 64 << 20
"""Bytes of one entry; journald's own limit is 64 MB for a field."""

_LENGTH: Final = struct.Struct("<Q")


class ExportError(ValueError):
    """What came is not the export format."""


class Entry:
    """One entry. time: nanoseconds since the epoch. fields: without those that begin with two underscores."""

    __slots__ = ("cursor", "fields", "time")

    def __init__(self, fields: dict[str, str]) -> None:
        self.cursor = fields.get("__CURSOR", "")
        self.time = int(fields.get("__REALTIME_TIMESTAMP", "0")) * 1000
        self.fields: Record = {name: value for name, value in fields.items() if not name.startswith("__")}


class ExportParser:
    """Takes bytes as they come. Raises ExportError; it is of no use afterwards."""

    def __init__(self) -> None:
        self._held = b""
        self._fields: dict[str, str] = {}
        self._size = 0

    def feed(self, data: bytes) -> list[Entry]:
        """The entries that are whole now."""
        data = self._held + data if self._held else data
        at = 0
        found: list[Entry] = []
        while True:
            end = data.find(b"\n", at)
            if end < 0:
                break
            if end == at:
                at += 1
                if self._fields:
                    found.append(self._entry())
                continue
            name, equals, value = data[at:end].partition(b"=")
            start = end + 1
            if not equals:
                if len(data) < start + 8:
                    break
                (length,) = _LENGTH.unpack_from(data, start)
                if length > MAX_ENTRY:
                    raise ExportError(f"a field of {length} bytes")
                start += 8
                if len(data) < start + length + 1:
                    break
                value = data[start : start + length]
                if data[start + length] != 0x0A:
                    raise ExportError("no newline behind a value")
                start += length + 1
            self._size += start - at
            if self._size > MAX_ENTRY:
                raise ExportError(f"an entry of more than {MAX_ENTRY} bytes")
            self._fields[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
            at = start
        self._held = data[at:]
        if len(self._held) > 2 * MAX_ENTRY:
            raise ExportError("a line without end")
        return found

    def _entry(self) -> Entry:
        fields, self._fields, self._size = self._fields, {}, 0
        try:
            return Entry(fields)
        except ValueError as error:
            raise ExportError("a time that is no number") from error
