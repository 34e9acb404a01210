"""The engine for a pattern: `re` where it can say the same, `regex` where it cannot.

Both are bounded by whoever matches: see headrace.plugins.guard.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from headrace.conf.onigmo.emit import RE, REGEX, Emitter, LacksError, alias
from headrace.conf.onigmo.syntax import Options, Parser

if TYPE_CHECKING:
    from headrace.conf.onigmo.nodes import Node

_LENGTH_MAX: Final = 65536


def compile_ruby(pattern: str, flags: str = "") -> re.Pattern[str]:
    """Compile a Ruby pattern; flags: any of i (ignore case), m (dot matches newline), x (extended).

    What comes back has the methods of `re.Pattern`, whichever engine is behind it; names of groups that Python
    does not take are spelled otherwise: see `group_names`. Raises ValueError with a sentence for the user.
    """
    if len(pattern) > _LENGTH_MAX:
        raise ValueError(f"a pattern of {len(pattern)} characters is too long")
    node = _parsed(pattern, flags)
    try:
        return re.compile(Emitter(RE).write(node), re.MULTILINE)
    except (LacksError, re.error, OverflowError):
        pass
    except RecursionError:
        raise ValueError(f"invalid pattern /{pattern}/: nested too deeply") from None
    import regex  # noqa: PLC0415 - slow to import, and few patterns need it

    try:
        found: Any = regex.compile(Emitter(REGEX).write(node), regex.MULTILINE | regex.VERSION1)
    except (LacksError, regex.error, OverflowError, RecursionError, ValueError, KeyError) as error:
        raise ValueError(f"invalid pattern /{pattern}/: {error}") from None
    return cast("re.Pattern[str]", found)


def translate(pattern: str, flags: str = "", engine: str = RE) -> str:
    """Return the text of `pattern` for one engine. Raises ValueError for what the engine lacks."""
    try:
        return Emitter(engine).write(_parsed(pattern, flags))
    except LacksError as error:
        raise ValueError(f"{error} in /{pattern}/ is not supported by {engine}") from None


def _parsed(pattern: str, flags: str) -> Node:
    try:
        return Parser(pattern, Options("i" in flags, "m" in flags, "x" in flags)).pattern()
    except RecursionError:
        raise ValueError(f"invalid pattern /{pattern}/: nested too deeply") from None


def group_names(pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """(name, number) of the named groups, in the order of the pattern, with the names of the configuration."""
    return [(_name(key), index) for key, index in sorted(pattern.groupindex.items(), key=lambda item: item[1])]


def _name(key: str) -> str:
    if not key.startswith("_h"):
        return key
    try:
        name = bytes.fromhex(key[2:]).decode("utf-8", "surrogateescape")
    except ValueError:
        return key
    return name if alias(name) == key else key
