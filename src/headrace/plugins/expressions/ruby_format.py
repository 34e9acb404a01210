"""Ruby's sprintf."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.plugins.expressions.ruby_kinds import RubyError, interpolated, kind
from headrace.plugins.ruby_text import inspect

_DIRECTIVE: Final = re.compile(r"%([-+ 0#]*)(?:<(\w+)>|\{(\w+)\})?([-+ 0#]*)(\d+|\*)?(?:\.(\d+))?([a-zA-Z%])?")
_WIDTH_MAX: Final = 1000


def sprintf(text: Any, *args: Any) -> str:
    """Fill in a format. Raises RubyError."""
    if not isinstance(text, str):
        raise RubyError("a format must be a String")
    given = list(args)

    def one(match: re.Match[str]) -> str:
        before, name, braced, after, width, precision, letter = match.groups()
        if braced is not None:
            return interpolated(_named(given, braced)) + (letter or "")
        if letter is None:
            raise RubyError("incomplete format specifier; use %% instead")
        if letter == "%":
            return "%"
        if width == "*":
            raise RubyError("* in a format is not supported")
        if int(width or 0) > _WIDTH_MAX or int(precision or 0) > _WIDTH_MAX:
            raise RubyError("too wide a format")
        if name is not None:
            value = _named(given, name)
        elif given:
            value = given.pop(0)
        else:
            raise RubyError("too few arguments")
        return _filled(before + after, width or "", precision, letter, value)

    return _DIRECTIVE.sub(one, text)


def _named(given: list[Any], name: str) -> Any:
    if len(given) != 1 or not isinstance(given[0], dict):
        raise RubyError("one hash required")
    if name not in given[0]:
        raise RubyError(f"key<{name}> not found")
    return given[0][name]


def _filled(flags: str, width: str, precision: str | None, letter: str, value: Any) -> str:
    point = "" if precision is None else "." + precision
    if letter in "sp":
        return f"%{flags.replace('0', '')}{width}{point}s" % (interpolated(value) if letter == "s" else inspect(value))
    if letter in "diu":
        return f"%{flags}{width}{point}d" % _integer(value)
    if letter in "xXo":
        return f"%{flags}{width}{point}{letter}" % _integer(value)
    if letter in "bB":
        digits = f"{_integer(value):b}".rjust(int(precision or 0), "0")
        if "0" in flags and "-" not in flags:
            digits = digits.rjust(int(width or 0), "0")
        return f"%{flags.replace('0', '').replace('#', '')}{width}s" % (("0b" if "#" in flags else "") + digits)
    if letter in "feEgGaA":
        if letter in "aA":
            raise RubyError("%a is not supported")
        return f"%{flags}{width}{point}{letter}" % _float(value)
    if letter == "c":
        return f"%{flags}{width}s" % (chr(value) if isinstance(value, int) else interpolated(value)[:1])
    raise RubyError(f"malformed format string - %{letter}")


def _integer(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        raise RubyError(f"can't convert {kind(value)} into Integer")
    if isinstance(value, float):
        return int(value // 1)
    try:
        return int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, TypeError):
        raise RubyError(f"invalid value for Integer(): {inspect(value)}") from None


def _float(value: Any) -> float:
    if isinstance(value, bool) or value is None:
        raise RubyError(f"can't convert {kind(value)} into Float")
    try:
        return float(value)
    except (ValueError, TypeError):
        raise RubyError(f"invalid value for Float(): {inspect(value)}") from None
