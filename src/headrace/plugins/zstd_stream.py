"""zstd from outside, expanded piece by piece: all frames, bounded windows, and an error where one is cut short.

RFC 8878
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW: Final = 1 << 25
"""Bytes of memory that a frame may ask for."""
PIECE: Final = 1 << 18
"""Bytes of one piece at the most."""


def pieces(data: bytes) -> Iterator[bytes]:
    """What the frames hold. Raises zstandard.ZstdError for damage, EOFError where they are cut short."""
    # The library's reader ends without a word where a frame is cut short.
    at = 0
    while at < len(data):
        at = _frame_end(data, at)
    if at > len(data):
        raise EOFError("cut short")
    reader = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(data, read_across_frames=True)
    while piece := reader.read(PIECE):
        yield piece


def _frame_end(data: bytes, at: int) -> int:
    """Where a frame ends (3.1); past the end of the data when it is cut short."""
    magic = int.from_bytes(data[at : at + 4], "little")
    if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
        return at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    if len(data) < at + 5:
        return len(data) + 1
    flags = data[at + 4]
    single = flags >> 5 & 1
    at += 5 + (not single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
    last = 0
    while not last:
        head = int.from_bytes(data[at : at + 3], "little")
        last = head & 1 or at + 3 > len(data)
        at += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
    return at + 4 * (flags >> 2 & 1)
