r"""Ruby's Dir.glob, for `path` and `exclude_path` (docs.ruby-lang.org, Dir.glob).

`*` and `?` match within a name and not a leading dot; `[...]` a set, negated by ^ or !; `{a,b}` alternatives; `**/`
any number of folders, hidden ones and links left out; a backslash takes the next character as it is.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC: Final = re.compile(r"[*?\[{\\]")
_EXTENDED: Final = re.compile(r"[*?]|\[.*\]")
_BRACES: Final = re.compile(r"\{.*,.*\}")
_MOST: Final = 4096
"""Texts that a pattern with braces may stand for."""


def is_glob(path: str, policy: str) -> bool:
    """Whether a path is a pattern under a glob_policy (docs.fluentd.org, Input Plugins, tail)."""
    if policy == "backward_compatible":
        return "*" in path
    return bool(_EXTENDED.search(path) or (policy == "always" and _BRACES.search(path)))


def has_braces(path: str) -> bool:
    """Whether a path has alternatives."""
    return _BRACES.search(path) is not None


def is_extended(path: str) -> bool:
    """Whether a path has a wildcard of glob_policy extended."""
    return _EXTENDED.search(path) is not None


def expand_braces(pattern: str) -> list[str]:
    """The patterns that a pattern with `{a,b}` stands for. Raises ValueError when they are too many."""
    out: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        found = _first_braces(text)
        if found is None:
            out.append(text)
        else:
            start, end, parts = found
            waiting += [text[:start] + part + text[end:] for part in reversed(parts)]
        if len(out) + len(waiting) > _MOST:
            raise ValueError(f"the pattern {pattern} stands for more than {_MOST} paths")
    return out


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    depth, start, part = 0, -1, 0
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            if depth == 0:
                start, part, parts = at, at + 1, []
            depth += 1
        elif char == "," and depth == 1:
            parts.append(text[part:at])
            part = at + 1
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                return start, at + 1, [*parts, text[part:at]]
        at += 1
    return None


@cache
def name_pattern(component: str) -> re.Pattern[str]:
    """The pattern of one name. Raises ValueError."""
    text = _translate(component)
    if component[:1] in {"*", "?", "["}:
        text = r"(?!\.)" + text
    try:
        return re.compile(text, re.DOTALL)
    except re.error as error:
        raise ValueError(f"the pattern {component} cannot be read: {error}") from None


def _translate(component: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(component):
        char = component[at]
        at += 1
        if char == "*":
            if out[-1:] != ["[^/]*"]:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "\\" and at < len(component):
            out.append(re.escape(component[at]))
            at += 1
        elif char == "[" and (end := component.find("]", at + 1)) > 0:
            inner = component[at:end]
            negated = inner[0] in "!^"
            inner = re.sub(r"([\\\[&~|])", r"\\\1", inner[1:] if negated else inner)
            out.append(f"[{'^' if negated else ''}{inner}]")
            at = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def path_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern that matches the paths that `walk` finds for one without braces. Raises ValueError."""
    out: list[str] = []
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**" and not last:
            out.append(r"(?:(?!\.)[^/]+/)*")
            continue
        out.append(name_pattern(part).pattern)
        if not last:
            out.append("/")
    return re.compile("".join(out), re.DOTALL)


def walk(pattern: str, visited: Callable[[str, str], None]) -> Iterator[str]:
    """Yield the paths that a pattern without braces matches, sorted within each folder.

    visited: called with each folder that was looked through, and the part of the pattern that names in it must match.
    """
    root = "/" if pattern.startswith("/") else ""
    yield from _walk(root, pattern.lstrip("/").split("/"), visited)


def _walk(folder: str, parts: list[str], visited: Callable[[str, str], None]) -> Iterator[str]:
    part, rest = parts[0], parts[1:]
    if part == "**" and rest:
        yield from _walk(folder, rest, visited)
        for name, is_folder in _scan(folder):
            if is_folder and not name.startswith("."):
                yield from _walk(f"{folder}{name}/", parts, visited)
        visited(folder, "*")
        return
    if not MAGIC.search(part):
        path = folder + part
        if rest:
            yield from _walk(path + "/", rest, visited)
        else:
            visited(folder, part)
            if os.path.lexists(path):
                yield path
        return
    visited(folder, part)
    matches = name_pattern(part).fullmatch
    for name, _is_folder in _scan(folder):
        if matches(name):
            if rest:
                yield from _walk(f"{folder}{name}/", rest, visited)
            else:
                yield folder + name


def _scan(folder: str) -> list[tuple[str, bool]]:
    """Names in a folder, sorted, each with whether it is one itself."""
    try:
        with os.scandir(folder or ".") as entries:
            return sorted([(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries])
    except OSError:
        return []
