"""One directory of segments: chunks on disk, written by one owner. The format is in `segment.py`.

    DIR/lock                      held (flock) by the owner, for as long as it lives
    DIR/0000000000000001.journal  segments, in the order of their numbers; the last one is written

Rules:
- One `append` is one record is one transaction: after an error the file is cut back to where it was, and
  when that fails too, the segment is left and another begun.
- A segment is removed when no live chunk has a piece in it, and no other segment has pieces of a chunk whose
  PURGE stands in it: what kills pieces must not be forgotten while they are still there. When the oldest is
  pinned by a long-lived chunk, its pieces are moved to the end, so that the disk holds at most about twice
  what is live.
- Segments are short on a small disk: one chunk that stays pins little of it. When it is full, what is not live goes.
- Opening truncates torn tails, overwrites damaged records with padding (their bytes go to the backup
  first), and returns every chunk that is complete enough to be delivered.
"""

from __future__ import annotations

import errno
import logging
import os
from array import array
from typing import TYPE_CHECKING, Final

from headrace.pipeline import segment
from headrace.pipeline.places import WIDTH, Place, Segment, read_at, read_pieces
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.files import Files

SEGMENT_SIZE: Final = 64 << 20
"""Bytes at which a new segment is begun."""
_RESET: Final = 1 << 20
"""Size beyond which an empty journal gives its segment back."""
_MOVE: Final = 1 << 20
"""Bytes that one step of compaction moves."""
_SHARE: Final = 16
"""A segment takes at most this part of the room that the disk has for us, but _LEAST bytes."""
_LEAST: Final = 256 << 10
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


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
        self.keep: Callable[[list[bytes]], list[bytes]] = list
        """Says which ids of batches, noted in a segment that is removed, must be noted again."""
        self._pending: list[tuple[bytes, set[int]]] = []
        """PURGEs to be written, each with the segments that hold the pieces."""
        self._refusals = Throttle()
        self._moved = False
        self._limit = size
        self._garbage = True  # a segment may be there that can be removed
        self._collecting = False
        self._disk: int | None = None

    @property
    def disk(self) -> int:
        """Bytes of all segments."""
        if self._disk is None:
            self._disk = sum(one.size for one in self.segments.values())
        return self._disk

    def measure(self) -> None:
        """Add the sizes of all segments up anew, when they are asked for: recovery has changed them."""
        self._disk = None

    def place(self, opening: Sequence[object]) -> Place:
        """Return a place for a new chunk. opening: what `segment.opened` takes after the ref."""
        ref = self.next_ref
        self.next_ref += 1
        return Place(self, ref, segment.opened(ref, *opening))  # type: ignore[arg-type]

    def append(self, writes: Sequence[tuple[Place, bytes, int]], written: int, batch_id: bytes | None) -> None:
        """Append pieces (place, data, events) in one record. Raises OSError: then nothing has happened."""
        body: list[bytes] = [note for note, _numbers in self._pending]
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
            body += (segment.append_head(place.ref, number, events, written, len(data)), data)
            at += segment.APPEND_HEAD
            spots.append(at)
            at += len(data)
        if batch_id is not None:
            body.append(segment.seen([batch_id]))
        start, target = self._write(body)
        self._noted(target)
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
        numbers = place.segments
        for number in numbers:
            if (one := self.segments.get(number)) is not None:
                one.live.discard(place.ref)
                self._garbage = self._garbage or not one.live
        self._pending.append((segment.purged(place.ref), numbers))
        self.write_pending()

    def write_pending(self) -> None:
        """Write the notes that could not be written; never raises."""
        if self._pending and self.segments:
            try:
                _start, target = self._write([note for note, _numbers in self._pending])
            except OSError:
                return
            self._noted(target)
        self._pending.clear()

    def _noted(self, target: Segment) -> None:
        """Remember where the PURGEs stand that were written with the last record."""
        for _note, numbers in self._pending:
            for number in numbers:
                if number != target.number and (one := self.segments.get(number)) is not None:
                    one.purged_in.add(target.number)
        self._pending.clear()

    def note_seen(self, ids: Sequence[bytes]) -> None:
        """Write ids of accepted batches again. Raises OSError."""
        for first in range(0, len(ids), 1000):
            some = list(ids[first : first + 1000])
            _start, target = self._write([segment.seen(some)])
            target.seen += some

    def read(self, place: Place) -> list[bytes]:
        """Return the pieces of a chunk. Raises OSError, and ValueError when a file is shorter than it was."""
        return read_pieces(self.files, self.segments, place)

    # Writing.

    def _write(self, body: Sequence[bytes]) -> tuple[int, Segment]:
        """Write one record of these operations; return where it begins, and in which segment. Raises OSError."""
        try:
            return self._write_once(body)
        except OSError as error:
            if error.errno not in _FULL or not self._relieve():
                raise
            return self._write_once(body)

    def _relieve(self) -> bool:
        """Make room on a full disk; False when there is nothing to be had."""
        if self.active is not None and not self.active.live and self.active.size:
            self.leave()
        before = len(self.segments)
        self.collect()
        return len(self.segments) < before

    def _write_once(self, body: Sequence[bytes]) -> tuple[int, Segment]:
        target, size = self.active, sum(map(len, body))
        if target is not None and target.size + size > self._limit and target.size > segment.HEADER_SIZE:
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
        if self._disk is not None:
            self._disk += len(data)
        target.synced = False

    def _undo(self, target: Segment) -> None:
        assert target.fd is not None
        try:
            self.files.truncate(target.fd, target.size)
        except OSError as error:
            message = "%s cannot be cut back and is left: %s"
            self._refusals.log(self.log, logging.ERROR, message, target.path, error)
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
        room = self.files.free(self.folder)
        self._limit = self._size if room is None else min(self._size, max((room + self.disk) // _SHARE, _LEAST))
        try:
            self.files.sync_dir(self.folder)
        except OSError:
            self.leave()
            raise
        return target

    def leave(self) -> None:
        """Write no more to the active segment; it stays open until it is synced."""
        self.active = None
        self._garbage = True

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

    def collect(self) -> None:
        """Remove the segments that nobody needs."""
        if not self.places and self.active is not None and self.active.size > _RESET:
            self.leave()
        if not self._garbage or self._collecting:
            return
        self._garbage = False
        self._collecting = True
        try:
            needed: set[int] = set()  # by elders that stay; a PURGE never stands before the pieces
            for one in list(self.segments.values()):
                if one.live or one is self.active or one.number in needed or not self._remove(one):
                    needed |= one.purged_in
        finally:
            self._collecting = False

    def _remove(self, one: Segment) -> bool:
        """Remove a segment; False when that must wait."""
        if self._moved and not self._all_synced_after(one):
            self._garbage = True
            return False
        try:
            if one.seen and (ids := self.keep(one.seen)):
                self.note_seen(ids)
                one.seen = []
            self._close(one)
            self.files.unlink(one.path)
        except OSError as error:
            self._refusals.log(self.log, logging.WARNING, "%s cannot be removed: %s", one.path, error)
            self._garbage = True
            return False
        del self.segments[one.number]
        if self._disk is not None:
            self._disk -= one.size
        return True

    def _all_synced_after(self, first: Segment) -> bool:
        return all(one.synced for one in self.segments.values() if one.number > first.number)

    def compact(self, written: int) -> bool:
        """Move some pieces of the oldest segment to the end if it pins too much; return whether there is more to do."""
        if len(self.segments) < 3:
            return False
        oldest = next(iter(self.segments.values()))
        if not oldest.live or oldest is self.active or self.disk <= 2 * self.live + 2 * self._limit:
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
        self._garbage = True
        return True

    def _move(self, place: Place, at: int, source: Segment, written: int) -> None:
        _number, offset, length, events, piece = place.rows[at : at + WIDTH]
        fd = self.files.open_read(source.path)
        try:
            data = read_at(self.files, fd, offset, length)
        finally:
            self.files.close(fd)
        body = [place.opening, segment.append_head(place.ref, piece, events, written, len(data)), data]
        start, target = self._write(body)
        self._moved = True
        spot = start + segment.RECORD_HEAD + len(place.opening) + segment.APPEND_HEAD
        place.rows[at : at + WIDTH] = array("Q", (target.number, spot, length, events, piece))
        target.live.add(place.ref)
        place.copies = (place.copies or set()) | {source.number}

    def abandon(self) -> None:
        """Give up lock and descriptors, and leave the files as they are."""
        for one in self.segments.values():
            self._close(one)
        self.files.close(self._lock)

    def close(self) -> OSError | None:
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
            self.collect()
        for one in self.segments.values():
            self._close(one)
        self.files.close(self._lock)
        return failed
