"""Ruby's Time over integer nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import NS
from headrace.pipeline.timezone import offset
from headrace.pipeline.timezone import zone as zone_named
from headrace.plugins.time_format import time_formatter

if TYPE_CHECKING:
    from headrace.plugins.time_format import Formatter

_formatter: Final = lru_cache(256)(time_formatter)
FORMAT_MAX: Final = 1000


@lru_cache(64)
def _printed(zone: tzinfo | None) -> Formatter:
    return time_formatter("%Y-%m-%d %H:%M:%S UTC" if zone is UTC else "%Y-%m-%d %H:%M:%S %z", zone)


@total_ordering
class Moment:
    """A time. zone: None is local."""

    __slots__ = ("ns", "zone")

    def __init__(self, ns: int, zone: tzinfo | None = None) -> None:
        self.ns = ns
        self.zone = zone

    def __str__(self) -> str:
        return _printed(self.zone)(self.ns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and self.ns == other.ns

    def __lt__(self, other: Moment) -> bool:
        return self.ns < other.ns

    def __hash__(self) -> int:
        return hash(self.ns)

    def plus(self, seconds: Any) -> Moment:
        """Seconds later. Raises TypeError."""
        return Moment(self.ns + nanoseconds(seconds), self.zone)

    def minus(self, other: Any) -> Any:
        """Seconds earlier, or seconds between two times as a float. Raises TypeError."""
        if isinstance(other, Moment):
            return (self.ns - other.ns) / NS
        return Moment(self.ns - nanoseconds(other), self.zone)

    def strftime(self, format_: str) -> str:
        """By a format. Raises TypeError, ValueError."""
        if type(format_) is not str:
            raise TypeError("no implicit conversion into String")
        if len(format_) > FORMAT_MAX:
            raise ValueError("too long a format")
        return _formatter(format_, self.zone)(self.ns)

    def iso8601(self, digits: int = 0) -> str:
        """ISO 8601 with some digits of the second."""
        fraction = f".%{digits}N" if digits else ""
        if digits > 9:
            raise ValueError("at most nine digits")
        end = "Z" if self.zone is UTC else "%:z"
        return _formatter(f"%Y-%m-%dT%H:%M:%S{fraction}{end}", self.zone)(self.ns)

    def local(self, zone: Any = None) -> Moment:
        """The same moment in local time, or in a zone: "+09:00"."""
        return Moment(self.ns, zone_of(zone))

    def fields(self) -> datetime:
        """Year, month and the rest; without the fraction."""
        seconds = self.ns // NS
        return datetime.fromtimestamp(seconds, self.zone) if self.zone else datetime.fromtimestamp(seconds).astimezone()

    def utc_offset(self) -> int:
        """Seconds east of UTC."""
        return offset(self.ns // NS, self.zone)

    def rounded(self, digits: int = 0) -> Moment:
        """To a number of digits of the second."""
        step = 10 ** max(9 - digits, 0)
        return Moment((self.ns + step // 2) // step * step, self.zone)


def zone_of(value: Any) -> tzinfo | None:
    """None, "UTC", "Z", "+09:00", a name, or seconds. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, int):
        return timezone(timedelta(seconds=value), "")
    if value in {"UTC", "Z"}:
        return UTC
    found = zone_named(value)
    return timezone(found.utcoffset(None) or timedelta(0), "") if isinstance(found, timezone) else found


def nanoseconds(value: Any) -> int:
    """Seconds as a number -> nanoseconds. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise TypeError("can't convert into an exact number")
    if isinstance(value, int):
        return value * NS
    return int(Fraction(value) * NS // 1)


def at(value: Any, more: Any = None, unit: Any = "microsecond", *, zone: Any = None) -> Moment:
    """Time.at: a number of seconds or another time, and more in a unit."""
    ns = (
        value.ns
        if isinstance(value, Moment)
        else int(value)
        if type(value).__name__ == "EventTime"
        else nanoseconds(value)
    )
    if more is not None:
        scale = {"millisecond": 1_000_000, "usec": 1000, "microsecond": 1000, "nsec": 1, "nanosecond": 1}[unit]
        ns += int(Fraction(more) * scale // 1)
    return Moment(ns, zone_of(zone))
