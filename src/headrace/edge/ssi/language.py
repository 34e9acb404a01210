"""Texts with `$name` and `${name}`, and the conditions of `if`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Lookup = Callable[[bytes], bytes | None]
_VARIABLE: Final = re.compile(rb"\\\$|\$\{([A-Za-z0-9_]+)\}|\$([A-Za-z0-9_]+)")
_EXPRESSION: Final = re.compile(rb"([^=!]*?)[ \t]*(?:(!?=)[ \t]*(.*))?", re.DOTALL)


class Wrong(ValueError):
    """A text that cannot be understood."""


def expand(text: bytes, lookup: Lookup) -> bytes:
    """A text with its variables replaced; a backslash makes a dollar one. Raises Wrong for what is no name."""
    if b"$" not in text:
        return text

    def value(match: re.Match[bytes]) -> bytes:
        if match.group().startswith(b"\\"):
            return b"$"
        return lookup(match.group(1) or match.group(2)) or b""

    if re.search(rb"(?<!\\)\$(?!\{[A-Za-z0-9_]+\}|[A-Za-z0-9_])", text):
        raise Wrong("invalid variable name")
    return _VARIABLE.sub(value, text)


def holds(text: bytes, lookup: Lookup, keep: Callable[[re.Match[bytes]], None]) -> bool:
    """Whether a condition holds: `$x`, `$x = text`, `x != $text`, `$x = /regex/`; keep gets the match of the last.

    Raises Wrong.
    """
    match = _EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise Wrong("invalid expression")
    left = expand(match.group(1), lookup)
    operator, right = match.group(2), match.group(3)
    if operator is None:
        return left != b""
    if right.startswith(b"/"):
        if len(right) < 2 or not right.endswith(b"/"):
            raise Wrong("invalid regular expression")
        try:
            pattern = re.compile(re.sub(rb"\(\?<(?=[A-Za-z_])", b"(?P<", right[1:-1]))
        except re.error as error:
            raise Wrong(str(error)) from None
        found = pattern.search(left)
        if found is not None:
            keep(found)
        return (found is not None) is (operator == b"=")
    return (left == expand(right, lookup)) is (operator == b"=")
