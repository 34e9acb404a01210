"""The bytes of bodies that one source holds over all its connections, and how many they may be.

What counts: bodies that have come in part, and bodies whose events wait for the buffers (expanded, where they were
compressed). A body that was taken in the moment it came never counts. Who comes when there is no room is refused
with 503 and asked to come again; what is here already is never given up, so bodies under way come to their end and
make room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Room:
    """limit, used: bytes; math.inf for no limit."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.used = 0

    def check(self, size: int) -> None:
        """Raise HttpError 503 when a body of this size does not fit now; the connection stays usable."""
        if self.used + size > self.limit:
            raise HttpError(503, f"{self.used} bytes of bodies are waiting, {size} more do not fit", close=False)

    def take(self, size: int) -> None:
        """Count more bytes of a body that comes in parts. Raises HttpError 503 when there is no room for them."""
        self.check(size)
        self.used += size

    def give(self, size: int) -> None:
        """Count so many bytes less."""
        self.used -= size

    async def hold(self, size: int, pending: Awaitable[None]) -> None:
        """Count a body until its events are taken."""
        self.used += size
        try:
            await pending
        finally:
            self.used -= size
