"""Event times in nanoseconds: from the `time` parameter of a request, or from a field of a record.

A decimal is read digit by digit, because a double cannot hold nanoseconds of this century.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import NS, EventTime
from headrace.plugins.in_http.body import bad
from headrace.plugins.time_parse import decimal_ns, parse_float

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.event import Event, Record

_LIMIT: Final = NS << 63
"""Past it no time format holds a time (msgpack's has 64 bits for the seconds)."""


def from_text(text: str) -> int | None:
    """Seconds as a decimal, such as `1518756037.3137116`; what follows the number is ignored.

    None, which stands for "now", when there is no number, or when it is zero.
    """
    return decimal_ns(text) or None


def from_number(value: Any) -> int:
    """Seconds as a number of a record. Raises HttpError 400 for anything else."""
    if isinstance(value, EventTime):
        return int(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise bad(f"can't convert {type(value).__name__} into an exact number")
    try:
        time = parse_float(value)
    except ValueError as error:
        raise bad(f"invalid time: {error}") from error
    if abs(time) >= _LIMIT:
        raise bad(f"invalid time: {value} is out of range")
    return time


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
