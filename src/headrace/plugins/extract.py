"""The <extract> section: the tag and the time of an event from fields of its record.

https://docs.fluentd.org/configuration/extract-section

A time that the parser found goes before one that is extracted, as in Fluentd. A parser that only estimates it, by
putting in the current time, would leave nothing to extract: so with `time_key` it estimates none, unless its section
says `estimate_current_event true`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import boolean, enum, string
from headrace.plugins.parsing import make_time_parser
from headrace.plugins.ruby_text import to_s
from headrace.plugins.time_params import ZoneParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.pipeline.plugin import Parser

    TagOf = Callable[[Record], str | None]
    TimeOf = Callable[[Record], int | None]


class Extract(ZoneParams):
    """What of a record becomes its tag or its time."""

    tag_key = string(default=None, doc="Field that is the tag")
    keep_tag_key = boolean(default=False, doc="Leave that field in the record")
    time_key = string(default=None, doc="Field that is the time")
    keep_time_key = boolean(default=False, doc="Leave that field in the record")
    time_type = enum(
        ("float", "unixtime", "string"), default="float", doc="Form of the time: seconds, whole seconds, or time_format"
    )

    def validate(self, problems: Problems) -> None:
        """Try the format."""
        super().validate(problems)
        if self.time_key is None:
            if self.time_format is not None:
                problems.warn("time_format without time_key has no effect", self.place_of("time_format"))
            return
        try:
            self._reader(lambda: 0)
        except ValueError as error:
            problems.error(f'parameter "time_format": {error}', self.place_of("time_format"))

    def _reader(self, now: Callable[[], int]) -> Callable[[Any], int]:
        return make_time_parser(self.time_type, self.time_format, self.zone, now)

    def tag_of(self) -> TagOf | None:
        """A function that takes the tag out of a record; None without tag_key. Its result is None without the field."""
        key = self.tag_key
        if key is None:
            return None
        take = dict.get if self.keep_tag_key else dict.pop

        def tag(record: Record) -> str | None:
            return to_s(take(record, key, None)) if key in record else None

        return tag

    def time_of(self, now: Callable[[], int]) -> TimeOf | None:
        """A function that takes the time out of a record; None without time_key.

        Its result is None without the field. It raises ValueError for what is no time. now: wall clock, nanoseconds.
        """
        key = self.time_key
        if key is None:
            return None
        read = self._reader(now)
        take = dict.get if self.keep_time_key else dict.pop

        def time(record: Record) -> int | None:
            return read(take(record, key, None)) if key in record else None

        return time

    def let_extract(self, parser: Parser) -> None:
        """Keep a parser from estimating the time that is to be extracted."""
        directive = parser.directive
        given = {child.name for child in directive.block or ()} if directive else set()
        if self.time_key is not None and "estimate_current_event" not in given:
            parser.__dict__["estimate_current_event"] = False
