"""Events: what a record is, and how batches of them travel.

An event is (time, record): time is an integer of nanoseconds since the epoch, the record a dict with
string keys as a rule. Events travel as a `Batch`, unpacked (a list) or packed (msgpack entries
`[EventTime, record]` one after the other, the stream of Fluentd's Forward Protocol v1); each form is
made from the other when somebody first asks for it, so a forwarded batch that nothing looks into is
never decoded.

Packing loses nothing:
- bytes that are not UTF-8 inside a msgpack string come back by surrogateescape;
- keys may be integers; unknown extension types stay `msgpack.ExtType`;
- an EventTime inside a record stays an `EventTime`, an int subclass, and is packed as one (as a Timestamp when
  it is outside of EventTime's range, 1970 to 2106);
- an integer beyond 64 bits is packed as extension type BIGINT (sign byte, then the magnitude, big
  endian, no leading zero); any other payload of that type stays an ExtType.
Unpacking refuses what is truncated, nested deeper than 1,024 or announces more elements than it has
bytes, by ValueError.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.columns import read_columns
from headrace.pipeline.throttle import Throttle
from headrace.pipeline.wire import (
    BIGINT,
    MALFORMED,
    NS,
    UNREADABLE,
    EventTime,
    event_time,
    pack_event,
    pack_value,
    unpack_value,
    unpacker,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BIGINT",
    "NS",
    "UNREADABLE",
    "Batch",
    "Event",
    "EventTime",
    "Record",
    "count_packed",
    "decoded",
    "derived_id",
    "entry_ends",
    "event_time",
    "pack_event",
    "pack_value",
    "salvage_events",
    "unpack_events",
    "unpack_value",
    "unpacker",
]

Record = dict[Any, Any]
Event = tuple[int, Record]

_log: Final = logging.getLogger("headrace.pipeline.event")
_refused: Final = Throttle()


def unpack_events(data: bytes, count: int = 0) -> list[Event]:
    """Decode the events of a packed stream. Raises ValueError for anything but whole entries `[time, map]`.

    count: how many there should be, which is faster when it is right.
    """
    if 0 < count < 1 << 32:
        if (columns := read_columns(data, count)) is not None:
            return list(zip(*columns, strict=True))
        if (found := _unpack_counted(data, count)) is not None:
            return found
    source = unpacker(data)
    events: list[Event] = []
    add = events.append
    end = 0
    try:
        for time, record in source:
            # After the loop tell() would count the bytes of an entry that is cut short.
            end = source.tell()
            if type(record) is not dict:
                raise ValueError("a record must be a map")
            add((int(time) if type(time) is EventTime else event_time(time), record))
    except MALFORMED as error:
        raise ValueError(f"malformed msgpack in a stream of events: {type(error).__name__}") from error
    if end != len(data):
        raise ValueError("the stream of events is cut short")
    return events


def _unpack_counted(data: bytes, count: int) -> list[Event] | None:
    """The events of a stream as of one array; None when that cannot be done."""
    whole = b"\xdd" + count.to_bytes(4, "big") + data
    source = unpacker(whole)
    try:
        events = [
            (time * NS if type(time) is int else event_time(time), record)
            for time, record in source.unpack()
            if type(record) is dict
        ]
    except UNREADABLE:
        return None
    return events if len(events) == count and source.tell() == len(whole) else None


def entry_ends(data: bytes) -> list[int]:
    """Where each value of a stream ends. Raises ValueError unless the stream is whole; looks into no value."""
    source = unpacker(data)
    skip, tell = source.skip, source.tell
    size = len(data)
    ends: list[int] = []
    end = 0
    try:
        while end < size:
            skip()
            end = tell()
            ends.append(end)
    except UNREADABLE as error:
        raise ValueError("the stream of events is malformed or cut short") from error
    return ends


def salvage_events(data: bytes) -> tuple[list[Event], int]:
    """Decode what can be decoded of a stream in which some entries are no events.

    Returns the events, and how many entries were left out. Raises ValueError where entries cannot be told apart.
    """
    events: list[Event] = []
    refused = start = 0
    for end in entry_ends(data):
        try:
            events += unpack_events(data[start:end])
        except ValueError:
            refused += 1
        start = end
    return events, refused


def count_packed(data: bytes) -> int:
    """How many entries a packed stream holds, without decoding them.

    Raises ValueError unless every entry is whole and a pair whose second member is a map.
    """
    source = unpacker(data)
    size = len(data)
    count = 0
    try:
        while source.tell() < size:
            if source.read_array_header() != 2:
                raise ValueError("an entry must be a pair")
            source.skip()
            at = source.tell()
            first = data[at] if at < size else 0
            if not (0x80 <= first <= 0x8F or first in {0xDE, 0xDF}):
                raise ValueError("a record must be a map")
            source.skip()
            count += 1
    except MALFORMED as error:
        raise ValueError("the stream of events is malformed or cut short") from error
    return count


def decoded(data: bytes, count: int = 0) -> list[Event]:
    """Return the events of a packed stream. Entries that are none are left out, with a line in the log.

    A stream that came by the wire is checked for its framing only while nobody needs its records, so one bad
    entry must not cost its neighbours. Raises ValueError where entries cannot be told apart.
    """
    try:
        return unpack_events(data, count)
    except ValueError:
        events, refused = salvage_events(data)
    _refused.log(_log, logging.WARNING, "%d entries of a packed stream are no events and are left out", refused)
    return events


def derived_id(batch_id: bytes, branch: bytes) -> bytes:
    """The id of what becomes of a batch on one branch of its way, the same whenever the batch is sent again.

    Where a batch is emitted on more than once (to several stores, under several tags) each of them needs an id of
    its own: an output at which two branches meet would take the second for a repetition of the first.
    """
    made = blake2b(batch_id, digest_size=16)
    made.update(branch)
    return made.digest()


class Batch:
    """Some events of one tag, on their way. Neither the list nor its records may be changed by a reader.

    A filter that changes records makes new ones: another branch of the way may hold the same batch.
    id: the sender's name of this batch (Forward Protocol, option "chunk"), set by a source that wants each
    output to keep it once however often the sender repeats it; None as a rule. ack: what the answer to the sender
    waits for, see ack.py; 0 as a rule.
    """

    __slots__ = ("_columns", "_events", "_packed", "ack", "count", "id")

    def __init__(self, events: Sequence[Event] | None, packed: bytes | None, count: int) -> None:
        self._events = events
        self._packed = packed
        self._columns: tuple[Sequence[int], Sequence[Record]] | None = None
        self.count = count
        self.id: bytes | None = None
        self.ack = 0

    @classmethod
    def of(cls, events: Sequence[Event]) -> Batch:
        """Return a batch of events (nanoseconds, record)."""
        return cls(events, None, len(events))

    @classmethod
    def one(cls, time: int, record: Record) -> Batch:
        """Return a batch of one event."""
        return cls(((time, record),), None, 1)

    @classmethod
    def from_packed(cls, data: bytes, count: int | None = None) -> Batch:
        """Return a batch of a packed stream; without `count` the entries are counted and checked (ValueError).

        A count that came from outside is not to be trusted: leave it away.
        """
        return cls(None, data, count_packed(data) if count is None else count)

    @classmethod
    def read(cls, data: bytes, count: int) -> Batch | None:
        """Return a batch of a packed stream that is decoded at once; None when it is unusual or the count is wrong."""
        columns = read_columns(data, count)
        if columns is None:
            return None
        made = cls(None, data, count)
        made._columns = columns
        return made

    def with_ack(self, ack: int) -> Batch:
        """Return a batch of the same events whose answer waits for something else."""
        same = Batch(self._events, self._packed, self.count)
        same._columns = self._columns
        same.id = self.id
        same.ack = ack
        return same

    def onward(self, events: Sequence[Event], branch: str) -> Batch:
        """Return a batch of what became of this one, for an output that emits it on.

        branch: tells apart what one batch becomes, such as by the new tag: the parts have ids of their own, and the
        sender's answer waits for all of them.
        """
        made = Batch(events, None, len(events))
        made.ack = self.ack
        if self.id is not None:
            made.id = derived_id(self.id, branch.encode("utf-8", "surrogateescape"))
        return made

    @property
    def is_packed(self) -> bool:
        """Whether the packed form exists already."""
        return self._packed is not None

    @property
    def is_unpacked(self) -> bool:
        """Whether the list exists already."""
        return self._events is not None

    def events(self) -> Sequence[Event]:
        """Return the events, decoded once; see `decoded`. Raises ValueError for a malformed stream."""
        events = self._events
        if events is None:
            if self._columns is not None:
                events = self._events = list(zip(*self._columns, strict=True))
                return events
            events = self._events = decoded(self._packed or b"", self.count)
            if len(events) != self.count:  # the packed form still has what is no event
                self.count = len(events)
                self._packed = None
        return events

    def columns(self) -> tuple[Sequence[int], Sequence[Record]]:
        """Return the times and the records apart, which is cheaper where nobody needs the pairs; see `events`."""
        columns = self._columns
        if columns is None:
            if self._events is None:
                columns = read_columns(self._packed or b"", self.count)
            if columns is None:
                events = self.events()
                columns = [time for time, _ in events], [record for _, record in events]
            self._columns = columns
        return columns

    def packed(self) -> bytes:
        """Return the packed stream, encoded once. Raises ValueError, TypeError, OverflowError for a bad record."""
        packed = self._packed
        if packed is None:
            events = self._events or ()
            if len(events) == 1:
                packed = pack_event(*events[0])
            else:
                packed = b"".join([pack_event(time, record) for time, record in events])
            self._packed = packed
        return packed

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        form = "packed" if self._events is None else "unpacked"
        return f"<Batch of {self.count}, {form}>"
