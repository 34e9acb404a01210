"""The end of a connection whose client may still be sending (nginx's lingering_close).

Closing a socket with unread input makes the kernel send a reset, and a reset makes the client drop the
answer it has not read yet. So our writing side is shut down and input is read and dropped, for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.clock import NEVER, Timed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.clock import Clock
    from headrace.core.http1.server import HttpConnection
    from headrace.core.http1.settings import ServerSettings
    from headrace.core.stream import Owner, Stream


class Lingering(Timed):
    """Owner of a stream until the client closes it or lingering_timeout or lingering_time has passed."""

    __slots__ = ("_clock", "_end", "_settings", "_stream", "_then")

    def __init__(self, stream: Stream, then: Owner, settings: ServerSettings, clock: Clock) -> None:
        self.due = NEVER
        self.tick = 0
        self._stream = stream
        self._then = then
        self._settings = settings
        self._clock = clock
        self._end = clock.now() + settings.lingering_time
        self._wait()

    def _wait(self) -> None:
        left = self._end - self._clock.now()
        self._clock.schedule(self, max(min(self._settings.lingering_timeout, left), 0.0))

    def data_received(self, data: bytes) -> None:
        """Dropped."""
        self._wait()

    def eof_received(self) -> None:
        """The client has read what it wanted."""
        self.expired()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the owner before us."""
        self._clock.cancel(self)
        self._then.connection_lost(error)

    def expired(self) -> None:
        """Enough."""
        self._clock.cancel(self)
        self._stream.close()


def hold_open(stream: Stream, then: Owner, settings: ServerSettings, clock: Clock) -> None:
    """Take the stream over; `then` hears of its end."""
    stream.shutdown_write()
    stream.set_owner(Lingering(stream, then, settings, clock))
    stream.start_reading()


def evict_idle(connections: Iterable[HttpConnection], count: int) -> int:
    """Close up to `count` idle connections, those idle longest first, when room is needed; returns how many."""
    idle = sorted((conn for conn in connections if conn.idle and conn.requests), key=lambda conn: conn.since)[:count]
    for conn in idle:
        conn.close_soon()
    return len(idle)
