"""One stream of messages: the lines of a stack trace are kept until it ends, and become one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.plugins.out_detect_exceptions.rules import START

if TYPE_CHECKING:
    from headrace.pipeline.event import Event, Record
    from headrace.plugins.out_detect_exceptions.output import DetectExceptionsOutput
    from headrace.plugins.out_detect_exceptions.rules import Table

DEFAULT_FIELDS: Final = ("message", "log")
"""Where the text is, when nobody says."""


class Stream:
    """The state of one stream. since: when what is kept began, by the clock, in seconds. tag: where it goes."""

    __slots__ = ("_field", "_lines", "_owner", "_size", "_state", "_table", "_time", "first", "since", "tag")

    def __init__(self, owner: DetectExceptionsOutput, table: Table, tag: str) -> None:
        self._owner = owner
        self._table = table
        self._state = START
        self._field = owner.message
        self._lines: list[str] = []
        self._size = 0
        self._time = 0
        self.first: Record | None = None
        self.since = 0.0
        self.tag = tag

    def push(self, event: Event, out: list[Event], now: float) -> None:
        """Take an event; what is whole is appended to `out`."""
        owner = self._owner
        text = self._text(event[1])
        if text is None:
            self._state = START
            self.flush(out)
            out.append(event)
            return
        if owner.max_bytes > 0 and self._size + len(text) > owner.max_bytes:
            self.end(out)
        before = self._step(text)
        if not before:  # it may begin another trace
            self._step(text)
        goes_on = self._state != START
        if not before:
            self.flush(out)
        if not goes_on and not self._lines:
            out.append(event)
        else:
            self._add(event, text, now)
            if not goes_on:
                self.flush(out)
        if owner.max_lines > 0 and len(self._lines) == owner.max_lines:
            self.end(out)

    def _text(self, record: Record) -> str | None:
        if not self._field:
            self._field = next((name for name in DEFAULT_FIELDS if name in record), "")
        found = record.get(self._field)
        return found if isinstance(found, str) else None

    def _step(self, line: str) -> bool:
        """Whether a rule of the state takes the line; else the state is START."""
        for pattern, state in self._table.get(self._state, ()):
            if pattern.search(line) is not None:
                self._state = state
                return True
        self._state = START
        return False

    def _add(self, event: Event, text: str, now: float) -> None:
        if not self._lines:
            self._time, self.first = event
            self.since = now
        elif self._owner.force_line_breaks and "\n" not in text:
            text = "\n" + text
        self._lines.append(text)
        self._size += len(text)

    def flush(self, out: list[Event]) -> None:
        """Let go what is kept."""
        lines, first = self._lines, self.first
        if first is not None:
            out.append((self._time, first if len(lines) == 1 else {**first, self._field: "".join(lines)}))
        self._lines, self.first, self._size = [], None, 0

    def end(self, out: list[Event]) -> None:
        """Let go what is kept, and forget that a trace was under way."""
        self.flush(out)
        self._state = START
