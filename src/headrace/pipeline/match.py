"""Tag patterns of <match> and <filter> (docs.fluentd.org, Config File Syntax, "How match patterns work").

`*` is one tag part, `**` is zero or more parts, `{x,y}` is either, a backslash makes the next character
literal, `/.../` is a regular expression; several patterns are separated by white space.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


_TOKENS: Final = re.compile(r"\.\*\*\.|\.\*\*|\*\*\.|\*\*|\\.|.", re.DOTALL)
_WILD: Final = {
    "*": r"[^.]*",
    "**": r".*",
    "**.": r"(?:.*\.|\A)",
    # `a.**` takes `a` itself too: what follows is empty or begins with a dot.
    ".**": r"(?![^.]).*",
    ".**.": r"(?![^.]).*\.",
}


class Pattern:
    """A compiled pattern. Raises ValueError for one that cannot be read."""

    __slots__ = ("matches", "text")

    matches: Callable[[str], object]
    """True or a match object when the tag fits."""

    def __init__(self, text: str) -> None:
        self.text = text
        alternatives = text.split() or ["**"]
        if "**" in alternatives:
            self.matches = _everything
        else:
            joined = "|".join(f"(?:{_translate(one)})" for one in alternatives)
            try:
                self.matches = re.compile(joined, re.DOTALL).fullmatch
            except re.error as error:
                raise ValueError(f'tag pattern "{text}" is not valid: {error}') from None

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _everything(_tag: str) -> bool:
    return True


def _translate(pattern: str) -> str:
    """One pattern as a regular expression."""
    if pattern.startswith("/"):
        if len(pattern) < 2 or not pattern.endswith("/"):
            raise ValueError(f'tag pattern "{pattern}" is a regular expression without its closing slash')
        return pattern[1:-1]
    out: list[str] = []
    depth = 0
    for piece in _TOKENS.findall(pattern):
        if piece == "{":
            depth += 1
            out.append("(?:")
        elif piece == "}" and depth:
            depth -= 1
            out.append(")")
        elif piece == "," and depth:
            out.append("|")
        elif piece in _WILD:
            out.append(_WILD[piece])
        else:
            out.append(re.escape(piece[1:] if len(piece) > 1 else piece))
    return "".join(out) + ")" * depth
