"""What is in buffers on disk, for the command line: nothing runs, nothing is repaired.

`peek` only reads, also beside a process that writes. `Held` takes the locks, as a process does: what it gives away
is written and brought to the disk elsewhere before it is noted as gone here.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import Error
from headrace.pipeline import codec, segment
from headrace.pipeline.fluentfiles import META, ChunkMeta, read_meta, unescaped
from headrace.pipeline.journal import Journal
from headrace.pipeline.placeholders import Meta
from headrace.pipeline.recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.pipeline.files import Files
    from headrace.pipeline.fluentfiles import Location
    from headrace.pipeline.places import Place

_SLOT: Final = re.compile(r"journal\.[0-9]+")
_SEGMENT: Final = re.compile(r"([0-9]{16})\.journal")


class Stored(NamedTuple):
    """A chunk on disk. created: seconds since the epoch. events: -1 where nothing tells. kind: how it is kept."""

    chunk_id: bytes
    meta: Meta
    created: float
    events: int
    size: int
    kind: str
    path: str
    parts: tuple[tuple[str, int, int], ...]
    """(path, offset, length) of its pieces; (path, 0, -1) is a whole file."""
    codec: int


def peek(folder: str, files: Files) -> list[Stored]:
    """The chunks in the journals of a buffer's folder, in the order in which they were begun. Raises OSError."""
    found: list[Stored] = []
    for name in files.listdir(folder):
        if _SLOT.fullmatch(name):
            found += _journal(os.path.join(folder, name), files)
    return sorted(found, key=lambda one: one.created)


def _journal(folder: str, files: Files) -> Iterator[Stored]:
    openings: dict[int, segment.Opened] = {}
    pieces: dict[int, dict[int, tuple[str, int, int, int]]] = {}
    purged: set[int] = set()
    for name in files.listdir(folder):
        match = _SEGMENT.fullmatch(name)
        if match is None:
            continue
        path = os.path.join(folder, name)
        try:
            data = files.content(path)
        except FileNotFoundError:  # it was removed while we looked
            continue
        for span in segment.scan(data, int(match.group(1))):
            for operation in segment.operations(data, span) if span.good else ():
                if isinstance(operation, segment.Opened):
                    openings[operation.ref] = operation
                elif isinstance(operation, segment.Appended):
                    row = (path, operation.offset, operation.length, operation.events)
                    pieces.setdefault(operation.ref, {})[operation.piece] = row
                elif isinstance(operation, segment.Purged):
                    purged.add(operation.ref)
    for ref in sorted(openings.keys() & pieces.keys() - purged):
        opening = openings[ref]
        rows = [row for _number, row in sorted(pieces[ref].items())]
        yield Stored(
            opening.chunk_id,
            Meta(opening.tag, opening.timekey, opening.variables),
            opening.created / 1e9,
            sum(row[3] for row in rows),
            sum(row[2] for row in rows),
            "journal",
            folder,
            tuple(row[:3] for row in rows),
            opening.codec,
        )


def peek_files(place: Location, files: Files, key: str | None = None) -> list[Stored]:
    """The chunks in Fluentd's files of one place; damaged ones as far as their names tell. key: as for `Adopter`."""
    found: list[Stored] = []
    for name in files.listdir(place.folder):
        parsed = place.parse(name)
        if parsed is None:
            continue
        path = os.path.join(place.folder, name)
        try:
            told = _told(place, path, parsed, files, key)
            size = files.size(path)
            kind = codec.sniffed(files.content(path)[:4]) if size else codec.TEXT
        except FileNotFoundError:
            continue
        whole = ((path, 0, -1),)
        kept = "file_single" if place.single else "file"
        found.append(Stored(told.chunk_id, told.meta, told.created, told.events, size, kept, path, whole, kind))
    return sorted(found, key=lambda one: one.created)


def _told(place: Location, path: str, parsed: tuple[str, bytes, str], files: Files, key: str | None) -> ChunkMeta:
    _state, chunk_id, name = parsed
    changed = files.modified(path)
    meta = Meta()
    if place.single:
        value = unescaped(name)
        meta = Meta(None, None, {key: value}) if key is not None else Meta(value)
    else:
        try:
            return read_meta(files.content(path + META))
        except (ValueError, FileNotFoundError):
            pass  # what can be told without it
    return ChunkMeta(chunk_id, -1, changed, changed, meta)


def content(one: Stored, files: Files) -> bytes:
    """What a chunk holds, decompressed. Raises OSError, ValueError."""
    parts = []
    for path, offset, length in one.parts:
        if length < 0:
            parts.append(files.content(path))
            continue
        fd = files.open_read(path)
        try:
            parts.append(files.read_at(fd, length, offset))
        finally:
            files.close(fd)
    return codec.decompress(one.codec, b"".join(parts))


class Held:
    """The journals of a buffer's folder, with their locks. Raises Error when a process has one of them."""

    def __init__(
        self, folder: str, files: Files, log: logging.Logger, *, backup: str, dir_mode: int, mode: int
    ) -> None:
        self._journals: list[Journal] = []
        self._found: list[tuple[Journal, segment.Opened, Place]] = []
        try:
            for name in files.listdir(folder):
                path = os.path.join(folder, name)
                if not _SLOT.fullmatch(name) or not any(map(_SEGMENT.fullmatch, files.listdir(path))):
                    continue
                lock = files.lock(os.path.join(path, "lock"), mode)
                if lock is None:
                    raise Error(f"{path} is in use: stop the headrace that runs with it first", kind="locked")
                journal = Journal(path, lock, files, log, mode=mode)
                self._journals.append(journal)
                for found in Recovery(journal, backup, dir_mode, mode).run():
                    assert found.opening is not None
                    assert found.place is not None
                    self._found.append((journal, found.opening, found.place))
        except BaseException:
            self.close()
            raise
        self._found.sort(key=lambda one: one[1].created)

    def chunks(self) -> Sequence[tuple[Stored, Place]]:
        """The chunks, in the order in which they were begun, and their places for `read` and `forget`."""
        return [
            (
                Stored(
                    opening.chunk_id,
                    Meta(opening.tag, opening.timekey, opening.variables),
                    opening.created / 1e9,
                    place.events,
                    place.size,
                    "journal",
                    journal.folder,
                    (),
                    opening.codec,
                ),
                place,
            )
            for journal, opening, place in self._found
        ]

    @staticmethod
    def read(one: Stored, place: Place) -> bytes:
        """What a chunk holds, decompressed. Raises OSError, ValueError."""
        return codec.decompress(one.codec, b"".join(place.journal.read(place)))

    @staticmethod
    def forget(place: Place) -> None:
        """Note that a chunk is somewhere else now."""
        place.journal.purge(place)

    def close(self) -> None:
        """Remove what nobody needs any more, bring the rest to the disk, give up the locks."""
        for journal in self._journals:
            journal.collect()
            journal.close()
