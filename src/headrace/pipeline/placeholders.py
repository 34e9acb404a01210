"""Chunk keys, and the placeholders that they allow (docs.fluentd.org, Config: Buffer Section, "Placeholders").

`ChunkKeys` says by what events are grouped into chunks, and puts a chunk's values into texts:
`${tag}`, `${tag[1]}`, `${tag[-1]}`, `${key}`, `${$.nested.key}`, `${chunk_id}`, and the conversions of
strftime (of the first second of the timekey) when `time` is a chunk key. A text that names what no chunk
key provides is refused when the configuration is read, never when a chunk is flushed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from headrace.pipeline.accessor import Accessor
from headrace.pipeline.event import NS, Record, pack_value
from headrace.pipeline.timezone import offset, strftime, zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import tzinfo

_PLACEHOLDER: Final = re.compile(r"\$\{(chunk_id|tag(?:\[(-?\d+)\])?|[-_.@$a-zA-Z0-9]+)\}")
_TIME: Final = re.compile(r"%[-_0^#]*(?:[YmHMSjLNyTs]|[dFDe](?![0-9a-fA-F]))")
_KEY: Final = re.compile(r"[-_.@a-zA-Z0-9]+")
_FINEST: Final = ((1, "second", "%S"), (60, "minute", "%M"), (3600, "hour", "%H"), (86400, "day", "%d"))
_PLAIN_TYPES: Final = (str, type(None))


class Meta:
    """What the events of a chunk have in common. tag, timekey (seconds since the epoch), variables by key."""

    __slots__ = ("tag", "timekey", "variables")

    def __init__(
        self, tag: str | None = None, timekey: int | None = None, variables: dict[str, Any] | None = None
    ) -> None:
        self.tag = tag
        self.timekey = timekey
        self.variables = variables

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Meta) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.tag, self.timekey))

    def __repr__(self) -> str:
        return f"Meta(tag={self.tag!r}, timekey={self.timekey!r}, variables={self.variables!r})"

    def _all(self) -> tuple[object, ...]:
        return (self.tag, self.timekey, self.variables)


class ChunkKeys:
    """The chunk keys of one output. Raises ValueError for a key that cannot be one.

    timekey: seconds, needed when `time` is among the keys. timezone: of the time slices and their texts.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        timekey: float | None = None,
        use_utc: bool = False,
        timezone: str | None = None,
    ) -> None:
        self.names = tuple(names)
        self.tag = "tag" in self.names
        self.timekey = _whole_timekey(timekey) if "time" in self.names else None
        self.zone: tzinfo | None = zone("+0000" if use_utc else timezone)
        self.fields = tuple(name for name in self.names if name not in {"tag", "time"})
        self._accessors = [(name, _accessor(name)) for name in self.fields]
        self.simple = self.timekey is None and not self.fields
        """All events of a batch have the same metadata."""
        self._offset = (-1, 0)

    def of(self, tag: str, time: int, record: Record) -> tuple[object, Meta]:
        """Return what to group an event by (hashable), and its metadata."""
        variables = {name: accessor.get(record) for name, accessor in self._accessors} or None
        meta = Meta(tag if self.tag else None, self.slice_of(time), variables)
        return self.group(meta), meta

    def of_tag(self, tag: str) -> tuple[object, Meta]:
        """As `of`, for simple keys, where neither time nor record counts."""
        meta = Meta(tag if self.tag else None)
        return self.group(meta), meta

    @staticmethod
    def group(meta: Meta) -> object:
        """What chunks with this metadata are told apart by."""
        if meta.variables is None:
            return (meta.tag, meta.timekey)
        return (meta.tag, meta.timekey, *map(_hashable, meta.variables.values()))

    def slice_of(self, time: int) -> int | None:
        """First second of the time slice that a moment (ns) belongs to; None without `time`."""
        if self.timekey is None:
            return None
        seconds = time // NS
        quarter = seconds // 900
        if self._offset[0] != quarter:  # offsets change at quarters of an hour at most
            self._offset = (quarter, offset(seconds, self.zone))
        return seconds - (seconds + self._offset[1]) % self.timekey

    def extract(self, text: str, meta: Meta, chunk_id: bytes) -> str:
        """Put a chunk's values into a text. What no chunk key provides stays as it is."""
        out: list[str] = []
        for literal, name, index in split(text):
            if literal:
                timed = self.timekey is not None and meta.timekey is not None and "%" in literal
                out.append(strftime(meta.timekey or 0, self.zone, literal) if timed else literal)
            if name is not None:
                out.append(self._value(name, index, meta, chunk_id))
        return "".join(out)

    def _value(self, name: str, index: int | None, meta: Meta, chunk_id: bytes) -> str:
        if name == "chunk_id":
            return chunk_id.hex()
        if name.startswith("tag") and self.tag and name == ("tag" if index is None else f"tag[{index}]"):
            tag = meta.tag or ""
            if index is None:
                return tag
            parts = tag.split(".")
            return parts[index] if -len(parts) <= index < len(parts) else ""
        if meta.variables is not None and name in meta.variables:
            return as_text(meta.variables[name])
        return f"${{{name}}}"

    def unresolvable(self, value: object) -> Iterator[str]:
        """Yield a sentence for each placeholder in a text (or list, or dict) that no chunk key provides."""
        for text in _texts(value):
            for literal, name, _index in split(text):
                if literal and self.timekey is None and (match := _TIME.search(literal)):
                    yield (
                        f'has the time placeholder "{match.group()}", but "time" is not a chunk key: '
                        "<buffer time> with timekey"
                    )
                if name is None or name == "chunk_id" or name in self.fields:
                    continue
                if name == "tag" or name.startswith("tag["):
                    if not self.tag:
                        yield f'has the placeholder "${{{name}}}", but "tag" is not a chunk key: <buffer tag>'
                else:
                    yield f'has the placeholder "${{{name}}}", but "{name}" is not a chunk key: <buffer {name}>'

    def missing_placeholders(self, text: str) -> Iterator[str]:
        """Yield a sentence for each chunk key that a text does not name."""
        used = {name for _literal, name, _index in split(text) if name is not None}
        if self.tag and not any(name == "tag" or name.startswith("tag[") for name in used):
            yield 'does not have "${tag}", which is a chunk key'
        for name in self.fields:
            if name not in used:
                yield f'does not have "${{{name}}}", which is a chunk key'
        if self.timekey is not None:
            base = 1451606400  # 2016-01-01 00:00:00 UTC, where every unit begins
            utc = zone("+0000")
            start = strftime(base, utc, text)
            for seconds, title, example in _FINEST:
                if strftime(base + seconds, utc, text) != start:
                    if self.timekey < seconds:
                        yield f"does not tell apart the time slices: timekey {self.timekey} needs less than a {title}"
                    return
                if self.timekey <= seconds:
                    yield f'has no placeholder for the {title}, such as "{example}", which timekey {self.timekey} needs'
                    return


@lru_cache(maxsize=1024)
def split(text: str) -> tuple[tuple[str, str | None, int | None], ...]:
    """Cut a text into (literal before, placeholder or None, tag index or None)."""
    parts: list[tuple[str, str | None, int | None]] = []
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        index = match.group(2)
        parts.append((text[at : match.start()], match.group(1), int(index) if index is not None else None))
        at = match.end()
    if at < len(text):
        parts.append((text[at:], None, None))
    return tuple(parts)


def as_text(value: object) -> str:
    """Return a record's value as a placeholder shows it; None is empty, containers are JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (dict, list)):
        try:
            return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:
            return repr(value)
    return str(value)


def _hashable(value: object) -> object:
    """Tell values apart by type too: 1, 1.0 and true are equal in Python."""
    if isinstance(value, _PLAIN_TYPES):
        return value
    if isinstance(value, (int, float, bytes)):
        return (type(value).__name__, value)
    return pack_value(value)


def _accessor(name: str) -> Accessor:
    if name.startswith("$["):
        raise ValueError(f'chunk key "{name}": bracket notation is not allowed, write $.a.b')
    if not name.startswith("$.") and not _KEY.fullmatch(name):
        raise ValueError(f'chunk key "{name}" has a character that a chunk key cannot have')
    return Accessor(name)


def _whole_timekey(timekey: float | None) -> int:
    if timekey is None:
        raise ValueError('"time" is a chunk key, but timekey is not configured')
    if timekey < 1:
        raise ValueError(f"timekey must be at least one second, not {timekey:g}")
    return int(timekey)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
