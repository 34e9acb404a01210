"""The entries of a message: expanded, bounded and counted; decoded only where a look is asked for.

What is checked of every packed stream is its framing: that it is so many whole msgpack values, nested no
deeper than 1,024. The sender's count is confirmed by one call in C, and counted anew where it is wrong. An
entry that is no event is found by who decodes it first, and costs its neighbours nothing
(`headrace.pipeline.event.decoded`); `look` finds it at once.

A record is bounded by what it would become: a value of one byte takes up to 64 in memory, so a record of more
than 512 KiB may hold 131,072 values at the most; and entries must be long enough to be events. A compressed
stream is expanded piece by piece, and given up as soon as it is too large, or past 16 MiB and more than `ratio`
times what came.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import zstandard

from headrace.errors import Error, Side
from headrace.pipeline.counting import count_values
from headrace.pipeline.event import UNREADABLE, event_time, pack_event, unpack_value, unpacker
from headrace.plugins.forward.whole import MAPS
from headrace.plugins.zstd_stream import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPANDED_LIMIT: Final = 256 << 20
RATIO_LIMIT: Final = 200
RATIO_FREE: Final = 16 << 20
"""Bytes that a stream may expand to whatever its ratio."""
LARGE: Final = 512 << 10
"""Bytes of a record up to which its values need no counting."""
VALUES_LIMIT: Final = 1 << 17
"""Values in a larger record, and in all the larger records of a message eight times as many."""
ODD_LIMIT: Final = 200_000
"""Entries of a message that are decoded to be mended or left out."""
_SHORTEST: Final = 7
"""Bytes of the shortest usual entry: a time in seconds and an empty record."""
_SOME: Final = 1 << 13
"""Bytes of entries that may be shorter on average."""
_PIECE: Final = 1 << 16

_EVENT: Final = b"\x92\xd7\x00"
_SECONDS: Final = b"\x92\xce"
_WITH_METADATA: Final = b"\x92\x92\xd7\x00"
_ZERO: Final = bytes(4)
_USUAL: Final = frozenset({b"\x92\xd7", b"\x92\xce", b"\x92\xc7", b"\x92\xcf", b"\x92\xd3"})
"""How an entry begins whose time is an EventTime or an integer of today."""


class Refused(Error):
    """A message that is not taken; the connection stays usable."""

    kind = "bad_message"
    side = Side.CLIENT


def expand(compression: str, data: bytes, limit: int = EXPANDED_LIMIT, ratio: int = RATIO_LIMIT) -> bytes:
    """Undo "gzip" (all its members) or "zstd" (all its frames). limit: bytes of the result; ratio: 0 for any.

    Raises Refused for what is too large, damaged, or compressed in another way.
    """
    expander = _EXPANDERS.get(compression)
    if expander is None:
        raise Refused(f'the option compressed "{compression}" is not supported')
    most = min(limit, max(RATIO_FREE, len(data) * ratio)) if ratio else limit
    parts: list[bytes] = []
    size = 0
    try:
        for piece in expander(data):
            size += len(piece)
            if size > most:
                what = f"more than {limit} bytes" if most == limit else f"more than {ratio} times its size"
                raise Refused(f"the entries expand to {what}")
            if size <= RATIO_FREE:
                parts.append(piece)
            else:  # only measured, until all of it is known to be welcome
                parts.clear()
        return b"".join(parts if size <= RATIO_FREE else expander(data))
    except EOFError:
        raise Refused(f"the {compression} entries are cut short") from None
    except (zlib.error, zstandard.ZstdError) as error:
        raise Refused(f"the {compression} entries are damaged: {error}") from error


def _inflate(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        member = zlib.decompressobj(31)
        while not member.eof:
            if at >= len(view):
                raise Refused("the gzip entries are cut short")
            # Short slices: what the limit leaves over is copied each time.
            given = view[at : at + _PIECE]
            at += len(given)
            yield member.decompress(given, _PIECE * 4)
            while member.unconsumed_tail and not member.eof:
                yield member.decompress(member.unconsumed_tail, _PIECE * 4)
        at -= len(member.unused_data)


_EXPANDERS: Final = {"gzip": _inflate, "zstd": pieces}


def count(entries: bytes, claimed: int) -> int:
    """How many entries there are, of which none is larger than it may be. Raises Refused.

    claimed: what the sender says, 0 when it says nothing.
    """
    if len(entries) > LARGE:
        return sum(1 for _ in _cut(entries))
    try:
        return count_values(entries, claimed)
    except ValueError as error:
        raise Refused(str(error)) from error


def is_usual(entries: bytes) -> bool:
    """Whether the first entry is one that every reader of packed streams understands."""
    return entries[:2] in _USUAL


def look(entries: bytes, now: int) -> tuple[bytes, int, int]:
    """Look at each entry. Returns the stream that is good, its count, and how many entries were left out.

    An entry without a time, or with the time 0, happened `now` (nanoseconds); one without a record is left
    out; a time with metadata (Fluent Bit's form) becomes the time. Raises Refused.
    """
    parts: list[bytes] = []
    number = refused = odd = 0
    start = kept = 0  # kept: the beginning of the entries that go on as they are
    for end in _cut(entries):
        if is_event(entries, start):
            number += 1
        elif (made := _mended(raw := entries[start:end], now)) is raw:
            number += 1
            odd += 1
        else:
            odd += 1
            parts.append(entries[kept:start])
            kept = end
            if made is None:
                refused += 1
            else:
                number += 1
                parts.append(made)
        if odd > ODD_LIMIT:
            raise Refused(f"more than {ODD_LIMIT} entries of the message are unusual")
        start = end
    if not parts:
        return entries, number, refused
    parts.append(entries[kept:])
    return b"".join(parts), number, refused


def is_event(entries: bytes, at: int = 0) -> bool:
    """Whether an entry is a pair of an EventTime or a 32-bit time, neither of them 0, and a map."""
    if entries[at : at + 3] == _EVENT:
        return entries[at + 11] in MAPS and entries[at + 3 : at + 7] != _ZERO
    if entries[at : at + 2] == _SECONDS:
        return entries[at + 6] in MAPS and entries[at + 2 : at + 6] != _ZERO
    return False


def _cut(entries: bytes) -> Iterator[int]:
    """Where each entry ends. Raises Refused for a stream that is not whole, and for entries that are no events."""
    source = unpacker(entries)
    skip, tell = source.skip, source.tell
    size = len(entries)
    left = 8 * VALUES_LIMIT
    number = start = 0
    while start < size:
        try:
            skip()
        except UNREADABLE as error:
            raise Refused("the stream of events is malformed or cut short") from error
        end = tell()
        number += 1
        if end - start > LARGE:
            left -= _values(entries[start:end], min(left, VALUES_LIMIT))
        elif number * _SHORTEST > end + _SOME:
            raise Refused("the entries of the message are too short to be events")
        yield end
        start = end


def _mended(raw: bytes, now: int) -> bytes | None:
    """An entry of an unusual form as one that every reader understands; None when it is no event."""
    if raw[:4] == _WITH_METADATA and raw[12:13] == b"\x80" and raw[13] in MAPS and raw[4:8] != _ZERO:
        return raw[1:12] + raw[13:]
    try:
        value = unpack_value(raw)
    except ValueError:
        return None
    if type(value) is not list or len(value) < 2 or type(value[1]) is not dict:
        return None
    time, record = value[0], value[1]
    if type(time) is list:
        time = time[0] if time else None
    try:
        moment = now if time is None else event_time(time)
    except ValueError:
        return None
    if 0 <= moment < 1_000_000_000:
        moment = now
    elif len(value) == 2 and time is value[0] and time is not None:
        return raw
    return pack_event(moment, record)


def _values(data: bytes, limit: int) -> int:
    """How many values one value holds, itself included. Raises Refused past `limit`."""
    source = unpacker(data)
    tell, skip = source.tell, source.skip
    total = 0
    pending = 1
    while pending:
        pending -= 1
        total += 1
        first = data[tell()]
        if first in MAPS:
            pending += 2 * source.read_map_header()
        elif 0x90 <= first <= 0x9F or first in {0xDC, 0xDD}:
            pending += source.read_array_header()
        else:
            skip()
        if total + pending > limit:
            raise Refused(f"a record of {len(data)} bytes holds more than {limit} values")
    return total
