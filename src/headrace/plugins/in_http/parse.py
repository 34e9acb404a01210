"""The `<parse>` section without another parser: the Content-Type decides the format, this the time field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import boolean, string
from headrace.plugins.in_http.body import bad
from headrace.plugins.in_http.times import from_number
from headrace.plugins.parsing import ParseTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems


class DefaultParse(ParseTime):
    """Where a record's time comes from: a number of seconds, unless time_type or time_format say otherwise."""

    type_ = string(default="in_http", key="@type", doc="in_http: the Content-Type decides the format")
    time_key = string(default="time", doc="Field of a record that is its time")
    keep_time_key = boolean(default=False, doc="Leave that field in the record")

    def validate(self, problems: Problems) -> None:
        """Try the format."""
        super().validate(problems)
        try:
            self.converter(lambda: 0)
        except ValueError as error:
            problems.error(f'parameter "time_format": {error}', self.place_of("time_format"))

    def converter(self, now: Callable[[], int]) -> Callable[[Any], int]:
        """A function: value of the field -> nanoseconds. It raises HttpError 400. now: wall clock in nanoseconds."""
        given = {child.name for child in self.directive.block or ()} if self.directive else set()
        if not given & {"time_type", "time_format"}:
            return from_number
        read = self.time_parser(now)

        def convert(value: Any) -> int:
            try:
                return read(value)
            except ValueError as error:
                raise bad(f"invalid time: {error}") from error

        return convert
