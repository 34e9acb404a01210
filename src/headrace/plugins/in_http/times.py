"""Event times in nanoseconds: from the `time` parameter of a request, or from a field of a record.

A decimal is read digit by digit, because a double cannot hold nanoseconds of this century.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import NS, EventTime
from headrace.plugins.in_http.body import bad

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.event import Event, Record

_DECIMAL: Final = re.compile(r"\s*([+-]?\d{1,12})(?:\.(\d*))?([eE][+-]?\d{1,3})?")


def from_text(text: str) -> int | None:
    """Seconds as a decimal, such as `1518756037.3137116`; what follows the number is ignored.

    None, which stands for "now", when there is no number, or when it is zero.
    """
    match = _DECIMAL.match(text)
    if match is None:
        return None
    if match[3]:
        value = float(match[0])
        return from_text(f"{value:.9f}") if abs(value) < 1e12 else None
    seconds, fraction = int(match[1]), int((match[2] or "")[:9].ljust(9, "0"))
    time = seconds * NS + (-fraction if match[1].startswith("-") else fraction)
    return time or None


def from_number(value: Any) -> int:
    """Seconds as a number of a record. Raises HttpError 400 for anything else."""
    if isinstance(value, EventTime):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * NS
    if isinstance(value, float) and value - value == 0.0 and abs(value) < 1e12:
        # The shortest decimal that means this double is what the sender wrote.
        return from_text(repr(value)) or 0
    raise bad(f"can't convert {type(value).__name__} into an exact number")


def timed(
    records: list[Record],
    default: int,
    *,
    key: str,
    keep: bool,
    convert: Callable[[Any], int],
) -> list[Event]:
    """Give each record the time of its field `key`, or `default`; the field is taken out unless kept.

    Raises HttpError 400 where the field is no time.
    """
    events: list[Event] = []
    for record in records:
        value = record.get(key) if keep else record.pop(key, None)
        events.append((default if value is None else convert(value), record))
    return events
