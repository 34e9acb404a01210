"""Chunks that lie as files in Fluentd's layout: taken over where they are, delivered, and only then removed.

Two kinds of places hold them: the folders of a file buffer in which Fluentd ran before, and the `replay` folder of an
output's dead letters, where a worker also leaves what it had in memory at a reload (handover.py). A file is its chunk's
storage as long as the chunk lives, so taking it over changes nothing on the disk: whenever the process is killed, the
files are what they were, and the next start (of Fluentd too) finds all that is not yet delivered. What was queued comes
before what was staged, the older first.

Nothing has two owners: the lock of a place is held while its files are ours, and files that another process has open
(a Fluentd that still runs) are left alone until it ends.

Damage is found here, not at delivery. Of a chunk that is cut short the whole records are delivered; the rest, or a
chunk of which nothing can be told, goes to the backup folder, with one line that names it and the time it is from.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline import codec
from headrace.pipeline.backup import REPLAYED
from headrace.pipeline.chunk import Chunk
from headrace.pipeline.counting import count_values
from headrace.pipeline.event import unpacker
from headrace.pipeline.fluentfiles import META, QUEUED, ChunkMeta, Location, read_meta, unescaped, write_meta
from headrace.pipeline.placeholders import Meta
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from headrace.pipeline.backup import Backup
    from headrace.pipeline.buffer import Write
    from headrace.pipeline.files import Files
    from headrace.pipeline.placeholders import ChunkKeys

_ENTRY: Final = 0x92
_EVENT_TIME: Final = 0xD7
_MAPS: Final = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])


class Adopted:
    """The file of a chunk. told: what is known of it; `told.more` are the notes of a dead letter."""

    __slots__ = ("compressed", "path", "single", "told")

    def __init__(self, path: str, told: ChunkMeta, *, compressed: int, single: bool) -> None:
        self.path = path
        self.told = told
        self.compressed = compressed
        self.single = single


class AdoptedStore:
    """The store of adopted chunks: what `chunk.read` and the end of a chunk come to."""

    persistent = True

    def __init__(self, files: Files, log: logging.Logger) -> None:
        self.files = files
        self.log = log
        self.gone: list[Adopted] = []
        """Delivered, but still there: the disk did not let them be removed."""

    def read(self, chunk: Chunk) -> bytes:
        """Return the content, decompressed. Raises OSError, ValueError."""
        assert isinstance(chunk.place, Adopted)
        return codec.decompress(chunk.place.compressed, self.files.content(chunk.place.path))

    def purge(self, chunk: Chunk) -> None:
        """Remove the files. Never raises: what cannot be removed now is removed later."""
        if isinstance(chunk.place, Adopted):
            self.gone.append(chunk.place)
            self.sweep()

    def sweep(self) -> None:
        """Remove the files of chunks that are gone."""
        for place in list(self.gone):
            try:
                self.files.unlink(place.path)  # first: a .meta alone says nothing
                if not place.single:
                    self.files.unlink(place.path + META)
            except OSError as error:
                self.log.warning("%s is delivered, but cannot be removed: %s", place.path, error)
                return
            self.gone.remove(place)

    def write(self, writes: Sequence[Write], batch_id: bytes | None) -> None:
        """Refuse: nothing is added to these chunks."""
        raise OSError("nothing is added to chunks that were taken over")

    def seal(self, chunk: Chunk) -> None:
        """Do nothing: they are complete."""

    def seen(self, batch_id: bytes, *, own: bool, fsync: bool | None = None) -> bool:
        """Whether a batch is known here: none is."""
        return False

    def acknowledged(self, fsync: bool | None = None) -> Awaitable[None] | None:
        """Return None: they are on the disk."""
        return None

    async def recover(self, keys: ChunkKeys, since: float) -> list[Chunk]:
        """Return nothing: see Adopter.look."""
        return []

    def close(self) -> None:
        """Remove what is left to be removed."""
        self.sweep()


class Adopter:
    """Finds and judges the files of one output.

    places: where to look. packed: whether chunks hold the msgpack stream of events. key: the chunk key in the names
    of buf_file_single's files; None when that is the tag. backup: where damaged ones go; None removes them.
    """

    def __init__(
        self,
        places: Sequence[Location],
        *,
        files: Files,
        log: logging.Logger,
        keys: ChunkKeys,
        packed: bool,
        key: str | None,
        backup: Backup | None,
        mode: int,
    ) -> None:
        self.store = AdoptedStore(files, log)
        self.damaged = 0
        """Chunks that went to the backup, wholly or in part."""
        self._places = list(dict.fromkeys(places))
        self._files = files
        self._log = log
        self._keys = keys
        self._packed = packed
        self._key = key
        self._backup = backup
        self._mode = mode
        self._locks: dict[Location, int] = {}
        self._held: dict[str, Chunk] = {}
        self._swept: set[Location] = set()
        self._troubles = Throttle(burst=3)
        self._busy = Throttle(burst=1)

    def also(self, places: Sequence[Location]) -> None:
        """Look in these places too from now on."""
        self._places = list(dict.fromkeys([*self._places, *places]))

    def look(self, since: float) -> list[Chunk]:
        """Return the chunks that were not there before, in the order in which they are to be delivered."""
        self.store.sweep()
        self._held = {path: chunk for path, chunk in self._held.items() if chunk.state != "gone" or self._stays(path)}
        found: list[tuple[bool, float, Chunk]] = []
        for place in self._places:
            try:
                found += self._look(place, since)
            except OSError as error:
                self._troubles.log(self._log, logging.ERROR, "%s cannot be looked through: %s", place.folder, error)
        found.sort(key=lambda one: one[:2])
        chunks = [chunk for _staged, _time, chunk in found]
        if chunks:
            events = sum(chunk.count for chunk in chunks)
            self._log.info(
                "%d chunks with %d events are taken over from files in Fluentd's layout", len(chunks), events
            )
        return chunks

    def close(self) -> None:
        """Give up the locks."""
        self.store.close()
        for lock in self._locks.values():
            self._files.close(lock)
        self._locks.clear()

    def _stays(self, path: str) -> bool:
        return any(place.path == path for place in self.store.gone)

    def _look(self, place: Location, since: float) -> list[tuple[bool, float, Chunk]]:
        files = self._files
        fresh = []
        names = files.listdir(place.folder)
        for name in names:
            parsed = place.parse(name)
            path = os.path.join(place.folder, name)
            if parsed is not None and path not in self._held and files.is_file(path):
                fresh.append((path, parsed))
        orphans = self._orphans(place, names)
        if not (fresh or orphans) or not self._lock(place):
            return []
        if (pid := files.opened_by([path for path, _parsed in fresh])) is not None:
            message = "the chunks in %s are those of process %d, which has them open: they are taken over when it ends"
            self._busy.log(self._log, logging.WARNING, message, place.folder, pid)
            return []
        for path in orphans:
            files.unlink(path)
        found = []
        for path, (state, chunk_id, key) in fresh:
            try:
                chunk = self._take(place, path, chunk_id, key, since)
            except OSError as error:  # its neighbours are not to wait for it; it is looked at again
                self._troubles.log(self._log, logging.ERROR, "%s cannot be taken over now: %s", path, error)
                continue
            if chunk is not None:
                self._held[path] = chunk
                assert isinstance(chunk.place, Adopted)
                found.append((state != QUEUED, chunk.place.told.modified, chunk))
        return found

    def _orphans(self, place: Location, names: Sequence[str]) -> list[str]:
        """The .meta files, at the first look, whose chunks are gone: a kill came between the two removals."""
        if place in self._swept or place.prefix == REPLAYED:
            return []
        self._swept.add(place)
        there = set(names)
        metas = [name for name in names if name.endswith(META) and name.removesuffix(META) not in there]
        return [os.path.join(place.folder, name) for name in metas if place.parse(name.removesuffix(META))]

    def _lock(self, place: Location) -> bool:
        if place not in self._locks:
            lock = self._files.lock(os.path.join(place.folder, f".{place.prefix}.headrace.lock"), self._mode)
            if lock is None:  # an elder of ours still has them
                return False
            self._locks[place] = lock
        return True

    def _take(self, place: Location, path: str, chunk_id: bytes, key: str, since: float) -> Chunk | None:
        """Judge one file; None when nothing of it can be delivered."""
        files = self._files
        changed = files.modified(path)
        data = files.content(path)
        if place.single:
            value = unescaped(key)
            meta = Meta(None, None, {self._key: value}) if self._key is not None else Meta(value)
            told = ChunkMeta(chunk_id, -1, changed, changed, meta)
        else:
            try:
                raw = files.content(path + META)
            except FileNotFoundError:
                if self._keys.names:
                    self._quarantine(path, chunk_id, (None, changed), "its .meta file is missing")
                    return None
                told = ChunkMeta(chunk_id, -1, changed, changed, Meta())
            else:
                try:
                    told = read_meta(raw)
                except ValueError as error:
                    self._quarantine(path, chunk_id, (None, changed), f"its .meta file is damaged: {error}")
                    return None
        if not data:
            if told.events == 0:  # it had just been begun
                self._remove(path)
            else:
                self._quarantine(path, chunk_id, (told.created, told.modified), "it is empty")
            return None
        kind = codec.sniffed(data)
        text, cut = (data, None) if kind == codec.TEXT else codec.salvage(kind, data)
        count, end = whole_entries(text, told.events) if self._packed else whole_lines(text, told.events)
        if not count:
            self._quarantine(path, chunk_id, (told.created, told.modified), "it holds no whole record")
            return None
        if end < len(text) or cut is not None or 0 <= count < told.events:
            self._mend(path, place, told, text, (count, end))
            kind = codec.TEXT
        told.events = count
        return self._chunk(Adopted(path, told, compressed=kind, single=place.single), len(data), since)

    def _chunk(self, place: Adopted, size: int, since: float) -> Chunk:
        told = place.told
        meta, created = told.meta, round(told.created * 1e9)
        chunk = Chunk(self.store, self._keys, self._keys.group(meta), meta, created, since, codec.TEXT)
        chunk.id = told.chunk_id
        chunk.parts = None
        chunk.place = place
        chunk.size = size
        chunk.count = told.events
        return chunk

    # Damage.

    def _mend(self, path: str, place: Location, told: ChunkMeta, text: bytes, whole: tuple[int, int]) -> None:
        """Bring what is behind the whole records to the backup, and write the file anew without it."""
        count, end = whole
        self.damaged += 1
        where = ""
        if self._backup is not None and end < len(text):
            where = f"; the rest is in {self._backup.save(f'{told.chunk_id.hex()}.damaged', text[end:])}"
        lost = (
            f"{told.events - count} of {told.events} events are missing"
            if told.events > count
            else "its end is cut off"
        )
        self._log.error(
            "%s is damaged, written between %s and %s: %s, %d are delivered%s",
            path, moment(told.created), moment(told.modified), lost, count, where,
        )  # fmt: skip
        told.events = count
        self._files.replace(path, text[:end], self._mode)
        if not place.single:
            self._files.replace(path + META, write_meta(told), self._mode)

    def _quarantine(self, path: str, chunk_id: bytes, times: tuple[float | None, float | None], why: str) -> None:
        """Move a chunk's files to the backup."""
        self.damaged += 1
        where = "thrown away (disable_chunk_backup)"
        if self._backup is not None:
            where = f"moved to {self._backup.take(path, f'{chunk_id.hex()}.log')}"
            self._backup.take(path + META, f"{chunk_id.hex()}.log{META}")
        self._log.error(
            "%s is damaged, written between %s and %s: %s; %s",
            path, moment(times[0]), moment(times[1]), why, where,
        )  # fmt: skip
        self._remove(path)

    def _remove(self, path: str) -> None:
        self._files.unlink(path)
        self._files.unlink(path + META)


def whole_entries(data: bytes, claimed: int) -> tuple[int, int]:
    """How many whole events `[time, record]` a stream begins with, and where they end. claimed: what is expected."""
    if data[:1] == b"\x92":
        try:
            if count_values(data, claimed) == claimed:
                return claimed, len(data)
        except ValueError:
            pass  # it is cut short, or something else follows
    source = unpacker(data)
    count = end = 0
    size = len(data)
    try:
        while end < size and data[end] == _ENTRY:
            if end + 11 < size and data[end + 1] == _EVENT_TIME and data[end + 11] not in _MAPS:
                break
            source.skip()
            end = source.tell()
            count += 1
    except Exception:  # noqa: BLE001 - whatever the unpacker says of damaged bytes: here the whole entries end
        return count, end
    return count, end


def whole_lines(data: bytes, claimed: int) -> tuple[int, int]:
    """As `whole_entries`, for text: only what was cut within a line, or ends in zeros, can be told from a whole."""
    end = len(data.rstrip(b"\0"))
    if not end:
        return 0, 0
    lines = data.count(b"\n", 0, end)
    if not data.endswith(b"\n", 0, end) and (0 < lines < claimed or (lines and end < len(data))):
        return lines, data.rfind(b"\n", 0, end) + 1
    return (claimed if claimed > 0 else max(lines, 1)), end


def moment(seconds: Any) -> str:
    """A time for people."""
    if not isinstance(seconds, (int, float)):
        return "?"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
