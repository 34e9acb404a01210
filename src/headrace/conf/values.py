"""The spellings of values: the literal of the tree -> a typed value.

Each converter takes what a parser left in `Directive.values` (str, or list and dict from JSON) and
raises ValueError with a sentence for the user. The spellings are Fluentd's (docs.fluentd.org, Config
File Syntax, "Supported Data Types for Values"). Where Fluentd takes a part of a wrong value (`1.5m` is
5 MiB there, `100ms` is 100 minutes), these refuse it instead.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class _Marker:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


REQUIRED: Final[Any] = _Marker("REQUIRED")
"""The default of a parameter that must be given."""
USE_DEFAULT: Final[Any] = _Marker("USE_DEFAULT")
"""The value of `"#{use_default}"`: as if the parameter were absent."""

_SIZE = re.compile(r"(\d+)(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_SIZE_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_TIME = re.compile(r"(\d+(?:\.\d*)?)([smhd])")
_TIME_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_INTEGER = re.compile(r"[+-]?\d(?:_?\d)*")
_NUMBER = re.compile(r"[+-]?(?:\d(?:_?\d)*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_COMMA = re.compile(r"\s*,\s*")
_DIGITS_MAX = 400


def to_json(value: object) -> str:
    """Return the compact JSON text that Fluentd keeps for an array or hash literal."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def from_json(text: str) -> Any:
    """Parse JSON strictly (no NaN, no Infinity). Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def as_any(value: object) -> object:
    """Keep the literal as it is."""
    return value


def as_string(value: object) -> str:
    """Text; an array or hash literal becomes its compact JSON text."""
    if isinstance(value, str):
        return value
    return to_json(value)


def _scalar(value: object, wanted: str) -> str:
    if isinstance(value, (list, dict)):
        raise ValueError(f"{wanted} is needed, not {to_json(value)}")  # noqa: TRY004 - one error type for users
    text = as_string(value).strip()
    if not text:
        raise ValueError(f"{wanted} is needed, but there is no value")
    if len(text) > _DIGITS_MAX and text[:1].isdigit():
        raise ValueError(f"{wanted} is needed, not {len(text)} characters")
    return text


def as_integer(value: object) -> int:
    """A whole number; `_` may stand between digits, as in Ruby."""
    text = _scalar(value, "an integer")
    if not _INTEGER.fullmatch(text) or not text.isascii():
        raise ValueError(f'an integer is needed, not "{text}"')
    return int(text)


def as_number(value: object) -> float:
    """A number with or without a fraction."""
    text = _scalar(value, "a number")
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise ValueError(f'a number is needed, not "{text}"')
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f'"{text}" is out of range')
    return number


def as_size(value: object) -> int:
    """Bytes: a number with k, m, g or t (powers of 1024, either case), or a plain number."""
    text = _scalar(value, "a size")
    if match := _SIZE.fullmatch(text) if text.isascii() else None:
        return int(match[1]) << 10 * _SIZE_POWER[(match[2] or "").lower()]
    if text == "-1":  # "no limit" in several Fluentd plugins
        return -1
    raise ValueError(f'a size such as 512, 64k, 8m, 1g or 1t is needed, not "{text}"')


def as_time(value: object) -> float:
    """Seconds: a number with s, m, h or d, or a plain number of seconds."""
    text = _scalar(value, "a time")
    if text.startswith("-"):
        raise ValueError(f'a time cannot be negative, as "{text}" is')
    if text.isascii():
        if match := _TIME.fullmatch(text):
            return float(match[1]) * _TIME_UNIT[match[2]]
        if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
    more = " (milliseconds are written as a fraction: 0.1)" if text.endswith("ms") else ""
    raise ValueError(f'a time such as 0.5, 10s, 5m, 1h or 1d is needed, not "{text}"{more}')


def as_boolean(value: object) -> bool:
    """True for true, yes and a parameter without a value; False for false and no."""
    text = as_string(value).strip()
    # `name # comment` leaves the comment as the value in the v1 grammar; for a boolean it is no value.
    if text in {"true", "yes", ""} or text.startswith("#"):
        return True
    if text in {"false", "no"}:
        return False
    raise ValueError(f'true, yes, false or no is needed, not "{text}"')


def as_regexp(value: object) -> re.Pattern[str]:
    """A pattern in Ruby's syntax: `/.../`, `/.../i`, `/.../m` or the bare pattern."""
    from headrace.conf.ruby_regexp import compile_ruby  # noqa: PLC0415 - a gateway has no such expressions

    text = as_string(value)
    if not text.startswith("/"):
        return compile_ruby(text)
    end = text.rfind("/")
    flags = text[end + 1 :]
    if end == 0 or not set(flags) <= set("imx"):
        raise ValueError(f"a pattern that starts with / ends with / and flags (i, m, x), not {text}")
    return compile_ruby(text[1:end], flags)


def as_enum(values: Sequence[str]) -> Callable[[object], str]:
    """Return a converter to one of `values`."""

    def convert(value: object) -> str:
        text = as_string(value).strip()
        if text.removeprefix(":") not in values:
            raise ValueError(f'one of {", ".join(values)} is needed, not "{text}"')
        return text.removeprefix(":")

    return convert


def as_array(item: Callable[[object], T]) -> Callable[[object], list[T]]:
    """Return a converter of a JSON array or a comma list to a list of `item`."""

    def convert(value: object) -> list[T]:
        found = value
        if isinstance(value, str):
            text = value.strip()
            if text.startswith("["):
                found = from_json(text)
            else:
                found = _COMMA.split(text) if text else []
                while found and not found[-1]:
                    found.pop()
        if not isinstance(found, list):
            raise ValueError(f"an array is needed, not {as_string(value)}")  # noqa: TRY004 - one error type for users
        return [item(element) for element in found]

    return convert


def as_hash(item: Callable[[object], T]) -> Callable[[object], dict[str, T]]:
    """Return a converter of a JSON object or `k:v,...` to a dict of `item`."""

    def convert(value: object) -> dict[str, T]:
        found = value
        if isinstance(value, str):
            text = value.strip()
            found = from_json(text) if text.startswith("{") else _pairs(text)
        if not isinstance(found, dict):
            raise ValueError(f"a hash is needed, not {as_string(value)}")  # noqa: TRY004 - one error type for users
        return {str(key): item(element) for key, element in found.items()}

    return convert


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for part in _COMMA.split(text) if text else ():
        key, colon, value = part.partition(":")
        if not colon or not key:
            raise ValueError(f'a hash is written as JSON or key:value,key:value; "{part}" is neither')
        pairs[key] = value
    return pairs
