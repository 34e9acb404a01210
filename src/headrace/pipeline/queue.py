"""Chunks in line: which one comes next, at a cost that does not grow with their number.

Every chunk gets a turn when it is queued; a chunk that failed and comes back gets a new one. Chunks that were never
tried are always due, so a plain queue holds them; those that were tried wait in a heap by the time at which they are
due, and from then on in a heap by turn. Chunks that leave in another way (dropped) are only crossed out, and swept
out when the crossed-out ones are too many: each operation costs O(log n), amortised.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView

    from headrace.pipeline.chunk import Chunk


class Queue:
    """The queued chunks of one buffer, in order of their turns."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, Chunk] = {}
        self._fresh: deque[tuple[int, Chunk]] = deque()
        self._due: list[tuple[int, Chunk]] = []
        self._later: list[tuple[float, int, Chunk]] = []
        self._by_age: list[tuple[int, int, Chunk]] | None = None
        self._turn = 0
        self._crossed_out = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk_id: bytes) -> bool:
        return chunk_id in self._chunks

    def keys(self) -> KeysView[bytes]:
        """Their ids, in order."""
        return self._chunks.keys()

    def values(self) -> Iterator[Chunk]:
        """All of them, in order."""
        return iter(self._chunks.values())

    def add(self, chunk: Chunk) -> None:
        """Put a chunk at the end."""
        self._turn += 1
        chunk.turn = self._turn
        self._chunks[chunk.id] = chunk
        if not chunk.attempts:
            self._fresh.append((self._turn, chunk))
        else:
            heappush(self._later, (chunk.due, self._turn, chunk))
        if self._by_age is not None:
            heappush(self._by_age, (chunk.created, self._turn, chunk))
            if len(self._by_age) > 64 + 2 * len(self._chunks):
                self._by_age = None

    def remove(self, chunk: Chunk) -> None:
        """Take out a chunk, wherever it stands. Raises KeyError."""
        del self._chunks[chunk.id]
        chunk.turn = 0
        self._crossed_out += 1
        if self._crossed_out > 64 + 2 * len(self._chunks):
            self._sweep()

    def first(self, now: float) -> Chunk | None:
        """The first that is due."""
        fresh, due = self.untried(), self._first_due(now)
        if fresh is None or due is None:
            return fresh or due
        return fresh if fresh.turn < due.turn else due

    def untried(self) -> Chunk | None:
        """The first that was never tried."""
        fresh = self._fresh
        while fresh:
            turn, chunk = fresh[0]
            if chunk.turn == turn:
                return chunk
            fresh.popleft()
            self._crossed_out -= 1
        return None

    def tried(self, now: float, window: int) -> Chunk | None:
        """The first that was tried before, but not in this window of the gate, and is due."""
        skipped: list[tuple[int, Chunk]] = []
        found = self._first_due(now)
        while found is not None and found.window >= window:  # no more of them than there are lanes
            skipped.append(heappop(self._due))
            found = self._first_due(now)
        for entry in skipped:
            heappush(self._due, entry)
        return found

    def oldest(self) -> Chunk | None:
        """The one that was begun first."""
        heap = self._by_age
        if heap is None:
            heap = self._by_age = [(chunk.created, chunk.turn, chunk) for chunk in self._chunks.values()]
            heapify(heap)
        while heap:
            _created, turn, chunk = heap[0]
            if chunk.turn == turn:
                return chunk
            heappop(heap)
        return None

    def next_due(self) -> float:
        """When (by the clock) the first is due: 0 for now, infinity when there is none."""
        if self.untried() is not None:
            return 0.0
        while self._due:
            turn, chunk = self._due[0]
            if chunk.turn == turn:
                return chunk.due
            heappop(self._due)
            self._crossed_out -= 1
        while self._later:
            due, turn, chunk = self._later[0]
            if chunk.turn == turn:
                return due
            heappop(self._later)
            self._crossed_out -= 1
        return math.inf

    def hurry(self, now: float) -> None:
        """Make all of them due now."""
        for _due, turn, chunk in self._later:
            if chunk.turn == turn:
                chunk.due = min(chunk.due, now)
        self._later = [(min(due, now), turn, chunk) for due, turn, chunk in self._later]
        heapify(self._later)

    def _first_due(self, now: float) -> Chunk | None:
        later, due = self._later, self._due
        while later and later[0][0] <= now:
            _due, turn, chunk = heappop(later)
            if chunk.turn == turn:
                heappush(due, (turn, chunk))
            else:
                self._crossed_out -= 1
        while due:
            turn, chunk = due[0]
            if chunk.turn == turn:
                return chunk
            heappop(due)
            self._crossed_out -= 1
        return None

    def _sweep(self) -> None:
        self._crossed_out = 0
        self._fresh = deque(entry for entry in self._fresh if entry[1].turn == entry[0])
        self._due = [entry for entry in self._due if entry[1].turn == entry[0]]
        self._later = [entry for entry in self._later if entry[2].turn == entry[1]]
        heapify(self._due)
        heapify(self._later)
        self._by_age = None


class Parted:
    """Chunks that have left their primary, in order; those that are not due wait beside."""

    def __init__(self) -> None:
        self._now: deque[Chunk] = deque()
        self._later: list[tuple[float, int, Chunk]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._now) + len(self._later)

    def __iter__(self) -> Iterator[Chunk]:
        yield from self._now
        for _due, _number, chunk in self._later:
            yield chunk

    def add(self, chunk: Chunk) -> None:
        """Put a chunk at the end; it comes when it is due."""
        self._number += 1
        heappush(self._later, (chunk.due, self._number, chunk))

    def put_first(self, chunk: Chunk) -> None:
        """Put a chunk at the beginning."""
        self._now.appendleft(chunk)

    def pop(self, now: float) -> Chunk | None:
        """Take the first that is due."""
        while self._later and self._later[0][0] <= now:
            self._now.append(heappop(self._later)[2])
        return self._now.popleft() if self._now else None

    def next_due(self) -> float:
        """When the first is due: 0 for now, infinity when there is none."""
        if self._now:
            return 0.0
        return self._later[0][0] if self._later else math.inf

    def hurry(self, now: float) -> None:
        """Make all of them due now."""
        for _due, _number, chunk in sorted(self._later, key=lambda entry: entry[:2]):
            chunk.due = min(chunk.due, now)
            self._now.append(chunk)
        self._later.clear()

    def clear(self) -> list[Chunk]:
        """Take out all of them."""
        taken = list(self)
        self._now.clear()
        self._later.clear()
        return taken
