"""Texts and numbers to event times: integer nanoseconds, no float on the way.

`strptime` reads Ruby's directives (Time.strptime): the format becomes one regular expression, and the second that
a match means is worked out once for equal dates. As there, what a format does not name is that of now down to the
first field it names, and the beginning of the rest; text after the match is ignored; white space in a format stands
for any amount of it. %L and %N take digits after the decimal point, as many as there are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from time import time_ns
from typing import TYPE_CHECKING, Final

from headrace.pipeline.event import NS
from headrace.plugins.time_fields import DIRECTIVES, Fields, fraction_ns, seconds_of, zone_offset

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    TextParser = Callable[[str], int]
    """Text -> nanoseconds since the epoch. Raises ValueError."""

_DECIMAL: Final = re.compile(r"\s*([+-]?\d{1,12})(?:\.(\d*))?([eE][+-]?\d{1,3})?")
_INTEGER: Final = re.compile(r"\s*([+-]?\d{1,12})")
_CONVERSION: Final = re.compile(r"%[-_0^#:]*(\d*)(.)|(\s+)|([^%\s]+)", re.DOTALL)
_ALIASES: Final = {
    "T": "%H:%M:%S", "X": "%H:%M:%S", "R": "%H:%M", "r": "%I:%M:%S %p", "D": "%m/%d/%y", "x": "%m/%d/%y",
    "F": "%Y-%m-%d", "c": "%a %b %e %H:%M:%S %Y", "v": "%e-%b-%Y", "+": "%a %b %e %H:%M:%S %Z %Y",
}  # fmt: skip
_ISO8601: Final = re.compile(
    r"\s*([+-]?\d{4,})-(\d\d)-(\d\d)(?:[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?([Zz]|[+-]\d\d(?::?\d\d)?)?\s*"
)
_CLOCK: Final = r"(?P<H>\d\d?):(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,](?P<N>\d+))?)?"
_ZONE: Final = r"\s*(?P<z>[+-]\d\d(?::?\d\d)?|[A-Za-z]{1,5})?"
_KNOWN_MAX: Final = 1024
_MONTH: Final = r"(?P<b>[A-Za-z]{3,9})"
_FORMS: Final = tuple(
    re.compile(r"\s*" + form + r"\s*")
    for form in (
        # ISO 8601 and its relatives: a space or a T, a dot or a comma, seconds left out, a zone of any form.
        rf"(?P<Y>\d{{4}})[-/](?P<m>\d\d?)[-/](?P<d>\d\d?)(?:(?:[Tt]|\s+){_CLOCK})?{_ZONE}",
        rf"(?P<Y>\d{{4}})(?P<m>\d\d)(?P<d>\d\d)(?:[Tt]?(?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)?(?:[.,](?P<N>\d+))?)?{_ZONE}",
        # RFC 9110, RFC 5322, and Apache's logs.
        rf"(?:[A-Za-z]{{3,9}},?\s+)?(?P<d>\d\d?)[-/\s]{_MONTH}[-/\s](?P<Y>\d{{4}})[:\s]\s*{_CLOCK}{_ZONE}",
        # ctime, date(1) and syslog.
        rf"(?:[A-Za-z]{{3}},?\s+)?{_MONTH}\s+(?P<d>\d\d?)\s+{_CLOCK}(?:\s{_ZONE})?(?:\s+(?P<Y>\d{{4}}))?",
    )
)
"""What is understood without time_format."""


def decimal_ns(text: str) -> int | None:
    """Seconds as a decimal, read digit by digit; what follows the number is ignored, None without one."""
    match = _DECIMAL.match(text)
    if match is None:
        return None
    if match[3]:
        value = float(match[0])
        return decimal_ns(f"{value:.9f}") if abs(value) < 1e12 else None
    seconds, fraction = int(match[1]), fraction_ns(match[2] or "0")
    return seconds * NS + (-fraction if match[1].startswith("-") else fraction)


def parse_float(value: object) -> int:
    """time_type float: a number, or a text that begins with one. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int):
            return value * NS
        # The shortest decimal that means this double is what the sender wrote.
        value = repr(value)
        whole, _, fraction = value.partition(".")
        if fraction.isdecimal() and whole.isdecimal():
            return int(whole) * NS + int(fraction[:9].ljust(9, "0"))
    found = decimal_ns(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"a number of seconds is needed, not {value!r}")
    return found


def parse_unixtime(value: object) -> int:
    """time_type unixtime: whole seconds; a fraction is cut off. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * NS
    match = None
    if isinstance(value, float) and abs(value) < 1e12:
        return int(value) * NS
    if isinstance(value, str):
        match = _INTEGER.match(value)
    if match is None:
        raise ValueError(f"a number of seconds is needed, not {value!r}")
    return int(match[1]) * NS


def strptime(format_: str, zone: tzinfo | None, now: Callable[[], int] = time_ns) -> TextParser:
    """A function for a format; `%iso8601` is one too. Raises ValueError for a directive that does not exist.

    zone: of texts that name none; None is local time. now: nanoseconds since the epoch.
    """
    if format_ == "%iso8601":
        return _iso8601(zone)
    names: list[str] = []
    pattern = re.compile(_pattern(format_, names), re.IGNORECASE)
    fields = Fields(names, zone, now)

    def parse(text: str) -> int:
        match = pattern.match(text)
        if match is None:
            raise ValueError(f'"{text}" does not match {format_}')
        return fields.time(match.groups())

    # Logs repeat their seconds. What has no year is of this one, and fractions hardly repeat.
    return lru_cache(1024)(parse) if {"Y", "y"} & set(names) and "N" not in names else parse


def any_form(zone: tzinfo | None, now: Callable[[], int] = time_ns) -> TextParser:
    """A function for the forms that are common in logs, for parsers without time_format."""
    forms = [(pattern, Fields(_group_names(pattern), zone, now)) for pattern in _FORMS]
    known: dict[str, int] = {}

    def parse(text: str) -> int:
        found = known.get(text)
        if found is not None:
            return found
        for pattern, fields in forms:
            match = pattern.fullmatch(text)
            if match is not None:
                found = fields.time(match.groups())
                if match["Y"] is not None:  # what has no year is of this one
                    if len(known) >= _KNOWN_MAX:
                        known.clear()
                    known[text] = found
                return found
        raise ValueError(f'"{text}" is no time in a known form; set time_format')

    return parse


def _group_names(pattern: re.Pattern[str]) -> list[str]:
    return sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)


def _pattern(format_: str, names: list[str]) -> str:
    out: list[str] = []
    for match in _CONVERSION.finditer(format_):
        width, letter, space, literal = match.groups()
        if literal is not None:
            out.append(re.escape(literal))
        elif space is not None or letter in {"n", "t"}:
            out.append(r"\s*")
        elif letter == "%":
            out.append("%")
        elif letter in _ALIASES:
            out.append(_pattern(_ALIASES[letter], names))
        elif letter in DIRECTIVES:
            name, expression = DIRECTIVES[letter]
            names.append(name)
            out.append(f"({expression})" if not width or name != "N" else rf"(\d{{{int(width)}}})")
        else:
            raise ValueError(f'"%{letter}" is no directive of a time format')
    if format_.replace("%%", "").endswith("%"):
        raise ValueError("a time format cannot end with %")
    return "".join(out)


def _iso8601(zone: tzinfo | None) -> TextParser:
    offset_of = lru_cache(64)(zone_offset)

    def parse(text: str) -> int:
        match = _ISO8601.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is no ISO 8601 time')
        year, month, day, hour, minute, second, fraction, offset = match.groups()
        seconds = seconds_of(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            offset_of(offset) if offset else None, zone,
        )  # fmt: skip
        return seconds * NS + (fraction_ns(fraction) if fraction else 0)

    return parse
