"""Fluentd's buffer files: where they are, how they are called, and what is in a .meta file. No I/O.

    buf_file          PATH/buffer.b<id>.log   a staged chunk, PATH/buffer.q<id>.log a queued one, each with .log.meta
    buf_file_single   PATH/fsb.<key>.b<id>.buf or .q<id>.buf; the key is the tag, or the value of the one chunk key

A .meta file is `c1 00`, a length (u32, big endian) and a msgpack map: id, s (events), c and m (when it was begun and
last changed, seconds since the epoch), timekey, tag, variables, seq. Before Fluentd 1.15 it was the map alone.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from headrace.pipeline.event import pack_value, unpack_value
from headrace.pipeline.placeholders import Meta, as_text

if TYPE_CHECKING:
    from collections.abc import Iterable

STAGED: Final = "b"
QUEUED: Final = "q"
META: Final = ".meta"
SINGLE_SUFFIX: Final = ".buf"
SINGLE_PREFIX: Final = "fsb"

_HEADER: Final = b"\xc1\x00"
_STATE: Final = re.compile(r"\.([bq])([0-9a-f]+)\.[^/]*\Z")
_KEPT: Final = frozenset(b"-_.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OWN: Final = ("id", "s", "c", "m", "timekey", "tag", "variables", "seq")


class Location(NamedTuple):
    """Where one buffer's files are: FOLDER/PREFIX.*SUFFIX. single: buf_file_single's, without .meta files."""

    folder: str
    prefix: str
    suffix: str
    single: bool = False

    def parse(self, name: str) -> tuple[str, bytes, str] | None:
        """Return (state, chunk id, what stands before it) of a file's name; None when it is no chunk."""
        if not name.startswith(self.prefix + ".") or not name.endswith(self.suffix):
            return None
        match = _STATE.search(name)
        if match is None or len(match.group(2)) % 2:
            return None
        return match.group(1), bytes.fromhex(match.group(2)), name[len(self.prefix) + 1 : match.start()]

    def name(self, state: str, chunk_id: bytes, key: str = "") -> str:
        """Return the name of a chunk's file. key: of buf_file_single, as `escaped` makes it."""
        middle = f"{key}." if self.single else ""
        return f"{self.prefix}.{middle}{state}{chunk_id.hex()}{self.suffix}"


@dataclass(slots=True)
class ChunkMeta:
    """What a .meta file says. created, modified: seconds since the epoch. more: what others have added."""

    chunk_id: bytes
    events: int
    created: float
    modified: float
    meta: Meta
    more: dict[str, Any] = field(default_factory=dict)


def read_meta(data: bytes) -> ChunkMeta:
    """Read a .meta file. Raises ValueError when it is damaged, or lacks what Fluentd always writes."""
    if data[:2] == _HEADER and len(data) > 6:
        size = struct.unpack_from(">I", data, 2)[0]
        found = unpack_value(data[6 : 6 + size])
    else:
        found = unpack_value(data)
    if not isinstance(found, dict):
        raise ValueError("it is no map")  # noqa: TRY004 - damaged data, as everything else that is wrong in them
    chunk_id, events = found.get("id"), found.get("s", 0)
    if isinstance(chunk_id, str):
        chunk_id = chunk_id.encode("utf-8", "surrogateescape")
    if not isinstance(chunk_id, bytes) or not chunk_id:
        raise ValueError("it has no id")
    times = [found.get(name) for name in ("c", "m")]
    if not all(isinstance(one, (int, float)) and one > 0 for one in times) or not isinstance(events, int):
        raise ValueError("it has no times")
    tag, timekey, variables = (found.get(name) for name in ("tag", "timekey", "variables"))
    if not isinstance(tag, str | None) or not isinstance(timekey, int | None) or not isinstance(variables, dict | None):
        raise ValueError("its chunk keys are damaged")  # noqa: TRY004 - likewise
    more = {name: value for name, value in found.items() if name not in _OWN}
    return ChunkMeta(chunk_id, events, float(times[0] or 0), float(times[1] or 0), Meta(tag, timekey, variables), more)


def write_meta(told: ChunkMeta) -> bytes:
    """Return the content of a .meta file."""
    meta = told.meta
    body = pack_value(
        {
            **told.more,
            "timekey": meta.timekey,
            "tag": meta.tag,
            "variables": meta.variables,
            "seq": 0,
            "id": told.chunk_id,
            "s": told.events,
            "c": told.created,
            "m": told.modified,
        }
    )
    return _HEADER + struct.pack(">I", len(body)) + body


def escaped(value: object) -> str:
    """Return a tag or value as buf_file_single puts it into a name: other bytes than letters, digits, -_. as %XX."""
    data = as_text(value).encode("utf-8", "surrogateescape")
    return "".join(chr(one) if one in _KEPT else f"%{one:02X}" for one in data)


def unescaped(key: str) -> str:
    """The inverse of `escaped`."""
    return unquote_to_bytes(key).decode("utf-8", "surrogateescape")


def locations(
    path: str, suffix: str, *, worker: int, workers: int, names: Iterable[str], single: bool
) -> list[Location]:
    """Where a buffer with a `path` of its own has its files, as Fluentd finds them (buf_file.rb, configure).

    worker: ours, of `workers`. names: those in the folder `path`. Worker 0 also looks where no worker is
    responsible: in the folder itself, and in those of workers that there are no more.
    """
    prefix = SINGLE_PREFIX if single else "buffer"
    suffix = SINGLE_SUFFIX if single else suffix
    if os.path.isdir(path) or (not os.path.exists(path) and ".*" not in path):
        own = os.path.join(path, f"worker{worker}") if workers > 1 else path
        found = [Location(own, prefix, suffix, single)]
        if worker == 0:
            if workers > 1:
                found.append(Location(path, prefix, suffix, single))
            for name in names:
                number = name.removeprefix("worker")
                if number != name and number.isdigit() and (workers == 1 or int(number) >= workers):
                    found.append(Location(os.path.join(path, name), prefix, suffix, single))
        return found
    if worker:
        return []
    folder, base = os.path.split(path)
    before, star, after = base.partition(".*.")
    if star:
        return [Location(folder, prefix if single else before, suffix if single else f".{after}", single)]
    return [Location(folder, base.removesuffix(".*"), suffix, single)]
