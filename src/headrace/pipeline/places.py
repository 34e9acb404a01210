"""Where chunks are in a journal: its segments, and the places of chunks in them. No I/O."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
