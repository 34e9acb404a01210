"""A packed stream of ordinary events -> their times and their records, in a few calls of C: msgspec's decoder.

It makes what the exact reader (`event.unpack_events`) makes, at a third of the cost, or it says None and the exact
reader has the stream. It does so for everything that is unusual in any way: bytes in strings that are not UTF-8, an
extension type or a timestamp inside a record, times of several kinds, entries that are no events, a wrong count,
nesting beyond Python's recursion limit. One difference is kept, as it loses nothing: a map inside a record whose
keys are arrays, for which the exact reader refuses the event, has tuples for keys.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import orjson
from msgspec.msgpack import Decoder, Ext

from headrace.pipeline.wire import NS

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

    Columns = tuple[list[int], list[Record]]
    """Nanoseconds and records; as many of the one as of the other."""

_LOOKS: Final = 64
"""Looks at bytes 0xFF, beside one for each event, before the records are gone through instead."""


class _UnusualError(Exception):
    pass


def _refuse(_code: int, _data: memoryview) -> NoReturn:
    raise _UnusualError


_WITH_SECONDS: Final = Decoder(list[tuple[int, dict[Any, Any]]], ext_hook=_refuse)
_WITH_EVENT_TIMES: Final = Decoder(list[tuple[Ext, dict[Any, Any]]], ext_hook=_refuse)
_CODE: Final = attrgetter("code")
_DATA: Final = attrgetter("data")
_REFUSED: Final = (msgspec.DecodeError, _UnusualError, RecursionError)


def read_columns(data: bytes, count: int) -> Columns | None:
    """Read a stream of `count` entries; None: it is one for the exact reader."""
    if not 0 < count < 1 << 32:
        return None
    whole = b"\xdd" + count.to_bytes(4, "big") + data
    try:
        if data[1:3] == b"\xd7\x00":
            stamped = _WITH_EVENT_TIMES.decode(whole)
            records = [record for _, record in stamped]
            times = _nanoseconds([time for time, _ in stamped])
        else:
            events = _WITH_SECONDS.decode(whole)
            records = [record for _, record in events]
            times = [time * NS for time, _ in events]
    except _REFUSED:
        return None
    if times is None or (_may_have_timestamps(data, count + _LOOKS) and not _is_plain(records)):
        return None
    return times, records


def _nanoseconds(stamps: list[Ext]) -> list[int] | None:
    """The times of EventTimes; None when another extension type is among them."""
    parts = list(map(_DATA, stamps))
    if any(map(_CODE, stamps)) or set(map(len, parts)) != {8}:
        return None
    halves = struct.unpack(f">{2 * len(parts)}I", b"".join(parts))
    return [seconds * NS + rest for seconds, rest in zip(halves[::2], halves[1::2], strict=True)]


def _may_have_timestamps(data: bytes, looks: int) -> bool:
    """Whether the head of a timestamp (extension type -1), of which msgspec makes a datetime, may stand somewhere.

    Its code 0xFF is rare: no text has that byte.
    """
    find = data.find
    at = find(b"\xff")
    while at > 0:
        if data[at - 1] in b"\xd6\xd7\x0c":
            return True
        looks -= 1
        if looks < 0:
            return True
        at = find(b"\xff", at + 1)
    return False


def _is_plain(records: list[Record]) -> bool:
    """Whether the records hold nothing but what JSON has; asked where they may hold datetimes."""
    try:
        orjson.dumps(records, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        return False
    return True
