"""What the values of embedded Ruby can do: truth, text, operators and the methods that are allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LEADING_INT = re.compile(r"\s*[+-]?\d+")
_LEADING_FLOAT = re.compile(r"\s*[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BOUND = 1 << 64


class Unsupported(Exception):
    """The code is not part of the subset; the text says why, where there is more to say."""


def truthy(value: object) -> bool:
    """Everything but nil and false is true."""
    return value is not None and value is not False


def text_of(value: object) -> str:
    """Return a string as it is; anything else is not supported."""
    if not isinstance(value, str):
        raise Unsupported("a string is needed")
    return value


def to_s(value: object) -> str:
    """Return what `#{value}` puts into a string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        raise Unsupported("the result is an array")
    return str(value)


def operation(sign: str, left: Callable[[], Any], right: Callable[[], Any]) -> Callable[[], Any]:
    """Return the thunk of a binary operator; the right side is evaluated only where Ruby does."""

    def choose() -> object:
        value = left()
        return value if truthy(value) == (sign in {"||", "or"}) else right()

    return choose if sign in {"||", "or", "&&", "and"} else lambda: _arithmetic(sign, left(), right())


def _arithmetic(sign: str, left: Any, right: Any) -> object:
    if sign in {"==", "!="}:
        return (left == right) == (sign == "==")
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right)):
        raise Unsupported(f"{sign} needs two strings or two numbers (.to_i makes a number)")
    if sign in {"/", "%"} and right == 0:
        raise Unsupported("division by zero")
    if max(abs(left), abs(right)) > _BOUND:
        raise Unsupported("the number is too large")
    whole = isinstance(left, int) and isinstance(right, int)
    divide = (lambda: left // right) if whole else (lambda: left / right)
    table: dict[str, Callable[[], object]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "%": lambda: left % right,
        "/": divide,
    }
    return table[sign]()


def index_of(value: Callable[[], Any], index: Callable[[], Any]) -> Callable[[], Any]:
    """Return the thunk of `value[index]`; nil where there is no such element."""

    def get() -> object:
        items, at = value(), index()
        if not isinstance(items, (list, str)) or isinstance(at, bool) or not isinstance(at, int):
            raise Unsupported("[ ] needs an array and a number")
        return items[at] if -len(items) <= at < len(items) else None

    return get


def call_method(name: str, value: Callable[[], Any], given: list[Callable[[], Any]]) -> Callable[[], Any]:
    """Return the thunk of a method call."""

    def call() -> object:
        try:
            return METHODS[name](value(), *(argument() for argument in given))
        except (TypeError, AttributeError, IndexError, ValueError, OverflowError):
            raise Unsupported(f".{name} cannot be called so") from None

    return call


def _to_i(value: Any) -> int:
    if isinstance(value, str):
        match = _LEADING_INT.match(value)
        return int(match[0][:20]) if match else 0
    return int(value or 0)


def _to_f(value: Any) -> float:
    if isinstance(value, str):
        match = _LEADING_FLOAT.match(value)
        return float(match[0]) if match else 0.0
    return float(value or 0)


def _split(value: str, by: str | None = None) -> list[str]:
    parts = value.split(None if by == " " else by)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def file_join(first: str, *others: str) -> str:
    """Return what File.join makes: one / where two parts meet; one that a part has brought along is kept."""
    joined = first
    for part in others:
        if part.startswith("/"):
            joined = joined.rstrip("/") + part
        else:
            joined += part if joined.endswith("/") else "/" + part
    return joined


METHODS: dict[str, Callable[..., Any]] = {
    "to_s": to_s,
    "to_i": _to_i,
    "to_f": _to_f,
    "nil?": lambda value: value is None,
    "empty?": lambda value: len(value) == 0,
    "length": len,
    "size": len,
    "strip": str.strip,
    "chomp": lambda value: value.removesuffix("\n").removesuffix("\r"),
    "upcase": str.upper,
    "downcase": str.lower,
    "capitalize": str.capitalize,
    "start_with?": lambda value, head: value.startswith(head),
    "end_with?": lambda value, tail: value.endswith(tail),
    "include?": lambda value, part: part in value,
    "split": _split,
    "first": lambda value: value[0] if value else None,
    "last": lambda value: value[-1] if value else None,
    "join": lambda value, by="": by.join(value),
    "sub": lambda value, old, new: value.replace(old, new, 1),
    "gsub": lambda value, old, new: value.replace(old, new),
}
