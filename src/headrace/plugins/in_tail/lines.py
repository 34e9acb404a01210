"""Bytes of a file -> lines, without I/O.

Rules:
- What is fed is what stands at one place of the file after the other; a line that is not at its end is kept as the
  pieces it came in, so that a long one costs no more than its length.
- `feed` may use less than it was given, when it has as many lines as are wanted: the rest is read again from the file.
- A line longer than the limit is not kept: its bytes are counted, and it is left out when its end comes.
- Lines come without their line end. In UTF-16 and UTF-32 a line end has 2 or 4 bytes and stands at such a multiple.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 128 << 20
"""Bytes of a line that are kept at most, also where `max_line_size` sets no limit: no memory grows without end."""


class LineSplitter:
    """The lines of one file.

    end: the line end, as bytes of the file. limit: the longest line (bytes, line end included), longer ones are left
    out. skipped: how many were. Whoever holds one may read `lost`: whether the last `feed` left a line out.
    """

    __slots__ = ("_end", "_limit", "_pieces", "_size", "_skipping", "_unit", "lost", "skipped")

    def __init__(self, end: bytes = b"\n", limit: int | None = None) -> None:
        self._end = end
        self._unit = len(end)
        self._limit = min(limit if limit is not None else LONGEST, LONGEST)
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.skipped = 0
        self.lost = False

    @property
    def held(self) -> int:
        """Bytes that were fed after the last line end."""
        return self._size

    def reset(self) -> None:
        """Forget what is held: the file begins anew."""
        self._pieces = []
        self._size = 0
        self._skipping = False

    def rest(self) -> bytes:
        """Take the last line, which has no end and will get none; b"" when there is none or it is too long."""
        text = b"" if self._skipping else b"".join(self._pieces)
        self.reset()
        return text

    def feed(self, data: bytes, most: int) -> tuple[list[bytes], int]:
        """Return up to `most` (at least 1) whole lines, and how many bytes of `data` were used."""
        self.lost = False
        unit = self._unit
        if unit > 1 and self._size % unit and not self._skipping:
            # A character lies across two pieces: only as one text can its line ends be told.
            before = self._size
            data = b"".join((*self._pieces, data))
            self._pieces = []
            self._size = 0
            lines, used = self.feed(data, most)
            return lines, used - before
        if self._skipping:
            at = self._find(data)
            if at < 0:
                self._size += len(data)
                return [], len(data)
            self.reset()
            self._leave_out(1)
            lines, used = self._split(data[at + unit :], most)
            return lines, used + at + unit
        return self._split(data, most)

    def _split(self, data: bytes, most: int) -> tuple[list[bytes], int]:
        unit, end = self._unit, self._end
        cut = data.rfind(end) if unit == 1 else self._rfind(data)
        if cut < 0:
            self._keep(data)
            return [], len(data)
        head = data[:cut]
        before = self._size
        if before:
            head = b"".join((*self._pieces, head))
            self.reset()
        lines = head.split(end) if unit == 1 else self._aligned(head)
        if len(lines) > most:
            del lines[most:]
            used = sum(map(len, lines)) + most * unit - before
        else:
            used = len(data)
            if len(data) > cut + unit:
                self._keep(data[cut + unit :])
        limit = self._limit
        if len(head) >= limit:
            short = [line for line in lines if len(line) + unit <= limit]
            self._leave_out(len(lines) - len(short))
            lines = short
        return lines, used

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._limit:
            self._pieces = []
            self._skipping = True

    def _leave_out(self, count: int) -> None:
        if count:
            self.skipped += count
            self.lost = True

    def _find(self, data: bytes) -> int:
        """Where the line ends that is too long, -1 when not yet."""
        unit = self._unit
        at = data.find(self._end)
        while at >= 0 and (self._size + at) % unit:
            at = data.find(self._end, at + 1)
        return at

    def _rfind(self, data: bytes) -> int:
        at = data.rfind(self._end)
        while at >= 0 and at % self._unit:
            at = data.rfind(self._end, 0, at + self._unit - 1)
        return at

    def _aligned(self, head: bytes) -> list[bytes]:
        """Cut at line ends that stand at a multiple of their length."""
        lines: list[bytes] = []
        start = 0
        at = head.find(self._end)
        while at >= 0:
            if (at - start) % self._unit == 0:
                lines.append(head[start:at])
                start = at + self._unit
                at = head.find(self._end, start)
            else:
                at = head.find(self._end, at + 1)
        lines.append(head[start:])
        return lines
