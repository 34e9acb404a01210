"""Ranges, classes, blocks and the kinds of values in the Ruby subset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.ruby_time import Moment
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_MAX: Final = 1 << 20
"""Characters of a text that an expression may build."""


class RubyError(Exception):
    """What Ruby would raise: the record goes to @ERROR."""


class Range:
    """low..high; None: open."""

    __slots__ = ("exclusive", "high", "low")

    def __init__(self, low: Any, high: Any, exclusive: bool) -> None:
        self.low = low
        self.high = high
        self.exclusive = exclusive

    def span(self, size: int) -> tuple[int, int] | None:
        """(begin, length) within a list of some size; None where Ruby gives nil."""
        begin = self.low or 0
        if begin < 0:
            begin += size
        if not 0 <= begin <= size:
            return None
        end = size - 1 if self.high is None else self.high
        if end < 0:
            end += size
        end = end if self.exclusive and self.high is not None else end + 1
        return begin, max(0, min(end, size) - begin)

    def holds(self, value: Any) -> bool:
        """Whether a value lies within."""
        if value is None or isinstance(value, bool):
            return False
        try:
            return (self.low is None or value >= self.low) and (
                self.high is None or (value < self.high if self.exclusive else value <= self.high)
            )
        except TypeError:
            return False

    def items(self) -> list[int]:
        """The integers of it."""
        if not (isinstance(self.low, int) and isinstance(self.high, int)) or self.high - self.low > 10_000:
            raise RubyError("can't iterate over this range")
        return list(range(self.low, self.high + (not self.exclusive)))


class Type:
    """A class, for is_a? and case."""

    __slots__ = ("name", "types")

    def __init__(self, name: str, *types: type) -> None:
        self.name = name
        self.types = types

    def holds(self, value: object) -> bool:
        """Whether a value is one."""
        if isinstance(value, bool):
            return bool in self.types or not self.types
        return not self.types or isinstance(value, self.types)


_STRING: Final = Type("String", str, bytes)
CLASSES: Final = {
    "String": _STRING,
    "Integer": Type("Integer", int),
    "Float": Type("Float", float),
    "Numeric": Type("Numeric", int, float),
    "Hash": Type("Hash", dict),
    "Array": Type("Array", list),
    "NilClass": Type("NilClass", type(None)),
    "TrueClass": Type("TrueClass", bool),
    "FalseClass": Type("FalseClass", bool),
    "Time": Type("Time", Moment),
    "Object": Type("Object"),
}


class Block:
    """A block; count: of its arguments."""

    __slots__ = ("count", "function")

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self.function = function
        self.count = count

    def call(self, *values: Any) -> Any:
        """Call it as Ruby does: an array for several arguments is taken apart, what is too much is left out."""
        count = self.count
        if count == len(values):
            return self.function(*values)
        if count > 1 and len(values) == 1 and isinstance(values[0], list):
            values = tuple(values[0])
        elif count == 1 and len(values) > 1:
            return self.function(list(values))
        return self.function(*(values + (None,) * count)[:count])


def true(value: object) -> bool:
    """Everything but nil and false."""
    return value is not None and value is not False


def kind(value: object) -> str:
    """The name of a value's class."""
    if isinstance(value, bool):
        return "TrueClass" if value else "FalseClass"
    for name, one in CLASSES.items():
        if name != "Object" and one.holds(value):
            return name
    return {"Range": "Range", "Match": "MatchData", "Pattern": "Regexp"}.get(type(value).__name__, type(value).__name__)


def interpolated(value: object) -> str:
    """What `#{}` makes of a value."""
    if isinstance(value, Moment):
        return str(value)
    if isinstance(value, Type):
        return value.name
    if is_match(value):
        return str(value.group())  # type: ignore[attr-defined]
    return to_s(value)


def is_match(value: object) -> bool:
    """Whether it is a match of one of the engines."""
    return type(value).__name__ == "Match"


def is_pattern(value: object) -> bool:
    """Whether it is a pattern of one of the engines."""
    return type(value).__name__ == "Pattern"


def undefined(name: str, value: object) -> RubyError:
    """The error of a method that a value does not have."""
    what = "nil" if value is None else f"an instance of {kind(value)}"
    return RubyError(f"undefined method '{name}' for {what}")


_HELD: Final = frozenset({str, int, float, bool, type(None), bytes})


def held(value: Any) -> Any:
    """A value as a record can hold it: a time, a range, a match and a class are their texts."""
    if type(value) in _HELD:
        return value
    if isinstance(value, dict):
        return {held(key): held(item) for key, item in value.items()}
    if isinstance(value, list):
        return [held(item) for item in value]
    if isinstance(value, Range):
        return f"{interpolated(value.low)}{'...' if value.exclusive else '..'}{interpolated(value.high)}"
    if is_pattern(value):
        return str(value.pattern)
    odd = isinstance(value, (Moment, Type)) or is_match(value)
    return interpolated(value) if odd else value
