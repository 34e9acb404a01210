"""Base of the parsers that read a line by a pattern: one function per line, bound once, and many lines at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.plugins.guard import OverdueError, guard
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Event, Record
    from headrace.plugins.parsing import Parsed

    One = Callable[[bytes], tuple[int | None, Record] | None]
    """A text -> its event, None when it does not match. Raises ParserError."""


class PatternParser(RecordParser):
    """A subclass gives `one`."""

    by_pattern = True

    def validate(self, problems: Problems) -> None:
        """Make the function, once the parameters are known to be right."""
        before = problems.broken
        super().validate(problems)
        if problems.broken == before:
            self._one = self.one()

    def one(self) -> One:
        """Everything that a line needs, bound."""
        raise NotImplementedError

    def reader(self) -> Callable[[bytes], Parsed]:
        """One text for each call."""
        one: One | None = None

        def read(text: bytes) -> Parsed:
            nonlocal one
            one = one or self._one
            event = one(text)
            return [(None, None)] if event is None else [event]

        return read

    def read(self, text: bytes) -> Parsed:
        """Parse one text."""
        return self.reader()(text)

    def parse_lines(
        self, lines: Sequence[bytes], failed: Callable[[bytes, Exception | None], Event | None]
    ) -> list[Event]:
        """Parse many; each has the common bound of patterns, or `timeout`."""
        if self.timeout is not None:
            return super().parse_lines(lines, failed)
        events: list[Event] = []
        add, one, watch = events.append, self._one, guard
        if not watch.armed:
            watch.arm()
        try:
            for line in lines:
                watch.turn += 1
                watch.busy = True
                try:
                    event = one(line)
                except OverdueError:
                    watch.busy = False
                    self._late(line)
                    event = None
                except Exception as error:  # noqa: BLE001 - what one text does wrong concerns no other
                    watch.busy = False
                    if (instead := failed(line, error)) is not None:
                        add(instead)
                    continue
                if event is not None and event[0] is not None:
                    add((event[0], event[1]))
                    continue
                watch.busy = False
                if (instead := failed(line, None)) is not None:
                    add(instead)
        finally:
            watch.busy = False
        return events
