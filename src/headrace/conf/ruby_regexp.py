r"""Ruby's pattern syntax (Onigmo) -> Python's `re`.

Fluentd's configuration carries Ruby patterns. Most constructs are spelled alike; this module rewrites
those that are not: named groups, `\h`, `\z`, `\Z`, `\R`, `\k<name>`, bracket classes such as
`[[:alpha:]]` (ASCII), `(?m)` and the always-on line mode of `^` and `$`. As in Ruby, `\d`, `\s` and `\w`
are ASCII. What `re` cannot express (`\G`, `\K`, `\X`, `\p{...}`, `&&` in a class) is refused.
"""

from __future__ import annotations

import re

_POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "word": "a-zA-Z0-9_",
    "xdigit": "0-9a-fA-F",
}
_ESCAPES = {
    "h": "[0-9a-fA-F]",
    "H": "[^0-9a-fA-F]",
    "z": r"\Z",
    "Z": r"(?=\n?\Z)",
    "R": r"(?:\r\n|[\n\v\f\r\x85\u2028\u2029])",
    "e": r"\x1b",
    "/": "/",
}
_CLASS_ESCAPES = {"h": "0-9a-fA-F", "e": r"\x1b", "/": "/", "R": None, "H": None}
_REFUSED = {"G", "K", "X", "p", "P", "g", "y", "Y", "O", "N"}
_CLASS = re.compile(r"\[:(\^?)([a-z]+):\]")
_KEEP = re.compile(r"\\k(?:<([^>]+)>|'([^']+)')")
_GROUP = re.compile(r"\(\?(?:<([A-Za-z_]\w*)>|'([A-Za-z_]\w*)')")
_INLINE = re.compile(r"\(\?([imx]*)(?:-([imx]*))?([:)])")


def compile_ruby(pattern: str, flags: str = "") -> re.Pattern[str]:
    """Compile a Ruby pattern; flags: any of i (ignore case), m (dot matches newline), x (extended).

    Raises ValueError with a sentence for the user.
    """
    options = re.MULTILINE | re.ASCII
    options |= re.IGNORECASE if "i" in flags else re.NOFLAG
    options |= re.DOTALL if "m" in flags else re.NOFLAG
    options |= re.VERBOSE if "x" in flags else re.NOFLAG
    try:
        return re.compile(translate(pattern), options)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid pattern /{pattern}/: {error}") from None


def translate(pattern: str) -> str:
    """Return the text of `pattern` in Python's syntax. Raises ValueError for what Python lacks."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            piece, at = _escape(pattern, at)
        elif char == "[":
            piece, at = _bracket(pattern, at)
        elif char == "(":
            piece, at = _group(pattern, at)
        else:
            piece, at = char, at + 1
        out.append(piece)
    return "".join(out)


def _escape(pattern: str, at: int) -> tuple[str, int]:
    if match := _KEEP.match(pattern, at):
        name = match[1] or match[2]
        return (rf"(?:\{name})" if name.isdigit() else f"(?P={name})"), match.end()
    char = pattern[at + 1 : at + 2]
    if char in _REFUSED:
        raise ValueError(rf"\{char} in the pattern /{pattern}/ is not supported")
    known = _ESCAPES.get(char)
    if known is None:
        known = char if char.isascii() and char.isalpha() and char not in "AbBdDsSwWnrtfvaxuU" else "\\" + char
    return known, at + 2


def _group(pattern: str, at: int) -> tuple[str, int]:
    if match := _GROUP.match(pattern, at):
        return f"(?P<{match[1] or match[2]}>", match.end()
    match = _INLINE.match(pattern, at)
    if match and (match[1] or match[2]):
        on, off = (part.replace("m", "s") for part in (match[1], match[2] or ""))
        minus = f"-{off}" if off else ""
        if match[3] == ":":
            return f"(?{on}{minus}:", match.end()
        if at == 0 and not off:
            return f"(?{on})", match.end()
        raise ValueError(f"{match[0]} inside the pattern /{pattern}/ is not supported: write (?{match[1]}:...)")
    return "(", at + 1


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    out = ["["]
    start = at
    at += 1
    if pattern.startswith("^", at):
        out.append("^")
        at += 1
    first = True
    while at < len(pattern):
        char = pattern[at]
        if char == "]" and not first:
            return "".join(out) + "]", at + 1
        if match := _CLASS.match(pattern, at):
            if match[1] or match[2] not in _POSIX:
                raise ValueError(f"{match[0]} in the pattern /{pattern}/ is not supported")
            out.append(_POSIX[match[2]])
            at = match.end()
        elif char == "\\":
            follow = pattern[at + 1 : at + 2]
            known = _CLASS_ESCAPES.get(follow, "\\" + follow)
            if known is None or follow in _REFUSED:
                raise ValueError(rf"\{follow} in a class of the pattern /{pattern}/ is not supported")
            out.append(known)
            at += 2
        elif char == "[" or pattern.startswith("&&", at):
            raise ValueError(f"a class inside a class in the pattern /{pattern}/ is not supported")
        else:
            out.append("\\" + char if char in "|~&-" and out[-1] == char else char)
            at += 1
        first = False
    raise ValueError(f"the class that begins at character {start + 1} of /{pattern}/ has no end")
