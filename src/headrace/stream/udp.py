"""Datagrams of a session both ways, and when it is over.

Nobody says that a UDP session ends: it does when as many datagrams of the client have come as proxy_requests tells and
each has as many answers as proxy_responses tells, or when proxy_timeout passes without any.
https://nginx.org/en/docs/stream/ngx_stream_proxy_module.html#proxy_requests
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.core.clock import NEVER, Deadline, Timed
from headrace.core.datagram import QUEUE, DatagramLink
from headrace.core.failure import failure
from headrace.core.names import literal
from headrace.edge import log
from headrace.edge.values import to_bytes
from headrace.errors import ConnectionFailed
from headrace.stream.settings import rate_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.core.connect import Target
    from headrace.core.datagram import DatagramPeer
    from headrace.stream.session import Session
    from headrace.stream.settings import ProxySettings, Try

OK: Final = 200
BAD_GATEWAY: Final = 502


def connect(target: Target, local: tuple[str, int] | None) -> DatagramLink:
    """A socket towards a peer. Raises ConnectionFailed."""
    if target.unix is not None:
        raise ConnectionFailed("connect() failed (93: Protocol not supported)", kind="refused")
    known = literal(target.host, target.port)
    if known is None:
        raise ConnectionFailed(f"{target.host} is not an address", kind="dns")
    family, address = known[0]
    try:
        return DatagramLink(family, address, asyncio.get_running_loop(), local)
    except OSError as error:
        raise failure("connect()", error) from error


class Paced:
    """One direction of a session: passes datagrams on, at most `rate` bytes a second (0: all at once).

    What comes too early waits, a bounded number of datagrams.
    """

    __slots__ = ("_began", "_clock", "_free", "_pass", "_rate", "_timer", "count", "moved", "waiting")

    def __init__(self, clock: Clock, rate: int, give: Callable[[bytes], None], free: Callable[[], None]) -> None:
        self.count = 0
        self.moved = 0
        self.waiting: deque[bytes] = deque()
        self._clock = clock
        self._rate = rate
        self._pass = give
        self._free = free
        self._began = clock.now()
        self._timer: Deadline | None = None

    def give(self, data: bytes) -> None:
        """A datagram has come."""
        if self._timer is not None:
            if len(self.waiting) < QUEUE:
                self.waiting.append(data)
            return
        self._send(data)

    def _send(self, data: bytes) -> None:
        self.count += 1
        self.moved += len(data)
        self._pass(data)
        if self._rate and data:
            behind = self.moved / self._rate - (int(self._clock.now() - self._began) + 1)
            self._timer = self._clock.deadline(max(len(data) / self._rate, behind), self._resume)

    def _resume(self) -> None:
        self._timer = None
        while self.waiting and self._timer is None:
            self._send(self.waiting.popleft())
        self._free()

    def stop(self) -> None:
        """Pass on nothing more."""
        self.waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class DatagramRelay(Timed):
    """One session towards one peer. header: comes before the first datagram, in one with it.

    failed: the peer gave an error, or too few answers.
    """

    __slots__ = ("_client", "_done", "_down", "_header", "_up", "clock", "failed", "link", "one", "session", "settings")

    def __init__(self, session: Session, settings: ProxySettings, link: DatagramLink, one: Try, header: bytes) -> None:
        self.due = NEVER
        self.tick = 0
        assert session.datagrams is not None
        self._client: DatagramPeer = session.datagrams
        self.session = session
        self.settings = settings
        self.link = link
        self.one = one
        self._header = header
        self.clock: Clock = session.clock
        self.failed = False
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        up, down = (rate_of(session.value(rate)) for rate in (settings.upload_rate, settings.download_rate))
        self._up = Paced(self.clock, up, self._to_peer, self._look)
        self._down = Paced(self.clock, down, self._to_client, self._look)

    async def run(self) -> int:
        """Until the session is over; its status."""
        session, client = self.session, self._client
        self.clock.schedule(self, self.settings.timeout)
        session.on_stop = self.stop
        try:
            self.link.start(self._from_peer, self._broken)
            first, session.begun = session.begun, b""
            self._up.give(self._header + first)
            while not self._done.done() and (data := client.take()) is not None:
                self._from_client(data)
            client.sink = self._from_client
            self._look()
            return await self._done
        finally:
            session.on_stop = None
            client.sink = None
            self.clock.cancel(self)
            self._up.stop()
            self._down.stop()
            self.link.close()

    def _from_client(self, data: bytes) -> None:
        self.session.received += len(data)
        self.clock.schedule(self, self.settings.timeout)
        self._up.give(data)
        self._look()

    def _to_peer(self, data: bytes) -> None:
        self.one.sent += len(data)
        try:
            self.link.write(data)
        except OSError as error:
            self._say(log.ERR, b"%b while proxying and sending to upstream", "send()", error)

    def _from_peer(self, data: bytes) -> None:
        if self.one.first_byte is None:
            self.one.first_byte = self.clock.now() - self.one.begin
        self.one.received += len(data)
        self.clock.schedule(self, self.settings.timeout)
        self._down.give(data)
        self._look()

    def _to_client(self, data: bytes) -> None:
        try:
            self._client.write(data)
            self.session.sent += len(data)
        except ConnectionFailed as error:
            self.session.log_error(log.ERR, to_bytes(error.message) + b" while proxying and sending to client")

    def _broken(self, error: OSError) -> None:
        self._say(log.ERR, b"%b while proxying and reading from upstream", "recv()", error)
        self._down.count += 1  # nobody listens there: that is the answer
        self._look()

    def _say(self, level: int, text: bytes, call: str, error: OSError) -> None:
        self.failed = True
        number = error.errno or 0
        self.session.log_error(
            level, text % (b"%b failed (%d: %b)" % (call.encode(), number, os.strerror(number).encode()))
        )

    @property
    def _answered(self) -> bool:
        responses = self.settings.responses
        return responses is not None and self._down.count >= responses * self._up.count

    def _look(self) -> None:
        """Whether the session is over."""
        if self._up.count < self.settings.requests or not self._answered or self._up.waiting or self._down.waiting:
            return
        self._end("done", OK)

    def expired(self) -> None:
        """Nothing has come for proxy_timeout."""
        if self.settings.responses is None or self._answered:
            self._end("timed out", OK)
        elif not self._done.done():
            self.failed = True
            self.session.log_error(log.ERR, b"upstream timed out (110: Connection timed out) while proxying connection")
            self._done.set_result(BAD_GATEWAY)

    def stop(self) -> None:
        """The worker stops: a session ends now, unless answers are known to be missing."""
        if self.settings.responses is None or self._answered:
            self._end("disconnected on shutdown", OK)

    def _end(self, how: str, status: int) -> None:
        if self._done.done():
            return
        self._done.set_result(status)
        session, one = self.session, self.one
        self.session.note(
            b"%b, packets from/to client:%d/%d, bytes from/to client:%d/%d, bytes from/to upstream:%d/%d"
            % (how.encode(), self._up.count, self._down.count, session.received, session.sent, one.received, one.sent)
        )
