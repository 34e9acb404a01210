"""Which protocol a client speaks that did not say so by ALPN: the first bytes of HTTP/2 are no request of HTTP/1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.clock import NEVER, Timed
from headrace.core.http2.frames import PREFACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.core.stream import Stream


class Preface(Timed):
    """Owner of a fresh stream until it has said enough.

    then: called once with the stream, whether it speaks HTTP/2, and the bytes that came (without the preface).
    gone: called instead when it said nothing until it closed, or within `timeout` seconds.
    """

    __slots__ = ("_clock", "_data", "_gone", "_only", "_stream", "_then")

    def __init__(
        self,
        stream: Stream,
        clock: Clock,
        timeout: float,
        *,
        only: bool,
        then: Callable[[Stream, bool, bytes], object],
        gone: Callable[[], object],
    ) -> None:
        self.due = NEVER
        self.tick = 0
        self._stream = stream
        self._clock = clock
        self._data = b""
        self._only = only
        self._then = then
        self._gone = gone
        clock.schedule(self, timeout)
        stream.set_owner(self)
        stream.start_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        data = self._data + data
        if data.startswith(PREFACE):
            self._over(data[len(PREFACE) :], speaks=True)
        elif PREFACE.startswith(data):
            self._data = data
        elif self._only:
            self._stream.close()
        else:
            self._over(data, speaks=False)

    def _over(self, data: bytes, *, speaks: bool) -> None:
        self._clock.cancel(self)
        self._then(self._stream, speaks, data)

    def eof_received(self) -> None:
        """The client has said what it had to say."""
        self._stream.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """The stream is closed."""
        self._clock.cancel(self)
        self._gone()

    def expired(self) -> None:
        """Nothing came in time."""
        self._stream.close()
