"""Record accessors: `key`, `$.a.b[0].c` and `$['a'][0]["b.c"]` (docs.fluentd.org, API: record_accessor)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

_BRACKET: Final = re.compile(r"""\[(?:'([^']*)'|"([^"]*)"|(-?\d+))\]""")
_DOTTED: Final = re.compile(r"([^\[\]]*)((?:\[-?\d+\])*)")


class Accessor:
    """Reads, sets and removes one place of a record; a missing step on the way reads as None.

    path: the steps, strings and list indexes. Raises ValueError for a text that cannot be read.
    """

    __slots__ = ("_first", "_rest", "path", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.path = parse(text)
        self._first = self.path[0]
        self._rest = self.path[1:]

    def get(self, record: Record) -> Any:
        """Return the value, or None."""
        value = record.get(self._first)
        for step in self._rest:
            value = _step(value, step)
        return value

    def set(self, record: Record, value: object) -> None:
        """Set the value; where a container on the way is missing, nothing happens (as in Fluentd)."""
        holder = self._holder(record)
        last = self.path[-1]
        if isinstance(holder, dict) or _has_index(holder, last):
            holder[last] = value

    def delete(self, record: Record) -> Any:
        """Remove the value and return it, or None."""
        holder = self._holder(record)
        last = self.path[-1]
        if isinstance(holder, dict):
            return holder.pop(last, None)
        if _has_index(holder, last):
            return holder.pop(last)
        return None

    def _holder(self, record: Record) -> Any:
        value: Any = record
        for step in self.path[:-1]:
            value = _step(value, step)
        return value


def _step(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    return value[step] if _has_index(value, step) else None


def _has_index(value: Any, step: str | int) -> bool:
    return isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value)


def parse(text: str) -> tuple[str | int, ...]:
    """Split an accessor into its steps. Raises ValueError."""
    if text.startswith("$."):
        steps = _dotted(text)
    elif text.startswith("$["):
        steps = _brackets(text)
    else:
        return (text,)
    if not steps:
        raise ValueError(f'"{text}" names no key')
    return tuple(steps)


def _dotted(text: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in text[2:].split("."):
        match = _DOTTED.fullmatch(part)
        if match is None:
            raise ValueError(f'"{text}" has a bracket that is not an index')
        name, indexes = match.groups()
        if re.search(r"\s", name):
            raise ValueError(f'"{text}" has white space in a key; write it in brackets')
        if name:
            steps.append(name)
        steps.extend(int(index) for index in re.findall(r"-?\d+", indexes))
    return steps


def _brackets(text: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _BRACKET.match(text, at)
        if match is None:
            raise ValueError(f'"{text}" is not closed or quoted as an accessor must be')
        single, double, index = match.groups()
        steps.append(int(index) if index is not None else single if single is not None else double)
        at = match.end()
    return steps
