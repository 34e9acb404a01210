"""One directory of segments: chunks on disk, written by one owner. The format is in `segment.py`.

    DIR/lock                      held (flock) by the owner, for as long as it lives
    DIR/0000000000000001.journal  segments, in the order of their numbers; the last one is written

Rules:
- One `append` is one record is one transaction: after an error the file is cut back to where it was, and
  when that fails too, the segment is left and another begun.
- A segment is removed when no live chunk has a piece in it, and never before its elders: a PURGE must not
  be forgotten while the pieces that it kills are still there. When elders are pinned by a long-lived chunk,
  its pieces are moved to the end, so that the disk holds at most about twice what is live.
- Opening truncates torn tails, overwrites damaged records with padding (their bytes go to the backup
  first), and returns every chunk that is complete enough to be delivered.
"""

from __future__ import annotations

import logging
import os
from array import array
from typing import TYPE_CHECKING, Final

from headrace.pipeline import segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.files import Files

SEGMENT_SIZE: Final = 64 << 20
"""Bytes at which a new segment is begun."""
WIDTH: Final = 5
_RESET: Final = 1 << 20
"""An empty journal gives its segment back when it has grown beyond this."""
_MOVE: Final = 1 << 20
"""Bytes that one step of compaction moves."""


class Segment:
    """One file. live: refs of the chunks with pieces in it. seen: ids of batches noted in it."""

    __slots__ = ("busy", "fd", "live", "number", "path", "seen", "size", "synced")

    def __init__(self, number: int, path: str, size: int) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.live: set[int] = set()
        self.seen: list[bytes] = []
        self.fd: int | None = None
        """Open while it is written or not yet synced."""
        self.synced = True
        self.busy = False
        """A thread syncs it: its descriptor is closed when that is over."""


class Place:
    """Where a chunk is. rows: (segment, offset, length, events, piece) of each piece, flattened, WIDTH apart."""

    __slots__ = ("count", "journal", "opening", "ref", "rows")

    def __init__(self, journal: Journal, ref: int, opening: bytes) -> None:
        self.journal = journal
        self.ref = ref
        self.opening = opening
        """Its OPEN operation, repeated when pieces are moved."""
        self.count = 0
        self.rows = array("Q")

    def add(self, number: int, offset: int, length: int, events: int, piece: int) -> None:
        """Add a piece."""
        self.rows.extend((number, offset, length, events, piece))

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(self.rows[2::WIDTH])

    @property
    def events(self) -> int:
        """Events of all pieces."""
        return sum(self.rows[3::WIDTH])


class Journal:
    """The segments of one directory, after `recovery.open_journal` has read them."""

    def __init__(
        self, folder: str, lock: int, files: Files, log: logging.Logger, *, mode: int, size: int = SEGMENT_SIZE
    ) -> None:
        self.folder = folder
        self.files = files
        self.log = log
        self.segments: dict[int, Segment] = {}
        """By number, oldest first."""
        self.places: dict[int, Place] = {}
        """Live chunks by ref."""
        self.active: Segment | None = None
        self.next_ref = 1
        self.next_number = 1
        self.live = 0
        """Bytes of the pieces of live chunks."""
        self._lock = lock
        self._mode = mode
        self._size = size
        self.damaged = 0
        """Places where recovery found damage; each is named in a line of the log."""
        self.damaged_bytes = 0
        self._pending: list[bytes] = []
        self._moved = False

    @property
    def disk(self) -> int:
        """Bytes of all segments."""
        return sum(one.size for one in self.segments.values())

    def place(self, opening: Sequence[object]) -> Place:
        """Return a place for a new chunk. opening: what `segment.opened` takes after the ref."""
        ref = self.next_ref
        self.next_ref += 1
        return Place(self, ref, segment.opened(ref, *opening))  # type: ignore[arg-type]

    def append(self, writes: Sequence[tuple[Place, bytes, int]], written: int, batch_id: bytes | None) -> None:
        """Append pieces (place, data, events) in one record. Raises OSError: then nothing has happened."""
        body: list[bytes] = [*self._pending]
        at = sum(map(len, body))
        spots: list[int] = []
        counts: dict[int, int] = {}
        for place, data, events in writes:
            number = counts.get(place.ref, place.count)
            counts[place.ref] = number + 1
            if not number & (number - 1):
                # With pieces 0, 1, 2, 4, 8, ...: no one damaged record takes the name of a whole chunk with it.
                body.append(place.opening)
                at += len(place.opening)
            body.append(segment.appended(place.ref, number, events, written, data))
            spots.append(at + segment.APPEND_HEAD)
            at += len(body[-1])
        if batch_id is not None:
            body.append(segment.seen([batch_id]))
        start, target = self._write(b"".join(body))
        self._pending.clear()
        base = start + segment.RECORD_HEAD
        for (place, data, events), spot in zip(writes, spots, strict=True):
            place.add(target.number, base + spot, len(data), events, place.count)
            place.count += 1
            self.live += len(data)
            self.places[place.ref] = place
            target.live.add(place.ref)
        if batch_id is not None:
            target.seen.append(batch_id)

    def purge(self, place: Place) -> None:
        """Note that a chunk is delivered; a note that cannot be written now goes with the next record."""
        if self.places.pop(place.ref, None) is None:
            return
        self.live -= place.size
        for number in set(place.rows[::WIDTH]):
            self.segments[number].live.discard(place.ref)
        self._pending.append(segment.purged(place.ref))
        self.write_pending()

    def write_pending(self) -> None:
        """Write the notes that could not be written; never raises."""
        if self._pending and self.segments:
            try:
                self._write(b"".join(self._pending))
            except OSError:
                return
        self._pending.clear()

    def note_seen(self, ids: Sequence[bytes]) -> None:
        """Write ids of accepted batches again. Raises OSError."""
        for first in range(0, len(ids), 1000):
            some = list(ids[first : first + 1000])
            _start, target = self._write(segment.seen(some))
            target.seen += some

    def read(self, place: Place) -> list[bytes]:
        """Return the pieces of a chunk. Raises OSError, and ValueError when a file is shorter than it was."""
        found: list[bytes] = []
        fds: dict[int, int] = {}
        try:
            for at in range(0, len(place.rows), WIDTH):
                number, offset, length = place.rows[at : at + 3]
                fd = fds.get(number)
                if fd is None:
                    fd = fds[number] = self.files.open_read(self.segments[number].path)
                found.append(self._read_at(fd, offset, length))
        finally:
            for fd in fds.values():
                self.files.close(fd)
        return found

    def _read_at(self, fd: int, offset: int, length: int) -> bytes:
        data = self.files.read_at(fd, length, offset)
        while len(data) < length:
            more = self.files.read_at(fd, length - len(data), offset + len(data))
            if not more:
                raise ValueError("a segment of the journal is shorter than it was")
            data += more
        return data

    # Writing.

    def _write(self, body: bytes) -> tuple[int, Segment]:
        """Write one record; return where it begins, and in which segment. Raises OSError."""
        target = self.active
        if target is not None and target.size + len(body) > self._size and target.size > segment.HEADER_SIZE:
            self.leave()
            target = None
        if target is None:
            target = self._begin()
        head = segment.header(target.number) if not target.size else b""
        start = target.size + len(head)
        self._append(target, head + segment.record(body, target.number, start))
        return start, target

    def _append(self, target: Segment, data: bytes) -> None:
        files, fd = self.files, target.fd
        assert fd is not None
        try:
            written = files.append(fd, data)
            while written < len(data):
                more = files.append(fd, memoryview(data)[written:])
                if more <= 0:
                    raise OSError(5, "the disk takes no more bytes")
                written += more
        except OSError:
            self._undo(target)
            raise
        target.size += len(data)
        target.synced = False

    def _undo(self, target: Segment) -> None:
        assert target.fd is not None
        try:
            self.files.truncate(target.fd, target.size)
        except OSError as error:
            self.log.log(logging.ERROR, "%s cannot be cut back and is left: %s", target.path, error)
            self.leave()

    def _begin(self) -> Segment:
        number = self.next_number
        path = os.path.join(self.folder, f"{number:016d}.journal")
        fd = self.files.create(path, self._mode)
        self.next_number += 1
        target = Segment(number, path, 0)
        target.fd = fd
        self.segments[number] = target
        self.active = target
        try:
            self.files.sync_dir(self.folder)
        except OSError:
            self.leave()
            raise
        return target

    def leave(self) -> None:
        """Write no more to the active segment; it stays open until it is synced."""
        self.active = None

    # The disk.

    def unsynced(self) -> list[tuple[Segment, int, int]]:
        """Return what must be synced: segment, descriptor and size."""
        return [(one, one.fd, one.size) for one in self.segments.values() if not one.synced and one.fd is not None]

    def begin_sync(self) -> list[tuple[Segment, int, int]]:
        """Return what must be synced, and keep its descriptors open until `end_sync` is called with it."""
        todo = self.unsynced()
        for one, _fd, _size in todo:
            one.busy = True
        return todo

    def end_sync(self, done: Sequence[tuple[Segment, int, int]], *, failed: bool = False) -> None:
        """Note what has reached the disk, unless that failed, and close segments that are written no more."""
        for one, fd, _size in done:
            one.busy = False
            if one.fd is None:  # it went meanwhile
                self.files.close(fd)
        if not failed:
            self.note_synced(done)

    def note_synced(self, done: Sequence[tuple[Segment, int, int]]) -> None:
        """Note what has reached the disk, and close segments that are written no more."""
        for one, _fd, size in done:
            one.synced = one.size == size
        for one in self.segments.values():
            if one.synced and one is not self.active:
                self._close(one)
        if all(one.synced for one in self.segments.values()):
            self._moved = False

    def _close(self, one: Segment) -> None:
        if one.fd is not None:
            if not one.busy:
                self.files.close(one.fd)
            one.fd = None

    # Garbage.

    def collect(self, keep: Callable[[list[bytes]], list[bytes]] = list) -> None:
        """Remove the segments that nobody needs.

        keep: says which ids of batches, noted in a segment that is removed, must be noted again.
        """
        if not self.places and self.active is not None and self.active.size > _RESET:
            self.leave()
        for one in list(self.segments.values()):
            if one.live or one is self.active or (self._moved and not self._all_synced_after(one)):
                break
            try:
                if one.seen and (ids := keep(one.seen)):
                    self.note_seen(ids)
                self._close(one)
                self.files.unlink(one.path)
            except OSError as error:
                self.log.warning("%s cannot be removed: %s", one.path, error)
                break
            del self.segments[one.number]

    def _all_synced_after(self, first: Segment) -> bool:
        return all(one.synced for one in self.segments.values() if one.number > first.number)

    def compact(self, written: int) -> bool:
        """Move some pieces of the oldest segment to the end if it pins too much; return whether there is more to do."""
        if len(self.segments) < 3:
            return False
        oldest = next(iter(self.segments.values()))
        if not oldest.live or oldest is self.active or self.disk <= 2 * self.live + 2 * self._size:
            return False
        ref = next(iter(oldest.live))
        place = self.places[ref]
        left = _MOVE
        for at in range(0, len(place.rows), WIDTH):
            if place.rows[at] != oldest.number:
                continue
            if left <= 0:
                return True
            left -= place.rows[at + 2]
            self._move(place, at, oldest, written)
        oldest.live.discard(ref)
        return True

    def _move(self, place: Place, at: int, source: Segment, written: int) -> None:
        _number, offset, length, events, piece = place.rows[at : at + WIDTH]
        fd = self.files.open_read(source.path)
        try:
            data = self._read_at(fd, offset, length)
        finally:
            self.files.close(fd)
        body = place.opening + segment.appended(place.ref, piece, events, written, data)
        start, target = self._write(body)
        self._moved = True
        spot = start + segment.RECORD_HEAD + len(place.opening) + segment.APPEND_HEAD
        place.rows[at : at + WIDTH] = array("Q", (target.number, spot, length, events, piece))
        target.live.add(place.ref)

    def abandon(self) -> None:
        """Give up lock and descriptors, and leave the files as they are."""
        for one in self.segments.values():
            self._close(one)
        self.files.close(self._lock)

    def close(self, keep: Callable[[list[bytes]], list[bytes]] = list) -> OSError | None:
        """Bring everything to the disk and give up files and lock; an empty journal leaves no segment.

        Returns the error with which the disk refused, if it did.
        """
        failed: OSError | None = None
        self.write_pending()
        for one in self.segments.values():
            if one.fd is not None and not one.synced:
                try:
                    self.files.sync(one.fd)
                except OSError as error:
                    failed = error
                    self.log.log(logging.ERROR, "%s cannot be synced: %s", one.path, error)
        if not self.places:
            self.leave()
            self.collect(keep)
        for one in self.segments.values():
            self._close(one)
        self.files.close(self._lock)
        return failed
