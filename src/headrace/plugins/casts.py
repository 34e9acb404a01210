"""The `types` of a <parse> section: field -> conversion (docs.fluentd.org, Config: Parse Section, types Parameter).

Numbers are read as Ruby's to_i and to_f read them: what begins with one is one, everything else is 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import EventTime
from headrace.plugins.ruby_text import to_s
from headrace.plugins.time_format import zone_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import tzinfo

    Cast = Callable[[Any], Any]
    MakeTime = Callable[[str, str | None, tzinfo | None], Callable[[Any], int]]
    """(time_type, format, zone) -> a parser of times."""

_INTEGER: Final = re.compile(r"\s*([+-]?\d+(?:_\d+)*)")
_FLOAT: Final = re.compile(r"\s*([+-]?\d+(?:_\d+)*(?:\.\d+(?:_\d+)*)?(?:[eE][+-]?\d+)?)")
_ZONED: Final = re.compile(r"([+-]\d\d(?::?\d\d)?|[A-Za-z_]+/[A-Za-z_+-]+(?:/[A-Za-z_]+)?):(.+)", re.DOTALL)
_TRUE: Final = frozenset({"true", "yes", "1"})
_TYPES: Final = ("string", "integer", "float", "bool", "time", "array")


def casts(types: Mapping[str, str], make_time: MakeTime) -> dict[str, Cast]:
    """The conversion of each field. Raises ValueError for a type that does not exist."""
    return {field: _cast(field, *definition.partition(":")[::2], make_time) for field, definition in types.items()}


def _cast(field: str, type_: str, option: str, make_time: MakeTime) -> Cast:
    if type_ == "time":
        return _time(option, make_time)
    if type_ == "array":
        return lambda value: _split(to_s(value), option or ",")
    simple: Mapping[str, Cast] = {"string": to_s, "integer": to_integer, "float": to_float, "bool": _bool}
    if type_ not in simple:
        raise ValueError(f'field "{field}" cannot be of type "{type_}"; types are {", ".join(_TYPES)}')
    return simple[type_]


def to_integer(value: Any) -> int:
    """A value as Ruby's to_i makes an integer of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return int(value)
        except (ValueError, OverflowError):  # not a number, infinity
            return 0
    match = _INTEGER.match(to_s(value))
    return int(match[1]) if match else 0


def to_float(value: Any) -> float:
    """A value as Ruby's to_f makes a float of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _FLOAT.match(to_s(value))
    return float(match[1]) if match else 0.0


def _bool(value: Any) -> bool:
    return to_s(value).lower() in _TRUE


def _split(text: str, delimiter: str) -> list[str]:
    parts = text.split() if delimiter == " " else text.split(delimiter)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _time(option: str, make_time: MakeTime) -> Cast:
    """`time`, `time:FORMAT`, `time:ZONE:FORMAT`; FORMAT may be unixtime or float. What is no time becomes null."""
    zone: tzinfo | None = None
    form: str | None = option or None
    if zoned := _ZONED.fullmatch(option):
        try:
            zone, form = zone_of(zoned[1], utc=False), zoned[2]
        except ValueError:
            zone = None
    parse = make_time(form, None, zone) if form in {"unixtime", "float"} else make_time("string", form, zone)

    def cast(value: Any) -> EventTime | None:
        try:
            return EventTime(parse(value))
        except ValueError:
            return None

    return cast
