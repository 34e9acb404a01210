"""Methods of texts in the Ruby subset that need more than a line."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from headrace.plugins.casts import to_float, to_integer
from headrace.plugins.expressions.ruby_kinds import TEXT_MAX, Block, Range, RubyError, interpolated, is_pattern, kind
from headrace.plugins.expressions.ruby_values import remember

SPACES: Final = "\0\t\n\v\f\r "
_BACK: Final = re.compile(r"\\(?:([0-9])|k<(\w+)>|([\\&`']))")
_BASES: Final = {2: "[01]", 8: "[0-7]", 10: "[0-9]", 16: "[0-9a-fA-F]"}


def need_text(value: Any) -> str:
    """The value, which must be a text."""
    if type(value) is str:
        return value
    raise RubyError(f"no implicit conversion of {kind(value)} into String")


def to_i(text: str, base: int = 10) -> int:
    """What begins with digits of a base is a number; everything else is 0."""
    if base == 10:
        return to_integer(text[:400])
    digits = _BASES.get(base)
    if digits is None:
        raise RubyError(f"to_i({base}) is not supported")
    match = re.match(rf"\s*([+-]?)(?:0[xXbBoO])?({digits}+)", text[:400])
    return int(match[1] + match[2], base) if match else 0


def to_f(text: str) -> float:
    """What begins with a number is one; everything else is 0.0."""
    return to_float(text[:400])


@lru_cache(256)
def _template(text: str) -> tuple[str | tuple[int | str, ...], ...]:
    parts: list[Any] = []
    at = 0
    for match in _BACK.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[3] == "\\":
            parts.append("\\")
        elif match[3] is not None:
            parts.append((match[3],))
        else:
            parts.append((int(match[1]) if match[1] else match[2],))
    parts.append(text[at:])
    return tuple(part for part in parts if part != "")


def expanded(template: str, match: re.Match[str]) -> str:
    r"""A replacement with \1, \0, \k<name> filled in."""
    if "\\" not in template:
        return template
    out: list[str] = []
    for part in _template(template):
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "&":
            out.append(match.group())
        elif part[0] == "`":
            out.append(match.string[: match.start()])
        elif part[0] == "'":
            out.append(match.string[match.end() :])
        else:
            name: Any = part[0]
            out.append("" if isinstance(name, int) and name > match.re.groups else match.group(name) or "")
    return "".join(out)


def substitute(text: str, pattern: Any, replacement: Any = None, block: Block | None = None, *, count: int = 0) -> str:
    """Sub (count 1) and gsub (count 0)."""
    if not is_pattern(pattern):
        pattern = re.compile(re.escape(need_text(pattern)))

    def one(match: re.Match[str]) -> str:
        if block is not None:
            remember(match)
            return interpolated(block.call(match.group()))
        if isinstance(replacement, dict):
            return interpolated(replacement.get(match.group()))
        return expanded(replacement, match)

    if block is None and not isinstance(replacement, (str, dict)):
        raise RubyError(f"no implicit conversion of {kind(replacement)} into String")
    if block is None and isinstance(replacement, str) and len(replacement) * (len(text) + 1) > 64 * TEXT_MAX:
        raise RubyError("the text is too long")
    if block is None and isinstance(replacement, str) and "\\" not in replacement:
        return str(pattern.sub(lambda _match: replacement, text, count))
    return str(pattern.sub(one, text, count))


def split(text: str, by: Any = None, limit: int = 0) -> list[str]:
    """By white space, a text or a pattern; empty ones at the end go away without a limit."""
    if by is None or (isinstance(by, str) and by == " "):
        parts = text.lstrip(SPACES).split(None, limit - 1) if limit > 0 else text.split()
    elif is_pattern(by):
        parts = _split_by(text, by, limit)
    elif need_text(by) == "":
        parts = list(text) if limit <= 0 else [*text[: limit - 1], *([text[limit - 1 :]] if len(text) >= limit else [])]
    else:
        parts = text.split(by, limit - 1 if limit > 0 else -1)
    if limit == 0:
        while parts and not parts[-1]:
            parts.pop()
    return parts


def _split_by(text: str, pattern: Any, limit: int) -> list[str]:
    parts: list[str] = []
    begin = 0
    for match in pattern.finditer(text):
        if 0 < limit <= len(parts) + 1:
            break
        if match.end() == match.start():
            if match.start() == 0 or match.start() >= len(text):
                continue
        elif match.end() == 0:
            continue
        parts.append(text[begin : match.start()])
        parts += [group for group in match.groups() if group is not None]
        begin = match.end()
    return [*parts, text[begin:]] if text else []


def slice_text(text: str, first: Any, second: Any = None) -> Any:
    """text[1], text[1, 2], text[1..2], text["part"], text[/pattern/, 1]."""
    if isinstance(first, Range):
        span = first.span(len(text))
        return None if span is None else text[span[0] : span[0] + span[1]]
    if isinstance(first, str):
        return first if first in text else None
    if is_pattern(first):
        match = remember(first.search(text))
        if match is None:
            return None
        group: Any = 0 if second is None else second
        if isinstance(group, int) and group > match.re.groups:
            return None
        return match.group(group)
    return piece(text, first, second)


def piece(items: Any, first: Any, second: Any = None) -> Any:
    """items[1] and items[1, 2] of a text or an array."""
    if isinstance(first, float):
        first = int(first)
    if isinstance(first, bool) or not isinstance(first, int):
        raise RubyError(f"no implicit conversion of {kind(first)} into Integer")
    size = len(items)
    if second is None:
        return items[first] if -size <= first < size else None
    begin = first + size if first < 0 else first
    if not 0 <= begin <= size or second < 0:
        return None
    return items[begin : begin + second]


def justify(text: str, width: int, pad: str = " ", *, where: str) -> str:
    """Ljust, rjust and center."""
    missing = width - len(text)
    if missing <= 0 or not pad:
        return text
    if width > 10_000:
        raise RubyError("argument too big")
    left = {"l": 0, "r": missing, "c": missing // 2}[where]
    right = missing - left
    filler = pad * (missing // len(pad) + 1)
    return filler[:left] + text + filler[:right]


@lru_cache(256)
def characters(spec: str) -> tuple[bool, tuple[str, ...]]:
    """The characters of a `tr` set: (negated, characters)."""
    negated = len(spec) > 1 and spec[0] == "^"
    spec = spec[1:] if negated else spec
    out: list[str] = []
    at = 0
    while at < len(spec):
        char = spec[at]
        if char == "\\" and at + 1 < len(spec):
            at += 1
            char = spec[at]
        elif at + 2 < len(spec) and spec[at + 1] == "-":
            low, high = ord(char), ord(spec[at + 2])
            if high < low:
                raise RubyError(f'invalid range "{char}-{spec[at + 2]}" in string transliteration')
            out += map(chr, range(low, high + 1))
            at += 3
            continue
        out.append(char)
        at += 1
    return negated, tuple(out)


def tr(text: str, old: str, new: str) -> str:
    """Replace characters by others."""
    negated, source = characters(old)
    _, target = characters(new) if not new.startswith("^") else (False, tuple(new))
    known: dict[str, str] = {}
    for index, char in enumerate(source):
        known.setdefault(char, target[min(index, len(target) - 1)] if target else "")
    if negated:
        last = target[-1] if target else ""
        return "".join([char if char in known else last for char in text])
    return "".join([known.get(char, char) for char in text])


def counted(text: str, spec: str) -> int:
    """How many characters are of a set."""
    negated, found = characters(spec)
    return sum((char in found) != negated for char in text)


def deleted(text: str, spec: str) -> str:
    """Without the characters of a set."""
    negated, found = characters(spec)
    return "".join([char for char in text if (char in found) == negated])


def squeezed(text: str, spec: str | None = None) -> str:
    """Runs of one character become one."""
    negated, found = characters(spec) if spec is not None else (True, ())
    out: list[str] = []
    for char in text:
        if not (out and out[-1] == char and (char in found) != negated):
            out.append(char)
    return "".join(out)


def scan(text: str, pattern: Any) -> list[Any]:
    """All matches: texts, or arrays of groups."""
    if not is_pattern(pattern):
        pattern = re.compile(re.escape(need_text(pattern)))
    if pattern.groups:
        return [list(match.groups()) for match in pattern.finditer(text)]
    return [match.group() for match in pattern.finditer(text)]
