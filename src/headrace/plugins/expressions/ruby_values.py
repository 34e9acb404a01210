"""What operators, truth, equality and interpolation of the Ruby subset mean, over the values that records hold."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.ruby_kinds import (
    TEXT_MAX,
    Range,
    RubyError,
    Type,
    interpolated,
    is_pattern,
    kind,
    true,
    undefined,
)
from headrace.plugins.expressions.ruby_time import Moment

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS_MAX: Final = 512


_last: list[re.Match[str] | None] = [None]
"""$~: expressions of one process run one after the other."""


def remember(match: re.Match[str] | None) -> re.Match[str] | None:
    """Set $~."""
    _last[0] = match
    return match


def matched(number: int, whole: bool) -> Any:
    """$~, or the text of $1 and its kind."""
    match = _last[0]
    if whole or match is None:
        return match
    return match.group(number) if number <= match.re.groups else None


def _numbers(sign: str, left: Any, right: Any) -> None:
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            if value is left:
                raise undefined(sign, value)
            raise RubyError(f"{kind(value)} can't be coerced into {kind(left)}")


def _bounded(value: Any) -> Any:
    if type(value) is int and value.bit_length() > _BITS_MAX:
        raise RubyError("the number is too large")
    return value


def add(left: Any, right: Any) -> Any:
    """Left + right."""
    if type(left) is str:
        if type(right) is not str:
            raise RubyError(f"no implicit conversion of {kind(right)} into String")
        if len(left) + len(right) > TEXT_MAX:
            raise RubyError("the text is too long")
        return left + right
    if type(left) is list and type(right) is list:
        return left + right
    if isinstance(left, Moment):
        return left.plus(right)
    _numbers("+", left, right)
    return _bounded(left + right)


def subtract(left: Any, right: Any) -> Any:
    """Left - right."""
    if isinstance(left, Moment):
        return left.minus(right)
    if type(left) is list and type(right) is list:
        return [item for item in left if not any(equal(item, other) for other in right)]
    _numbers("-", left, right)
    return _bounded(left - right)


def multiply(left: Any, right: Any) -> Any:
    """Left * right."""
    if type(left) in {str, list} and type(right) is int:
        if right < 0 or len(left) * right > TEXT_MAX:
            raise RubyError("argument too big or negative")
        return left * right
    if type(left) is list and type(right) is str:
        return right.join([interpolated(item) for item in left])
    _numbers("*", left, right)
    return _bounded(left * right)


def divide(left: Any, right: Any) -> Any:
    """Left / right: of integers the floor."""
    _numbers("/", left, right)
    if isinstance(left, int) and isinstance(right, int):
        if not right:
            raise RubyError("divided by 0")
        return left // right
    if not right:
        if left == 0 or left != left:  # noqa: PLR0124 - not a number
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def modulo(left: Any, right: Any) -> Any:
    """Left % right; a text is a format."""
    if type(left) is str:
        from headrace.plugins.expressions.ruby_format import sprintf  # noqa: PLC0415 - it needs this module

        return sprintf(left, *(right if type(right) is list else [right]))
    _numbers("%", left, right)
    if not right:
        if isinstance(left, int) and isinstance(right, int):
            raise RubyError("divided by 0")
        return math.nan
    return left % right


def power(left: Any, right: Any) -> Any:
    """Left ** right, up to some size."""
    _numbers("**", left, right)
    if isinstance(left, int) and isinstance(right, int):
        if right < 0:
            return float(left) ** right if left else math.inf
        if left.bit_length() * right > _BITS_MAX:
            raise RubyError("the number is too large")
        return left**right
    try:
        found = float(left) ** float(right)
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return found if isinstance(found, float) else math.nan


def _integers(sign: str, left: Any, right: Any) -> None:
    _numbers(sign, left, right)
    if not (isinstance(left, int) and isinstance(right, int)):
        raise undefined(sign, left)


def bits_and(left: Any, right: Any) -> Any:
    """Left & right, of booleans and arrays too."""
    if isinstance(left, bool) or left is None:
        return true(left) and true(right)
    if type(left) is list and type(right) is list:
        return [item for index, item in enumerate(left) if item in right and item not in left[:index]]
    _integers("&", left, right)
    return left & right


def bits_or(left: Any, right: Any) -> Any:
    """Left | right, of booleans and arrays too."""
    if isinstance(left, bool) or left is None:
        return true(left) or true(right)
    if type(left) is list and type(right) is list:
        both = left + right
        return [item for index, item in enumerate(both) if item not in both[:index]]
    _integers("|", left, right)
    return left | right


def bits_xor(left: Any, right: Any) -> Any:
    """Left ^ right."""
    if isinstance(left, bool):
        return left != true(right)
    _integers("^", left, right)
    return left ^ right


def shift_left(left: Any, right: Any) -> Any:
    """Left << right, of integers; texts cannot be changed."""
    if not isinstance(left, int) or isinstance(left, bool):
        raise RubyError("<< changes its left side: write + instead")
    _integers("<<", left, right)
    if not -_BITS_MAX <= right <= _BITS_MAX:
        raise RubyError("the number is too large")
    return _bounded(left << right if right >= 0 else left >> -right)


def shift_right(left: Any, right: Any) -> Any:
    """Left >> right."""
    _integers(">>", left, right)
    return shift_left(left, -right)


def minus(value: Any) -> Any:
    """-value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise undefined("-@", value)
    return -value


def equal(left: Any, right: Any) -> bool:
    """Left == right; true is no 1 here."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def compare(left: Any, right: Any) -> int | None:
    """Left <=> right."""
    try:
        _orderable("<=>", left, right)
        return int((left > right) - (left < right))
    except (RubyError, TypeError):
        return 0 if equal(left, right) else None


def _orderable(sign: str, left: Any, right: Any) -> None:
    if type(left) is str and type(right) is str:
        return
    if isinstance(left, Moment) and isinstance(right, Moment):
        return
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and not isinstance(left, bool):
        return
    if isinstance(left, (str, int, float, Moment)) and not isinstance(left, bool):
        raise RubyError(f"comparison of {kind(left)} with {'nil' if right is None else kind(right)} failed")
    raise undefined(sign, left)


def less(left: Any, right: Any) -> bool:
    """Left < right."""
    _orderable("<", left, right)
    return bool(left < right)


def less_equal(left: Any, right: Any) -> bool:
    """Left <= right."""
    _orderable("<=", left, right)
    return bool(left <= right)


def greater(left: Any, right: Any) -> bool:
    """Left > right."""
    _orderable(">", left, right)
    return bool(left > right)


def greater_equal(left: Any, right: Any) -> bool:
    """Left >= right."""
    _orderable(">=", left, right)
    return bool(left >= right)


def case_equal(left: Any, right: Any) -> bool:
    """Left === right, as `when` compares: a pattern matches, a range and a class hold."""
    if isinstance(left, (Range, Type)):
        return left.holds(right)
    if is_pattern(left):
        return isinstance(right, str) and remember(left.search(right)) is not None
    return equal(left, right)


def match_at(left: Any, right: Any) -> int | None:
    """Text =~ pattern, either way round: where it begins."""
    if is_pattern(right):
        left, right = right, left
    if not is_pattern(left):
        if left is None or right is None:
            return None
        raise RubyError("=~ needs a pattern")
    if right is None:
        remember(None)
        return None
    if not isinstance(right, str):
        raise RubyError(f"no implicit conversion of {kind(right)} into String")
    match = remember(left.search(right))
    return int(match.start()) if match is not None else None


def rescued(body: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """Body, or where that fails, the other."""
    try:
        return body()
    except (RubyError, TypeError, ValueError, AttributeError, ArithmeticError, LookupError):
        return other()
