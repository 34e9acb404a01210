"""What a message of the Forward Protocol brings: a tag, a batch of events, the id of its chunk.

A packed message stays packed. Its framing and count are checked always; its events are looked at on arrival
with `skip_invalid_event true`, or when the first of them is unusual, else by who needs them first.

The id of a chunk names the chunk wherever it is sent again from: buffers that have stored a batch with the
same id and tag leave its repetition out (`Batch.id`). Short ids are no names: counters begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.pipeline.event import Batch
from headrace.plugins.chunk_names import batch_id
from headrace.plugins.forward import entries
from headrace.plugins.forward.entries import Refused
from headrace.plugins.forward.messages import PACKED, SINGLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.event import Record
    from headrace.plugins.forward.messages import Message


_SIGNALS: Final = {1: "metrics", 2: "traces"}
"""The option "fluent_signal"; 0 are logs."""


@dataclass(slots=True)
class Terms:
    """The parameters that what a message brings depends on. now: the wall clock in nanoseconds.

    only_counts: whether nobody looks at the events of a tag: then the sender's count of packed ones is believed.
    reads: whether the first on the way of a tag looks at all of them: then they are decoded and not counted before.
    """

    now: Callable[[], int]
    tag: str | None = None
    tag_prefix: str | None = None
    expanded_limit: int = entries.EXPANDED_LIMIT
    ratio_limit: int = entries.RATIO_LIMIT
    looks: bool = False
    deduplicates: bool = True
    only_counts: Callable[[str], bool] | None = None
    reads: Callable[[str], bool] | None = None


class Brought:
    """What a message brought. left_out: entries that are no events."""

    __slots__ = ("batch", "left_out", "tag")

    def __init__(self, tag: str, batch: Batch, left_out: int) -> None:
        self.tag = tag
        self.batch = batch
        self.left_out = left_out


def bring(message: Message, terms: Terms, added: Record | None) -> Brought:
    """Check a message and make a batch of it. added: fields for each record. Raises Refused; ValueError too."""
    if message.problem:
        raise Refused(message.problem)
    signal = message.option("fluent_signal")
    if type(signal) is int and signal in _SIGNALS:
        raise Refused(f"Fluent Bit sends {_SIGNALS[signal]}, which are no events")
    tag = _tag(message, terms)
    packed = message.entries
    if compression := message.compression:
        packed = entries.expand(compression, packed, terms.expanded_limit, terms.ratio_limit)
    left_out = 0
    batch: Batch | None = None
    if message.kind == PACKED and message.count and terms.only_counts is not None and terms.only_counts(tag):
        count = message.count
    elif message.kind == PACKED and not terms.looks and entries.is_usual(packed):
        if len(packed) <= entries.LARGE and terms.reads is not None and terms.reads(tag):
            batch = Batch.read(packed, message.count)
        count = entries.count(packed, message.count) if batch is None else batch.count
    elif message.kind == SINGLE and len(packed) <= entries.LARGE and entries.is_event(packed):
        count = 1
    else:
        packed, count, left_out = entries.look(packed, terms.now())
        if left_out and not count and not terms.looks:
            raise Refused("no entry of the message is an event")
    if batch is None:
        batch = Batch.from_packed(packed, count)
    if added and count:
        batch = Batch.of([(time, record | added) for time, record in batch.events()])
    if terms.deduplicates and (chunk := message.option("chunk")) is not None:
        name = chunk.encode("utf-8", "surrogateescape") if isinstance(chunk, str) else chunk
        batch.id = batch_id(message.tag, name) if isinstance(name, bytes) else None
    return Brought(tag, batch, left_out)


def _tag(message: Message, terms: Terms) -> str:
    tag = terms.tag
    if tag is None:
        try:
            tag = message.tag.decode()
        except UnicodeDecodeError as error:
            raise Refused(f"the tag {message.tag[:100]!r} is not UTF-8") from error
    return tag if terms.tag_prefix is None else f"{terms.tag_prefix}.{tag}"
