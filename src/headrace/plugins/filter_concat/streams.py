"""Texts that are not whole yet: one list of events for each stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from headrace.pipeline.event import Event, Record


@dataclass(slots=True)
class Stream:
    """One stream. touched: when its last event came, by the clock, in seconds. size: bytes, by `size_of`."""

    tag: str
    name: str
    touched: float
    events: list[Event] = field(default_factory=list)
    size: int = 0

    def flush(self, key: str, separator: str, ordinal: str | None = None) -> Event:
        """The events as one: the first, with all texts in its field. ordinal: a field to sort by."""
        events = self.events
        self.events = []
        self.size = 0
        time, first = events[0]
        if ordinal is not None:
            events = sorted(events, key=lambda event: number(event[1].get(ordinal)))
        return time, {**first, key: separator.join([to_s(record.get(key)) for _, record in events])}


def number(value: object) -> int:
    """A text as a number, 0 for anything else."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]  # whatever a record holds
    except (ValueError, TypeError):
        return 0


def size_of(record: Record) -> int:
    """Bytes of the names and the values."""
    return sum(len(to_s(part).encode("utf-8", "surrogateescape")) for pair in record.items() for part in pair)
