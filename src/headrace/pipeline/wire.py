"""Values as msgpack and back, with nothing lost: the packed form of events. `event.py` has its rules."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgpack

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

NS: Final = 1_000_000_000
BIGINT: Final = 0x48
"""Extension type of an integer that msgpack cannot hold."""

_EVENT_TIME: Final = 0
_ENTRY_HEAD: Final = b"\x92\xd7\x00"
"""A pair, whose first member is an 8-byte extension of type 0."""
_pack_head: Final = struct.Struct(">3sII").pack
_unpack_time: Final = struct.Struct(">II").unpack
_pack_time: Final = struct.Struct(">II").pack


class EventTime(int):
    """Nanoseconds since the epoch that were an EventTime on the wire; packed as one again."""

    __slots__ = ()


_PLAIN: Final[tuple[Any, ...]] = (dict, list, str, bytes, float)


def _to_wire(value: Any) -> Any:
    """What msgpack's own types cannot express: called by the packer for everything it refuses."""
    if isinstance(value, EventTime):
        seconds, nanoseconds = divmod(value, NS)
        if 0 <= seconds < 1 << 32:
            return msgpack.ExtType(_EVENT_TIME, _pack_time(seconds, nanoseconds))
        return msgpack.Timestamp.from_unix_nano(int(value))
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 64:
            return int(value)
        magnitude = abs(value)
        sign = b"\x01" if value < 0 else b"\x00"
        return msgpack.ExtType(BIGINT, sign + magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big"))
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    raise TypeError(f"a record cannot hold {type(value).__name__}")


def _from_wire(code: int, data: bytes) -> Any:
    if code == _EVENT_TIME and len(data) == 8:
        seconds, nanoseconds = _unpack_time(data)
        if nanoseconds < NS:
            return EventTime(seconds * NS + nanoseconds)
    elif code == BIGINT and len(data) > 8 and data[0] < 2 and data[1]:
        magnitude = int.from_bytes(data[1:], "big")
        value = -magnitude if data[0] else magnitude
        if not -(1 << 63) <= value < 1 << 64:
            return value
    return msgpack.ExtType(code, data)


# strict_types sends subclasses (EventTime above all) through _to_wire instead of packing them as their base.
_pack: Final = msgpack.Packer(
    use_bin_type=True, unicode_errors="surrogateescape", strict_types=True, default=_to_wire
).pack


def pack_value(value: object) -> bytes:
    """One value as msgpack. Raises ValueError, TypeError or OverflowError for what cannot be packed."""
    packed: bytes = _pack(value)
    return packed


def pack_event(time: int, record: Record) -> bytes:
    """One entry `[EventTime, record]`; a time outside EventTime's range (1970 to 2106) is a Timestamp."""
    seconds, nanoseconds = divmod(time, NS)
    if 0 <= seconds < 1 << 32:
        entry: bytes = _pack_head(_ENTRY_HEAD, seconds, nanoseconds) + _pack(record)
        return entry
    stamp = msgpack.Timestamp.from_unix_nano(time)
    return b"\x92" + bytes(msgpack.packb(stamp)) + bytes(_pack(record))


def unpacker(data: bytes, size: int = 0, *, map_limit: int = -1, array_limit: int = -1) -> msgpack.Unpacker:
    """Return an unpacker over untrusted data; it never makes a container larger than the data.

    size: how many bytes there may be, where `data` is only their beginning. map_limit, array_limit: most entries of
    a map, most elements of an array; -1 for as many as there are bytes.
    """
    source = msgpack.Unpacker(
        raw=False,
        unicode_errors="surrogateescape",
        strict_map_key=False,
        ext_hook=_from_wire,
        max_buffer_size=max(len(data), size, 1),
        max_map_len=map_limit,
        max_array_len=array_limit,
    )
    source.feed(data)
    return source


MALFORMED: Final = (msgpack.UnpackException, TypeError, RecursionError)
"""What the unpacker raises besides ValueError with a text."""
UNREADABLE: Final = (ValueError, *MALFORMED)
"""What reading msgpack may raise."""


def unpack_value(data: bytes) -> Any:
    """One value; the inverse of `pack_value`. Raises ValueError when it is malformed or not alone."""
    source = unpacker(data)
    try:
        value = source.unpack()
    except MALFORMED as error:
        raise ValueError(f"malformed msgpack: {type(error).__name__}") from error
    if source.tell() != len(data):
        raise ValueError("bytes after the msgpack value")
    return value


def event_time(value: object) -> int:
    """Nanoseconds of a time as it came from the wire: EventTime, Timestamp, or seconds as a number.

    Raises ValueError for anything else, not a number and infinity included.
    """
    if isinstance(value, EventTime):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * NS
    if isinstance(value, float):
        if value - value != 0.0:
            raise ValueError("an event time that is not finite")
        seconds = int(value // 1)
        return seconds * NS + round((value - seconds) * NS)
    if isinstance(value, msgpack.Timestamp):
        return int(value.to_unix_nano())
    if isinstance(value, msgpack.ExtType) and value.code == _EVENT_TIME and len(value.data) == 8:
        seconds, nanoseconds = _unpack_time(value.data)
        return int(seconds) * NS + int(nanoseconds)
    if type(value) is list and value and type(value[0]) is not list:  # Fluent Bit's form: [time, metadata]
        return event_time(value[0])
    raise ValueError(f"an event time cannot be {type(value).__name__}")
