"""Methods of numbers in the Ruby subset."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.ruby_kinds import RubyError
from headrace.plugins.expressions.ruby_values import compare, divide, modulo
from headrace.plugins.ruby_text import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Method = tuple[str, Callable[..., Any]]


def _round(value: float, digits: int = 0) -> Any:
    """Half away from zero, as Ruby rounds."""
    if isinstance(value, int):
        if digits >= 0:
            return value
        step = 10 ** min(-digits, 100)
        return (abs(value) + step // 2) // step * step * (1 if value >= 0 else -1)
    if not math.isfinite(value):
        if digits > 0:
            return value
        raise RubyError(inspect(value))
    if digits > 0:
        if digits > 15:
            return value
        scale = 10.0**digits
        size = abs(value)
        found = math.floor(size * scale + 0.5)
        if (found + 0.5) / scale <= size:  # the product was rounded down from a half
            found += 1
        return float(math.copysign(found / scale, value))
    return _round(math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1), digits)


def _step(value: float, digits: int, function: Callable[[float], int]) -> Any:
    if not math.isfinite(value):
        raise RubyError(inspect(value))
    if digits > 0:
        if isinstance(value, int) or digits > 15:
            return value
        scale = 10.0**digits
        return function(value * scale) / scale
    if digits < 0:
        scale_down = 10 ** min(-digits, 100)
        return (
            function(value / scale_down) * scale_down
            if isinstance(value, float)
            else _whole(value, scale_down, function)
        )
    return function(value)


def _whole(value: int, scale: int, function: Callable[[float], int]) -> int:
    return (value // scale if function is math.floor else -(-value // scale)) * scale


def _to_i(value: float) -> int:
    if not math.isfinite(value):
        raise RubyError(inspect(value))
    return int(value)


def _in_base(value: int, base: int = 10) -> str:
    if base == 10:
        return int.__repr__(value)
    if not 2 <= base <= 36:
        raise RubyError(f"invalid radix {base}")
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    out = ""
    rest = abs(value)
    while rest:
        rest, digit = divmod(rest, base)
        out = digits[digit] + out
    return ("-" if value < 0 else "") + (out or "0")


def _clamp(value: Any, low: Any, high: Any) -> Any:
    return low if compare(value, low) == -1 else high if compare(value, high) == 1 else value


def _fdiv(value: float, other: Any) -> Any:
    return divide(float(value), other)


def _div(value: float, other: Any) -> int:
    if not other:
        raise RubyError("divided by 0")
    return int(value // other)


def _chr(value: int, *_encoding: Any) -> str:
    if not 0 <= value < 0x110000 or 0xD800 <= value < 0xE000:
        raise RubyError(f"{value} out of char range")
    return chr(value)


_BOTH: Final[Mapping[str, Method]] = {
    "to_f": ("0", float),
    "to_s": ("0-1", inspect),
    "abs": ("0", abs),
    "magnitude": ("0", abs),
    "round": ("0-1", _round),
    "floor": ("0-1", lambda value, digits=0: _step(value, digits, math.floor)),
    "ceil": ("0-1", lambda value, digits=0: _step(value, digits, math.ceil)),
    "truncate": ("0-1", lambda value, digits=0: _step(value, digits, math.floor if value >= 0 else math.ceil)),
    "zero?": ("0", lambda value: value == 0),
    "positive?": ("0", lambda value: value > 0),
    "negative?": ("0", lambda value: value < 0),
    "nonzero?": ("0", lambda value: value or None),
    "between?": ("2", lambda value, low, high: low <= value <= high),
    "clamp": ("2", _clamp),
    "fdiv": ("1", _fdiv),
    "div": ("1", _div),
    "modulo": ("1", modulo),
    "divmod": ("1", lambda value, other: [_div(value, other), modulo(value, other)]),
    "integer?": ("0", lambda value: isinstance(value, int)),
    "finite?": ("0", math.isfinite),
    "to_c": ("0", lambda value: value),
}

INTEGER: Final[Mapping[str, Method]] = {
    **_BOTH,
    "to_i": ("0", int),
    "to_int": ("0", int),
    "to_r": ("0", int),
    "to_s": ("0-1", _in_base),
    "even?": ("0", lambda value: value % 2 == 0),
    "odd?": ("0", lambda value: value % 2 == 1),
    "succ": ("0", lambda value: value + 1),
    "next": ("0", lambda value: value + 1),
    "pred": ("0", lambda value: value - 1),
    "chr": ("0-1", _chr),
    "ord": ("0", int),
    "bit_length": ("0", int.bit_length),
    "digits": ("0", lambda value: [int(digit) for digit in reversed(str(abs(value)))]),
    "size": ("0", lambda _value: 8),
}

FLOAT: Final[Mapping[str, Method]] = {
    **_BOTH,
    "to_i": ("0", _to_i),
    "to_int": ("0", _to_i),
    "to_r": ("0", float),
    "to_s": ("0", inspect),
    "nan?": ("0", math.isnan),
    "infinite?": ("0", lambda value: None if not math.isinf(value) else 1 if value > 0 else -1),
}
