"""What an earlier run left in a journal: read it, repair it, and return its chunks.

Damage is never silent and never in the way: the bytes go to a file in the backup folder, one log line names
that file and the time range around it, and the next start finds a clean journal. A chunk that lost pieces
is delivered without them (events are whole in a piece); one that is compressed is delivered up to the gap.
"""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headrace.errors import Error
from headrace.pipeline import segment
from headrace.pipeline.codec import TEXT
from headrace.pipeline.places import Place, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.pipeline.files import Files
    from headrace.pipeline.journal import Journal

_NAME: Final = re.compile(r"([0-9]{16})\.journal")
_READ: Final = 4 << 20


class Found:
    """A chunk that was found: its OPEN operation, its place, and pieces by number while it is read.

    segments: numbers of those that hold a piece of it, or a copy. purged_in: of those that hold its PURGE.
    """

    __slots__ = ("opening", "pieces", "place", "purged_in", "segments")

    def __init__(self) -> None:
        self.opening: segment.Opened | None = None
        self.place: Place | None = None
        self.pieces: dict[int, tuple[int, int, int, int]] = {}
        self.segments: set[int] = set()
        self.purged_in: set[int] = set()


class Recovery:
    """Reads one journal. backup: folder for damaged bytes, made when needed."""

    def __init__(self, journal: Journal, backup: str, dir_mode: int, mode: int) -> None:
        self.journal = journal
        self.files: Files = journal.files
        self.log: logging.Logger = journal.log
        self.seen: list[bytes] = []
        """Ids of batches that were accepted, oldest first."""
        self.alive: list[Found] = []
        """What was found, in the order in which it was begun; complete after the last step."""
        self._backup = backup
        self._dir_mode = dir_mode
        self._mode = mode
        self._found: dict[int, Found] = {}
        self._time: int | None = None

    def run(self) -> list[Found]:
        """Return the chunks in the order in which they were begun. Raises OSError, or Error for a newer format."""
        for _ in self.steps():
            pass
        return self.alive

    def steps(self) -> Iterator[None]:
        """As `run`, a segment at a time: much may have been left, and the loop has others to serve. See `alive`."""
        journal = self.journal
        for name in self.files.listdir(journal.folder):
            if match := _NAME.fullmatch(name):
                number = int(match.group(1))
                path = os.path.join(journal.folder, name)
                journal.next_number = max(journal.next_number, number + 1)
                one = Segment(number, path, self.files.size(path))
                journal.segments[number] = one
                self._read(one)
                yield
        journal.measure()
        for ref in sorted(self._found):
            journal.next_ref = max(journal.next_ref, ref + 1)
            found = self._found[ref]
            for number in found.segments:
                if number in journal.segments:
                    journal.segments[number].purged_in |= found.purged_in - {number}
            if not found.purged_in and self._complete(ref, found):
                self.alive.append(found)

    def _read(self, one: Segment) -> None:
        data = self._content(one)
        if (version := segment.newer_version(data)) is not None:
            raise Error(f"{one.path} was written by a newer headrace (journal version {version})", kind="version")
        bad: list[segment.Span] = []
        before: dict[int, int | None] = {}
        after: dict[int, int | None] = {}
        for span in segment.scan(data, one.number):
            if not span.good:
                bad.append(span)
                before[span.start] = self._time
                continue
            for operation in segment.operations(data, span):
                self._take(operation, one)
            for start in before.keys() - after.keys():
                after[start] = self._time
        if data and len(data) <= segment.HEADER_SIZE and data != segment.header(one.number):
            bad.append(segment.Span(0, len(data), good=False))
        for span in bad:
            self._repair(one, data, span, before.get(span.start), after.get(span.start))
        if not data:
            self.files.unlink(one.path)
            del self.journal.segments[one.number]

    def _content(self, one: Segment) -> bytes:
        fd = self.files.open_read(one.path)
        try:
            parts = []
            at = 0
            while part := self.files.read_at(fd, _READ, at):
                parts.append(part)
                at += len(part)
        finally:
            self.files.close(fd)
        return b"".join(parts)

    def _take(self, operation: segment.Operation, one: Segment) -> None:
        if isinstance(operation, segment.Appended):
            found = self._found.setdefault(operation.ref, Found())
            found.pieces[operation.piece] = (one.number, operation.offset, operation.length, operation.events)
            found.segments.add(one.number)
            self._time = operation.written
        elif isinstance(operation, segment.Opened):
            self._found.setdefault(operation.ref, Found()).opening = operation
            self._time = operation.created
        elif isinstance(operation, segment.Purged):
            self._found.setdefault(operation.ref, Found()).purged_in.add(one.number)
        else:
            self.seen += operation.ids
            one.seen += operation.ids

    def _repair(self, one: Segment, data: bytes, span: segment.Span, before: int | None, after: int | None) -> None:
        """Save a damaged part to the backup, then cut it off or overwrite it."""
        damaged = data[span.start : span.end]
        self.journal.damaged += 1
        self.journal.damaged_bytes += len(damaged)
        where = "nowhere: it is all zeros"
        if damaged.strip(b"\0"):
            where = self._save(f"{os.path.basename(self.journal.folder)}-{one.number}-{span.start}.damaged", damaged)
            if not where:
                return
        if span.end == len(data):
            self.files.truncate_path(one.path, span.start)
            one.size = span.start
        elif span.end - span.start >= segment.PAD_MINIMUM:
            self.files.overwrite(one.path, span.start, segment.pad(len(damaged), one.number, span.start))
        self.log.error(
            "%s is damaged: %d bytes at %d, written between %s and %s, are moved to %s",
            one.path, len(damaged), span.start, _moment(before), _moment(after), where,
        )  # fmt: skip

    def _save(self, name: str, data: bytes) -> str:
        """Write a file into the backup folder; return its path, "" when it cannot be written."""
        path = os.path.join(self._backup, name)
        files = self.files
        try:
            files.makedirs(self._backup, self._dir_mode)
            files.unlink(path)
            fd = files.create(path, self._mode)
            try:
                view = memoryview(data)
                while view:
                    view = view[files.append(fd, view) :]
                files.sync(fd)
            finally:
                files.close(fd)
        except OSError as error:
            self.log.log(
                logging.ERROR, "damaged bytes of %s stay where they are, %s: %s", self.journal.folder, path, error
            )
            return ""
        return path

    def _complete(self, ref: int, found: Found) -> bool:
        """Give a chunk its place; False when nothing of it can be delivered."""
        journal = self.journal
        if found.opening is None:
            self._orphan(ref, found)
            return False
        numbers = sorted(found.pieces)
        gap = next((at for at, number in enumerate(numbers) if at != number), len(numbers))
        if gap < len(numbers) and found.opening.codec != TEXT:
            self._orphan(ref, found, numbers[gap:])
            numbers = numbers[:gap]
        place = Place(journal, ref, segment.opened(*found.opening))
        for number in numbers:
            piece = found.pieces[number]
            place.add(*piece, number)
            journal.segments[piece[0]].live.add(ref)
        place.count = len(numbers)
        place.copies = found.segments - place.segments or None
        found.place = place
        journal.places[ref] = place
        journal.live += place.size
        if not numbers:
            journal.purge(place)
            return False
        return True

    def _orphan(self, ref: int, found: Found, numbers: list[int] | None = None) -> None:
        """Save pieces that cannot be delivered: the record that says what they are is damaged."""
        place = Place(self.journal, ref, b"")
        for number in sorted(found.pieces) if numbers is None else numbers:
            place.add(*found.pieces[number], number)
        if not place.rows:
            return
        data = b"".join(self.journal.read(place))
        self.journal.damaged += 1
        self.journal.damaged_bytes += len(data)
        path = self._save(f"{os.path.basename(self.journal.folder)}-chunk-{ref}.pieces", data)
        self.log.error(
            "%s: %d events of a chunk whose beginning is damaged are moved to %s",
            self.journal.folder,
            place.events,
            path,
        )
        if numbers is None:
            place.copies = found.segments
            self.journal.places[ref] = place
            self.journal.live += place.size
            self.journal.purge(place)


def _moment(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "?"
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="milliseconds")
