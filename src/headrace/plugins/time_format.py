"""Event times as text: integer nanoseconds in, no float on the way.

What a second looks like is worked out once and kept; the fraction is put in by digits. The conversions are
those of Ruby's Time#strftime, which are C's with %L, %N (digits as in %6N) and %:z.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Final

from headrace.pipeline import timezone as zones
from headrace.pipeline.event import NS

if TYPE_CHECKING:
    from collections.abc import Callable

    Formatter = Callable[[int], str]
    """Nanoseconds since the epoch -> text."""

_OWN: Final = re.compile(r"%%|%([-_0^#]*)(\d*)([LNsZ])")
_WIDTH: Final = {"L": 3, "N": 9}


def zone_of(name: str | None, *, utc: bool) -> tzinfo | None:
    """The zone that the parameters `timezone` and `utc` mean; None is local time. Raises ValueError."""
    if name is None:
        return UTC if utc else None
    found = zones.zone(name)
    # A numeric zone has no name in Ruby: %Z prints nothing.
    return timezone(found.utcoffset(None) or timedelta(0), "") if isinstance(found, timezone) else found


def time_formatter(format_: str | None, zone: tzinfo | None) -> Formatter:
    """A function that formats by strftime; None is ISO 8601 to the second, as Ruby's Time#iso8601 prints it."""
    if format_ is None:
        return _PerSecond(lambda seconds: [_iso8601(seconds, zone)], [])
    texts, own = _split(format_)
    widths = [int(width or _WIDTH[conversion]) for _flags, width, conversion in own if conversion in _WIDTH]

    def second(seconds: int) -> list[str]:
        out = [""]
        for index, text in enumerate(texts):
            if text:
                out[-1] += zones.strftime(seconds, zone, text)
            if index < len(own):
                if own[index][2] in _WIDTH:
                    out.append("")
                else:
                    out[-1] += _whole(own[index], seconds, zone)
        return out

    return _PerSecond(second, widths)


def numeric_formatter(type_: str) -> Formatter:
    """A function for time_type unixtime (seconds) or float (seconds and nine decimals)."""
    if type_ == "unixtime":
        return lambda time: str(time // NS)
    return lambda time: f"{time // NS}.{time % NS:09d}"


class _PerSecond:
    """Formats by a function of the whole second, of which the last two results are kept.

    widths: digits of the fractions that stand between the texts.
    """

    __slots__ = ("_before", "_last", "_second", "_texts", "_texts_before", "_widths", "unit")

    def __init__(self, second: Callable[[int], list[str]], widths: list[int]) -> None:
        self._second = second
        self._widths = widths
        self.unit = 1 if widths else NS  # nanoseconds between moments that look different
        self._last: int | None = None
        self._before: int | None = None
        self._texts: list[str] = []
        self._texts_before: list[str] = []

    def __call__(self, time: int) -> str:
        seconds, rest = divmod(time, NS)
        if seconds == self._last:
            texts = self._texts
        elif seconds == self._before:
            texts = self._texts_before
        else:
            texts = self._second(seconds)
            self._before, self._texts_before = self._last, self._texts
            self._last, self._texts = seconds, texts
        widths = self._widths
        if not widths:
            return texts[0]
        digits = f"{rest:09d}"
        if len(widths) == 1:
            width = widths[0]
            return texts[0] + (digits if width == 9 else digits[:width].ljust(width, "0")) + texts[1]
        out = [texts[0]]
        for width, text in zip(widths, texts[1:], strict=True):
            out += (digits[:width].ljust(width, "0"), text)
        return "".join(out)


def _split(format_: str) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Cut at the conversions that are filled in here: the texts around them (one more) and they themselves."""
    texts = [""]
    own: list[tuple[str, str, str]] = []
    at = 0
    for match in _OWN.finditer(format_):
        texts[-1] += format_[at : match.start()]
        at = match.end()
        if match.group() == "%%":
            texts[-1] += "%%"
        else:
            own.append((match[1], match[2], match[3]))
            texts.append("")
    texts[-1] += format_[at:]
    return texts, own


def _whole(part: tuple[str, str, str], seconds: int, zone: tzinfo | None) -> str:
    """%s and %Z, for which C's strftime does not know the zone."""
    flags, width, conversion = part
    pad = " " if "_" in flags else "0"
    if conversion == "s":
        return str(seconds) if "-" in flags else str(seconds).rjust(int(width or 0), pad)
    name = _moment(seconds, zone).tzname() or ""
    return (name.lower() if "#" in flags else name).rjust(int(width or 0), "0" if "0" in flags else " ")


def _moment(seconds: int, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(seconds, zone) if zone else datetime.fromtimestamp(seconds).astimezone()


def _iso8601(seconds: int, zone: tzinfo | None) -> str:
    text = _moment(seconds, zone).isoformat(timespec="seconds")
    return text.removesuffix("+00:00") + "Z" if zone is UTC else text
