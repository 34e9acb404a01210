"""What all parsers share: the time of a record, types, nulls, the time limit (docs.fluentd.org, Config: Parse Section).

A parser overrides `read`. A text that does not match is (None, None); one whose time cannot be read raises
ParserError. Without a time the event is of now, or has none with `estimate_current_event false`: then the source
decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import array, boolean, enum, hash_, regexp, string, time
from headrace.conf.values import as_string
from headrace.pipeline.event import EventTime
from headrace.pipeline.plugin import Parser
from headrace.plugins.casts import casts
from headrace.plugins.guard import guard
from headrace.plugins.time_params import ZoneParams
from headrace.plugins.time_parse import any_form, parse_float, parse_unixtime, strptime

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record

    Parsed = list[tuple[int | None, Record | None]]
    TimeParser = Callable[[Any], int]
    """A value of a record -> nanoseconds. Raises ValueError."""

_TOLD_MAX: Final = 10
_NUMBER: Final = re.compile(r"\s*[+-]?(\d[\d_]*)?(\.\d+)?([eE][+-]?\d+)?\s*")


class ParserError(ValueError):
    """A text that matches, and whose time is none."""


class ParseTime(ZoneParams):
    """How a parser reads times."""

    time_type = enum(
        ("string", "float", "unixtime", "mixed"),
        default="string",
        doc="string: by time_format; float, unixtime: seconds; mixed: by time_format, then by time_format_fallbacks",
    )
    time_format_fallbacks = array(
        default=[], doc="With time_type mixed: further formats, or the words unixtime and float, tried in turn"
    )

    def validate(self, problems: Problems) -> None:
        """Check that the format and the type fit."""
        super().validate(problems)
        if self.time_type == "mixed":
            if self.time_format is None and not self.time_format_fallbacks:
                problems.error("time_type mixed needs time_format or time_format_fallbacks", self.place)
        elif self.time_format_fallbacks:
            place = self.place_of("time_format_fallbacks")
            problems.warn("time_format_fallbacks has no effect without time_type mixed", place)
        if self.time_format is not None and self.time_type in {"float", "unixtime"}:
            problems.warn(f"time_format has no effect with time_type {self.time_type}", self.place_of("time_format"))

    def time_parser(self, now: Callable[[], int]) -> TimeParser:
        """The function for these parameters. Raises ValueError for a format that cannot be read."""
        if self.time_type != "mixed":
            return make_time_parser(self.time_type, self.time_format, self.zone, now)
        formats = [self.time_format] if self.time_format is not None else []
        parsers: list[TimeParser] = []
        for item in (*formats, *self.time_format_fallbacks):
            if item in {"float", "unixtime"}:
                parsers.append(_strictly(make_time_parser(item, None, self.zone, now)))
            else:
                parsers.append(make_time_parser("string", item, self.zone, now))
        return _first_of(parsers)


def make_time_parser(type_: str, format_: str | None, zone: tzinfo | None, now: Callable[[], int]) -> TimeParser:
    """A function for one type and format. Raises ValueError for a format that cannot be read."""
    if type_ == "float":
        return parse_float
    if type_ == "unixtime":
        return parse_unixtime
    read = any_form(zone, now) if format_ is None else strptime(format_, zone, now)

    def parse(value: Any) -> int:
        if type(value) is str:
            return read(value)
        if isinstance(value, EventTime):
            return int(value)
        raise ValueError(f"a time must be a text, not {value!r}")

    return parse


def _strictly(parse: TimeParser) -> TimeParser:
    def strict(value: Any) -> int:
        if isinstance(value, str) and not (value.strip() and _NUMBER.fullmatch(value)):
            raise ValueError(f'"{value}" is no number')
        return parse(value)

    return strict


def _first_of(parsers: list[TimeParser]) -> TimeParser:
    def parse(value: Any) -> int:
        for one in parsers:
            try:
                return one(value)
            except ValueError:
                continue
        raise ValueError(f"{value!r} matches neither time_format nor a fallback")

    return parse


class RecordParser(ParseTime, Parser):
    """Base of the parsers."""

    types = hash_(default=None, value_type=as_string, doc="Types of fields: string, bool, integer, float, time, array")
    time_key = string(default=None, doc="Field that is the time of the event")
    null_value_pattern = regexp(default=None, doc="Texts that match become null")
    null_empty_string = boolean(default=False, doc="Empty texts become null")
    estimate_current_event = boolean(default=True, doc="An event without a time is of now; false: it has none")
    keep_time_key = boolean(default=False, doc="Leave the field time_key in the record")
    timeout = time(default=None, doc="Seconds after which a text is given up, against patterns that take for ever")

    by_pattern: ClassVar[bool] = False
    """True: a pattern reads the texts, which some text may make slow beyond measure."""
    _overdue: int = 0

    def validate(self, problems: Problems) -> None:
        """Make the functions that the parameters mean."""
        super().validate(problems)
        self._casts: dict[str, Callable[[Any], Any]] | None = None
        try:
            self._time = self.time_parser(self._now)
        except ValueError as error:
            problems.error(f'parameter "time_format": {error}', self.place_of("time_format"))
        try:
            if self.types:
                self._casts = casts(self.types, lambda kind, form, zone: make_time_parser(kind, form, zone, self._now))
        except ValueError as error:
            problems.error(f'parameter "types": {error}', self.place_of("types"))
        self._converts = bool(self._casts or self.null_value_pattern is not None or self.null_empty_string)
        read = self.reader()
        if self.timeout is not None:
            self.__dict__["parse"] = guard.limited(read, self._late, self.timeout)
        else:
            self.__dict__["parse"] = guard.guarded(read, self._late) if self._patterned() else read

    def _patterned(self) -> bool:
        pattern = self.null_value_pattern or getattr(self, "delimiter_pattern", None)
        return self.by_pattern or pattern is not None

    def reader(self) -> Callable[[bytes], Parsed]:
        """The function that `parse` calls; a parser with a faster one returns that."""
        return self.read

    def _now(self) -> int:
        return self.context.clock.wall_ns()

    def read(self, text: bytes) -> Parsed:
        """Parse a text, without a time limit."""
        raise NotImplementedError

    def parse(self, text: bytes) -> Parsed:
        """Parse a text. Raises ParserError; one that takes longer than `timeout` does not match."""
        return self.reader()(text)  # before validate; then it is an entry of the instance's dict

    def _late(self, text: bytes) -> Parsed:
        self._overdue += 1
        if self._overdue <= _TOLD_MAX:  # a hostile sender must not fill the log
            self.log.warning("parsing timed out with %s: text = %r", self.type_, text[:1000])
        return [(None, None)]

    def event(self, record: Record) -> tuple[int | None, Record]:
        """Take the time out of a record, and convert its values. Raises ParserError."""
        key = self.time_key
        if key is not None and key in record:
            value = record[key] if self.keep_time_key else record.pop(key)
            try:
                moment: int | None = self._time(value)
            except ValueError as error:
                raise ParserError(f"invalid time: {error}") from error
        else:
            moment = self._now() if self.estimate_current_event else None
        if self._converts:
            self._convert(record)
        return moment, record

    def _convert(self, record: Record) -> None:
        pattern, kinds = self.null_value_pattern, self._casts or {}
        for key, value in record.items():
            if value is None or value is False:
                continue
            if isinstance(value, str) and (
                (self.null_empty_string and not value) or (pattern is not None and pattern.search(value))
            ):
                record[key] = None
            elif key in kinds:
                record[key] = kinds[key](value)
