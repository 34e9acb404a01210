"""Parser `json` (docs.fluentd.org, Parser Plugins, json): an object is a record, an array of objects several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import enum, integer
from headrace.plugins.jsoncodec import decode, decode_many
from headrace.plugins.parsing import ParserError, RecordParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.pipeline.event import Event, Record
    from headrace.plugins.parsing import Parsed


def records_of(values: list[Any], parser: RecordParser) -> Parsed:
    """The events of decoded values; what is no map does not match."""
    return [parser.event(value) if type(value) is dict else (None, None) for value in values]


class JsonParser(RecordParser):
    """Reads JSON."""

    json_parser = enum(
        ("oj", "yajl", "json"), default="oj", doc="Fluentd's choice of a library; records are the same with each"
    )
    stream_buffer_size = integer(
        default=8192, deprecated="there is no stream parser with a buffer here", doc="No effect"
    )
    time_key = RecordParser.time_key.with_default("time")
    time_type = RecordParser.time_type.with_default("float")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """With time_format and without time_type, times are texts."""
        given = {child.name for child in directive.block or ()}
        if "time_format" in given and "time_type" not in given:
            self.time_type = "string"
        super().configure(directive, problems)

    def read(self, text: bytes) -> Parsed:
        """Parse one JSON value."""
        try:
            value = decode(text)
        except ValueError:
            return [(None, None)]
        if type(value) is dict:
            return [self.event(value)]
        return records_of(value, self) if type(value) is list else [(None, None)]

    def parse_lines(
        self, lines: Sequence[bytes], failed: Callable[[bytes, Exception | None], Event | None]
    ) -> list[Event]:
        """Parse many texts; when all are plain objects, which is the rule, without a call of `read` for each."""
        values = decode_many(lines) if self.timeout is None else None
        if values is None:
            return super().parse_lines(lines, failed)
        key, event, moment = self.time_key, self.event, self._moment
        events: list[Event] = []
        add = events.append
        estimate, plain = self.estimate_current_event, not self._converts
        now = self._now()
        known: dict[str, int] = {}  # lines that are read together mostly have few times
        for line, value in zip(lines, values, strict=True):
            simple = plain and type(value) is dict
            if simple and estimate and key not in value:
                add((now, value))
                continue
            try:
                if simple and key in value:
                    add((moment(value, known), value))
                    continue
                found = [event(value)] if type(value) is dict else self.read(line)
            except Exception as error:  # noqa: BLE001 - what one line does wrong concerns no other
                instead = failed(line, error)
                if instead is not None:
                    add(instead)
                continue
            for time, record in found:
                if time is not None and record is not None:
                    add((time, record))
                elif (instead := failed(line, None)) is not None:
                    add(instead)
        return events

    def _moment(self, record: Record, known: dict[str, int]) -> int:
        """The time of a record that has one, taken out of it. known: texts read before. Raises ParserError."""
        key = self.time_key
        assert key is not None
        text = record[key] if self.keep_time_key else record.pop(key)
        found = known.get(text) if type(text) is str else None
        if found is None:
            try:
                found = self._time(text)
            except ValueError as error:
                raise ParserError(f"invalid time: {error}") from error
            if type(text) is str:
                known[text] = found
        return found
