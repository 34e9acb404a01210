"""The time parameters of <parse>, <format> and <inject> (docs.fluentd.org, Config: Parse Section, Time Parameters)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, boolean, enum, string
from headrace.plugins.time_format import numeric_formatter, time_formatter, zone_of

if TYPE_CHECKING:
    from datetime import tzinfo

    from headrace.conf.params import Problems
    from headrace.plugins.time_format import Formatter


class ZoneParams(Configurable):
    """A format and the zone it is in. `zone` exists after validate; None is local time."""

    time_format = string(default=None, doc="Format of times, as strftime has it; %L and %N are fractions")
    localtime = boolean(default=True, doc="Local time; false: UTC")
    utc = boolean(default=False, doc="UTC; the other way to say localtime false")
    timezone = string(default=None, doc="Time zone, such as +09:00 or Asia/Tokyo")

    zone: tzinfo | None = None

    def validate(self, problems: Problems) -> None:
        """Find the zone."""
        super().validate(problems)
        given = {child.name for child in self.directive.block or ()} if self.directive else set()
        if {"localtime", "utc"} <= given and self.localtime == self.utc:
            problems.error("localtime and utc contradict each other", self.place_of("utc"), hint="use one of them")
        try:
            self.zone = zone_of(self.timezone, utc=self.utc or not self.localtime)
        except ValueError as error:
            problems.error(f'parameter "timezone": {error}', self.place_of("timezone"))


class FormatTime(ZoneParams):
    """How a formatter prints times."""

    time_type = enum(("string", "float", "unixtime"), default="string", doc="string: by time_format; else seconds")

    def time_formatter(self, default: str | None = None) -> Formatter:
        """The function for these parameters. default: the format when there is none; None: ISO 8601."""
        if self.time_type != "string":
            return numeric_formatter(self.time_type)
        return time_formatter(self.time_format or default, self.zone)
