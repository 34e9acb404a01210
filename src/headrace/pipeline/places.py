"""Where chunks are in a journal: its segments, and the places of chunks in them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.files import Files
    from headrace.pipeline.journal import Journal

WIDTH: Final = 5
"""Numbers of one piece in `Place.rows`."""


class Segment:
    """One file. live: refs of the chunks with pieces in it. seen: ids of batches noted in it.

    purged_in: numbers of the other segments that hold the PURGE of a chunk with pieces in this one.
    """

    __slots__ = ("busy", "fd", "live", "number", "path", "purged_in", "seen", "size", "synced")

    def __init__(self, number: int, path: str, size: int) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.live: set[int] = set()
        self.seen: list[bytes] = []
        self.purged_in: set[int] = set()
        self.fd: int | None = None
        """Open while it is written or not yet synced."""
        self.synced = True
        self.busy = False
        """A thread syncs it: its descriptor is closed when that is over."""


class Place:
    """Where a chunk is. rows: (segment, offset, length, events, piece) of each piece, flattened, WIDTH apart.

    copies: numbers of the segments that hold what was moved elsewhere since.
    """

    __slots__ = ("copies", "count", "journal", "opening", "ref", "rows")

    def __init__(self, journal: Journal, ref: int, opening: bytes) -> None:
        self.journal = journal
        self.ref = ref
        self.opening = opening
        """Its OPEN operation, repeated when pieces are moved."""
        self.count = 0
        self.rows = array("Q")
        self.copies: set[int] | None = None

    @property
    def segments(self) -> set[int]:
        """Numbers of all segments with something of it."""
        return set(self.rows[::WIDTH]) | (self.copies or set())

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


def read_pieces(files: Files, segments: Mapping[int, Segment], place: Place) -> list[bytes]:
    """Return the pieces of a chunk, with one descriptor, in however many segments they are.

    Raises OSError, and ValueError when a file is shorter than it was.
    """
    found: list[bytes] = []
    opened, fd = -1, -1
    try:
        for at in range(0, len(place.rows), WIDTH):
            number, offset, length = place.rows[at : at + 3]
            if number != opened:
                if fd >= 0:
                    files.close(fd)
                fd = -1
                fd, opened = files.open_read(segments[number].path), number
            found.append(read_at(files, fd, offset, length))
    finally:
        if fd >= 0:
            files.close(fd)
    return found


def read_at(files: Files, fd: int, offset: int, length: int) -> bytes:
    """Return a part of a file, all of it. Raises OSError or ValueError."""
    data = files.read_at(fd, length, offset)
    while len(data) < length:
        more = files.read_at(fd, length - len(data), offset + len(data))
        if not more:
            raise ValueError("a segment of the journal is shorter than it was")
        data += more
    return data
