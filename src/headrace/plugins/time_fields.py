"""The fields of a time as text, and the second that they mean together."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headrace.pipeline.event import NS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:tember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?"
)
_DAY: Final = "(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_ZONE: Final = r"[+-]\d\d(?::?\d\d(?::?\d\d)?)?|[A-Za-z]+(?:[+-]\d\d?(?::?\d\d)?)?"

DIRECTIVES: Final[Mapping[str, tuple[str, str]]] = {
    "Y": ("Y", r"[+-]?\d{4}|[+-]?\d+"), "C": ("C", r"\d\d?"), "y": ("y", r"\d\d?"),
    "m": ("m", r"\d\d?"), "B": ("b", _MONTH), "b": ("b", _MONTH), "h": ("b", _MONTH),
    "d": ("d", r"\s?\d\d?"), "e": ("d", r"\s?\d\d?"), "j": ("j", r"\d{1,3}"),
    "H": ("H", r"\s?\d\d?"), "k": ("H", r"\s?\d\d?"), "I": ("I", r"\s?\d\d?"), "l": ("I", r"\s?\d\d?"),
    "M": ("M", r"\d\d?"), "S": ("S", r"\d\d?"), "L": ("N", r"\d+"), "N": ("N", r"\d+"),
    "p": ("p", r"[ap]\.?m\.?"), "P": ("p", r"[ap]\.?m\.?"),
    "z": ("z", _ZONE), "Z": ("z", _ZONE), "s": ("s", r"[+-]?\d+"), "Q": ("Q", r"[+-]?\d+"),
    "a": ("a", _DAY), "A": ("a", _DAY), "u": ("u", r"[1-7]"), "w": ("w", r"[0-6]"),
    "U": ("U", r"\d\d?"), "W": ("W", r"\d\d?"), "V": ("V", r"\d\d?"), "G": ("G", r"[+-]?\d{4}|[+-]?\d+"),
    "g": ("_", r"\d\d?"),
}  # fmt: skip
"""Directive -> (field, what it matches). Field "_" is read and not used."""
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_HOURS: Final[Mapping[str, int]] = {
    "z": 0, "utc": 0, "gmt": 0, "ut": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7, "akst": -9, "akdt": -8, "hst": -10, "wet": 0, "west": 1, "bst": 1, "cet": 1, "cest": 2,
    "eet": 2, "eest": 3, "msk": 3, "jst": 9, "kst": 9,
}  # fmt: skip
_UNITS: Final = ("Y", "m", "d", "H", "M", "S")


def fraction_ns(digits: str) -> int:
    """Nanoseconds of the digits after a decimal point."""
    return int(digits[:9].ljust(9, "0"))


def zone_offset(text: str) -> int | None:
    """Seconds east of UTC of a zone in a text: +09:00, +0900, +09, or a common abbreviation; None: unknown."""
    if text[0] in "+-":
        digits = text[1:].replace(":", "")
        seconds = int(digits[:2]) * 3600 + int(digits[2:4] or 0) * 60 + int(digits[4:6] or 0)
        return -seconds if text[0] == "-" else seconds
    name = text.lower()
    for separator in "+-":
        head, found, tail = name.partition(separator)
        if found:
            east = zone_offset(separator + tail.replace(":", "").rjust(2, "0"))
            return None if head not in {"utc", "gmt"} else east
    hours = _HOURS.get(name)
    return None if hours is None else hours * 3600


@lru_cache(4096)
def seconds_of(
    year: int, month: int, day: int, hour: int, minute: int, second: int, offset: int | None, zone: tzinfo | None
) -> int:
    """Seconds since the epoch. offset: seconds east of UTC, before `zone`; neither: local time. Raises ValueError."""
    extra = 0
    if second == 60:  # a leap second is the first of the next minute
        second, extra = 59, 1
    if (hour, minute, second) == (24, 0, 0):
        hour, extra = 0, 86400
    if offset is not None:
        if abs(offset) >= 86400:
            raise ValueError(f"a zone {offset} seconds from UTC")
        zone = UTC if offset == 0 else timezone(timedelta(seconds=offset))
    if day > 28 and month in range(1, 13) and day <= 31:  # February 30 is March 2, as in Ruby
        over = day - monthrange(year, month)[1]
        if over > 0:
            day, extra = day - over, extra + over * 86400
    moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return int(moment.timestamp()) + extra if zone is None else (moment - _EPOCH) // _SECOND + extra


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


class Fields:
    """What the groups of a pattern are, and the time they mean.

    zone: of texts that name none; None is local time. now: nanoseconds since the epoch, for texts without a year.
    """

    def __init__(self, names: Sequence[str], zone: tzinfo | None, now: Callable[[], int]) -> None:
        self._names = names
        self._zone = zone
        self._now_ns = now
        self._fraction = names.index("N") if "N" in names else None
        self._cached = lru_cache(1024)(self._seconds)
        # What has no year is of this one: not to be remembered.
        self._year = next((names.index(name) for name in ("Y", "y", "s", "Q", "G") if name in names), None)

    def time(self, groups: tuple[str | None, ...]) -> int:
        """Nanoseconds since the epoch. Raises ValueError for a time that does not exist."""
        at, fraction = self._fraction, 0
        if at is not None:
            digits = groups[at]
            if digits is not None:
                fraction = fraction_ns(digits)
                groups = (*groups[:at], None, *groups[at + 1 :])
        year = self._year
        try:
            return fraction + (self._seconds if year is None or groups[year] is None else self._cached)(groups)
        except OverflowError as error:
            raise ValueError("a time that is out of range") from error

    def _seconds(self, groups: tuple[str | None, ...]) -> int:
        """The whole seconds that the groups mean, in nanoseconds."""
        found = {name: text.strip() for name, text in zip(self._names, groups, strict=True) if text is not None}
        if "s" in found:
            return int(found["s"]) * NS
        if "Q" in found:
            return int(found["Q"]) * 1_000_000
        offset = zone_offset(found["z"]) if "z" in found else None
        numbers = self._numbers(found)
        if "j" in found:
            year = numbers["Y"] if "Y" in numbers else self._now(offset)[0]
            moment = date(year, 1, 1) + timedelta(days=int(found["j"]) - 1)
            numbers.update(Y=year, m=moment.month, d=moment.day)
        elif "m" not in numbers and (day := self._day_of_week(found, numbers)) is not None:
            numbers.update(Y=day.year, m=day.month, d=day.day)
        values = self._completed(numbers, offset)
        return seconds_of(values[0], values[1], values[2], values[3], values[4], values[5], offset, self._zone) * NS

    @staticmethod
    def _day_of_week(found: dict[str, str], numbers: dict[str, int]) -> date | None:
        """The date that a week and perhaps a day of it mean: %G %V, or %Y with %U (from Sundays) or %W (Mondays)."""
        name = found.get("a", "")[:3].lower()
        day = int(found["u"]) if "u" in found else (int(found["w"]) or 7) if "w" in found else 0
        day = day or (_DAYS.index(name) + 1 if name else 0)
        if "G" in found and "V" in found:
            return date.fromisocalendar(int(found["G"]), int(found["V"]), day or 1)
        week = found.get("U") or found.get("W")
        if week is None or "Y" not in numbers:
            return None
        sundays = "U" in found
        first = date(numbers["Y"], 1, 1)
        begin = (6 - first.weekday()) if sundays else (7 - first.weekday()) % 7
        within = (day % 7 if sundays else (day - 1)) if day else 0
        return first + timedelta(days=begin + (int(week) - 1) * 7 + within)

    @staticmethod
    def _numbers(found: dict[str, str]) -> dict[str, int]:
        numbers: dict[str, int] = {name: int(found[name]) for name in ("Y", "m", "d", "H", "M", "S") if name in found}
        if "y" in found:
            short = int(found["y"])
            century = int(found["C"]) if "C" in found else 19 if short >= 69 else 20
            numbers["Y"] = century * 100 + short
        if "b" in found:
            numbers["m"] = MONTHS.index(found["b"][:3].lower()) + 1
        if "I" in found:
            numbers["H"] = int(found["I"]) % 12
        if "p" in found:
            numbers["H"] = numbers.get("H", 0) % 12 + (12 if found["p"][0] in "pP" else 0)
        return numbers

    def _completed(self, numbers: dict[str, int], offset: int | None) -> list[int]:
        """Fill in from now what is larger than the first field, and the beginning for the rest."""
        now = self._now(offset) if "Y" not in numbers else ()
        first = next((index for index, name in enumerate(_UNITS) if name in numbers), len(_UNITS))
        values: list[int] = []
        for index, name in enumerate(_UNITS):
            if name in numbers:
                values.append(numbers[name])
            elif index < first:
                values.append(now[index])
            else:
                values.append(1 if name in {"m", "d"} else 0)
        return values

    def _now(self, offset: int | None) -> tuple[int, ...]:
        zone = self._zone if offset is None else timezone(timedelta(seconds=offset))
        moment = datetime.fromtimestamp(self._now_ns() // NS, zone)
        return (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
