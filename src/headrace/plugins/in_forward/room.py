"""The memory that messages take which have not come whole, over all connections of a source.

A connection that holds a part of a message when the limit is passed is not read until others have finished. One of
them goes on nevertheless, else none could ever finish; who of those that may go on says nothing for PATIENCE seconds
while others wait is cut, since it would hold them back for ever. The limit is passed by one read of each connection
at the most, and by the message of the one that goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock, Deadline

PATIENCE: Final = 30.0


class Holder(Protocol):
    """A connection. held: bytes of a message that is not whole, as the room knows. heard: bytes have come."""

    held: int
    heard: bool

    def go_on(self) -> None:
        """It may be read again."""


class Room:
    """limit: bytes for all; 0 for any. cut: ends a connection that holds others back."""

    def __init__(self, limit: int, clock: Clock, cut: Callable[[Holder], None]) -> None:
        self.limit = limit
        self.used = 0
        self.stalled: dict[Holder, None] = {}
        """Who waits, in the order of arrival."""
        self._clock = clock
        self._cut = cut
        self._holders: set[Holder] = set()
        self._favoured: Holder | None = None
        self._timer: Deadline | None = None

    def holds(self, one: Holder, size: int) -> bool:
        """Note what a connection holds now; False: it is not to be read until `go_on` is called."""
        if one.held:
            if not size:
                self._holders.discard(one)
                if one is self._favoured:
                    self._favoured = None
        else:
            self._holders.add(one)
        self.used += size - one.held
        one.held = size
        if self.used > self.limit > 0 and size and one is not self._favoured:
            if self._favoured is not None:
                one.heard = False
                self.stalled[one] = None
                if self._timer is None:
                    self._timer = self._clock.deadline(PATIENCE, self._look)
                return False
            self._favoured = one
        elif self.stalled:
            self._relieve()
        return True

    def leaves(self, one: Holder) -> None:
        """A connection is over."""
        self.stalled.pop(one, None)
        if one.held:
            self.holds(one, 0)

    def _relieve(self) -> None:
        while self.stalled and (self.used <= self.limit or self._favoured is None):
            one = next(iter(self.stalled))
            del self.stalled[one]
            if self.used > self.limit:
                self._favoured = one
            one.go_on()

    def _look(self) -> None:
        """Cut who could go on and does not."""
        self._timer = None
        if not self.stalled:
            return
        for one in self._holders - self.stalled.keys():
            if not one.heard:
                self._cut(one)
            one.heard = False
        if self.stalled:
            self._timer = self._clock.deadline(PATIENCE, self._look)
