"""A value that is whole -> a `Message`: Forward messages, single events, and both in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import event_time, pack_event, pack_value, unpacker
from headrace.plugins.forward.messages import FORWARD, SINGLE, VALUE, Message

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

TAG_LIMIT: Final = 8 << 10
OPTIONS_LIMIT: Final = 16 << 10
MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""First bytes of a map."""


def set_options(message: Message, options: Any) -> None:
    """Give a message its options, nil for none."""
    if type(options) is dict:
        message.options = options
    elif options is not None:
        message.problem = "the options of a message must be a map"


def broken(problem: str) -> Message:
    """A message that cannot be taken, and why."""
    return Message(VALUE, problem=problem)


def taken_apart(frame: bytes) -> Message:
    """A Forward message or a single event, whole in `frame`. Raises ValueError and what msgpack raises."""
    first = frame[0]
    if first == 0x93 and (single := _single(frame)) is not None:
        return single
    if not (0x92 <= first <= 0x94):
        return broken("a message must be an array of 2 to 4 members")
    source = unpacker(frame)
    size = source.read_array_header()
    tag = source.unpack()
    if isinstance(tag, str):
        tag = tag.encode("utf-8", "surrogateescape")
    if not isinstance(tag, bytes):
        return broken("the tag of a message must be a string")
    if len(tag) > TAG_LIMIT:
        return broken(f"a tag of {len(tag)} bytes")
    at = source.tell()
    second = frame[at]
    width = {0xDC: 2, 0xDD: 4}.get(second)
    if 0x90 <= second <= 0x9F or width is not None:
        start = at + 1 + (width or 0)
        source.skip()
        end = source.tell()
        message = Message(FORWARD, tag, frame[start:end])
        message.count = int.from_bytes(frame[at + 1 : start], "big") if width else second & 0x0F
        left = size - 2
    elif size < 3:
        return broken("a message without a record")
    else:
        source.skip()
        source.skip()
        end = source.tell()
        message = Message(SINGLE, tag, b"\x92" + frame[at:end])
        message.count = 1
        left = size - 3
    if left:
        if len(frame) - end > OPTIONS_LIMIT:
            return broken(f"options of more than {OPTIONS_LIMIT} bytes")
        set_options(message, source.unpack())
    return message


def _single(frame: bytes) -> Message | None:
    """A single event without options, as loggers send them; None for whatever looks otherwise."""
    head = frame[1]
    if 0xA0 <= head <= 0xBF:
        start = 2
        at = start + (head & 0x1F)
    elif head == 0xD9:
        start = 3
        at = start + frame[2]
    else:
        return None
    time = frame[at]
    if time == 0xD7:
        record = at + 10
    elif time == 0xCE:
        record = at + 5
    else:
        return None
    if frame[record] not in MAPS:
        return None
    message = Message(SINGLE, frame[start:at], b"\x92" + frame[at:])
    message.count = 1
    return message


def of_json(value: Any) -> Message:
    """A message in JSON. Raises ValueError for what cannot be an event."""
    if type(value) is not list or len(value) < 2 or type(value[0]) is not str:
        return broken("a message must be an array that begins with a tag")
    tag = value[0].encode("utf-8", "surrogateescape")
    if len(tag) > TAG_LIMIT:
        return broken(f"a tag of {len(tag)} bytes")
    if type(value[1]) is list:
        made = [_entry(entry) for entry in value[1]]
        message = Message(FORWARD, tag, b"".join(made))
        message.count = len(made)
        options = value[2] if len(value) > 2 else None
    elif len(value) < 3:
        return broken("a message without a record")
    else:
        message = Message(SINGLE, tag, _entry(value[1:3]))
        message.count = 1
        options = value[3] if len(value) > 3 else None
    set_options(message, options)
    return message


def _entry(entry: Any) -> bytes:
    """An entry as msgpack; one that is no event is kept as it is, for whoever looks at entries."""
    if type(entry) is list and len(entry) == 2 and type(entry[1]) is dict and type(entry[0]) in {int, float}:
        time: int | float = entry[0]
        record: Record = entry[1]
        return pack_event(event_time(time), record) if type(time) is float else pack_value([time, record])
    return pack_value(entry)
