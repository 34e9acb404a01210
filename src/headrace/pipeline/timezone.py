"""Time zones of <buffer> and of formats: "+09:00", "+0900", "+09" or "Asia/Tokyo"; local time by default."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_NUMERIC: Final = re.compile(r"([+-])(\d\d)(?::?(\d\d))?")
_CONVERSION: Final = re.compile(r"%(?:[-_0^#]*\d*[a-zA-Z+]|:{1,3}z|%)")


def zone(text: str | None) -> tzinfo | None:
    """Return the zone; None (local time) for None. Raises ValueError for abbreviations and unknown names."""
    if text is None:
        return None
    if match := _NUMERIC.fullmatch(text):
        sign, hours, minutes = match.groups()
        delta = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if delta < timedelta(days=1):
            return timezone(-delta if sign == "-" else delta)
    elif "/" in text:
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ValueError(f'unsupported timezone "{text}": write it as +0900 or Asia/Tokyo')


def offset(seconds: int, where: tzinfo | None) -> int:
    """Seconds that local time in a zone is ahead of UTC at a moment."""
    if where is None:
        return time.localtime(seconds).tm_gmtoff
    delta = datetime.fromtimestamp(seconds, where).utcoffset()
    return int(delta.total_seconds()) if delta is not None else 0


def strftime(seconds: int, where: tzinfo | None, text: str) -> str:
    """Return a text with its conversions filled in, C's and Ruby's %L, %N and %:z; other text stays as it is."""
    moment = datetime.fromtimestamp(seconds, where) if where else datetime.fromtimestamp(seconds).astimezone()

    def one(match: re.Match[str]) -> str:
        conversion = match.group()
        if conversion == "%%":
            return "%"
        if conversion.endswith("L"):
            return "0" * int(conversion[1:-1] or 3)
        if conversion.endswith("N"):
            return "0" * int(conversion[1:-1] or 9)
        if conversion.startswith("%:"):
            plain = moment.strftime("%z")
            return f"{plain[:3]}:{plain[3:5]}"
        return moment.strftime(conversion)

    return _CONVERSION.sub(one, text)
