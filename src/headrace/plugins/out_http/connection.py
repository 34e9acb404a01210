"""The connection of one flush lane: the lane owns it, so nothing here locks.

Rules:
- A kept connection is looked at before it is written to; one that the peer closed, or on which
  something came unasked, is discarded and another opened. One that answered a moment ago is not asked
  again: the loop watches it, and tells.
- A request whose connection breaks before any byte of the reply came is sent once more, on a fresh
  connection, inside the same flush. A timeout is no break: the peer may be working on the request.
- A reply is read to its end before the connection is kept; one that cannot be is closed.
- Another scheme, host, port or proxy closes the connection and opens another; another path does not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headrace.core.http1.client import exchange
from headrace.errors import ConnectionFailed, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.core.http1.client import Response
    from headrace.core.stream import Stream
    from headrace.plugins.out_http.endpoint import Endpoint

    Dial = Callable[[Endpoint], Awaitable[Stream]]

MAX_REPLY: Final = 1 << 20
"""Bytes of a reply's body that are kept; a connection whose reply is much longer is not kept."""

FRESH: Final = 0.05
"""Seconds for which what the loop has seen of a kept connection is enough: no peer ends an idle one so soon, and
a loop that was held up for longer has seen nothing."""

_JOINED: Final = 16 << 10
"""Bytes of a body below which copying it behind the head is cheaper than a gathered write."""


@dataclass(slots=True)
class Counters:
    """What became of connections. They only grow.

    opened: dialled with success. reused: requests on a connection that was kept. discarded_stale: found
    closed, or with bytes nobody asked for, before a request. failed: dials and requests that broke.
    replaced: closed because the endpoint changed. resent: requests sent a second time.
    """

    opened: int = 0
    reused: int = 0
    discarded_stale: int = 0
    failed: int = 0
    replaced: int = 0
    resent: int = 0

    def as_dict(self) -> dict[str, int]:
        """The figures by name."""
        return asdict(self)


class LaneConnection:
    """At most one open connection, and the requests on it, one after the other.

    dial: opens a connection to an endpoint. now: the clock, in seconds. reuse: keep it after a reply that allows it.
    read_timeout: seconds between two reads of a reply. max_reply: bytes of a reply's body that are kept.
    """

    def __init__(
        self,
        dial: Dial,
        now: Callable[[], float],
        *,
        method: bytes,
        reuse: bool,
        read_timeout: float | None,
        max_reply: int = MAX_REPLY,
    ) -> None:
        self.counters = Counters()
        self.stream: Stream | None = None
        self._identity: tuple[str, str, int] | None = None
        self._dial = dial
        self._now = now
        self._kept_at = 0.0
        self._method = method
        self._reuse = reuse
        self._read_timeout = read_timeout
        self._max_reply = max_reply

    async def send(self, endpoint: Endpoint, head: bytes, body: bytes, method: bytes | None = None) -> Response:
        """Send a request and read the whole reply.

        head: with its empty line. method: of this request, where it is not the usual one. Raises ConnectionFailed
        (Timeout among them), retryable.
        """
        counters = self.counters
        stream = self._take(endpoint)
        if stream is None:
            stream = await self._open(endpoint)
        else:
            counters.reused += 1
        try:
            return await self._exchange(stream, head, body, method)
        except ConnectionFailed as error:
            counters.failed += 1
            if isinstance(error, Timeout) or getattr(error, "reply_started", False):
                raise
        counters.resent += 1
        stream = await self._open(endpoint)
        try:
            return await self._exchange(stream, head, body, method)
        except ConnectionFailed:
            counters.failed += 1
            raise

    async def _exchange(self, stream: Stream, head: bytes, body: bytes, method: bytes | None) -> Response:
        # While a request is under way the connection is nobody's to keep: whatever ends this wait early,
        # cancellation included, must not leave half a reply to the next request.
        self.stream = None
        response: Response | None = None
        if len(body) < _JOINED:
            head, body = head + body, b""
        try:
            response = await exchange(
                stream,
                head,
                body,
                method=method or self._method,
                read_timeout=self._read_timeout,
                max_body=self._max_reply,
            )
            return response
        finally:
            if response is None or stream.chain.length:
                stream.abort()  # close() would go on sending what nobody will answer
            elif self._reuse and response.keep_alive:
                self.stream = stream
                self._kept_at = self._now()
            else:
                stream.close()

    def _take(self, endpoint: Endpoint) -> Stream | None:
        """The kept connection if it leads to this endpoint and is idle; anything else is closed."""
        stream, self.stream = self.stream, None
        if stream is None:
            return None
        if self._identity != endpoint.identity:
            self.counters.replaced += 1
        elif (stream.quiet and self._now() - self._kept_at < FRESH) or stream.probe() == "idle":
            return stream
        else:
            self.counters.discarded_stale += 1
        stream.close()
        return None

    async def _open(self, endpoint: Endpoint) -> Stream:
        try:
            stream = await self._dial(endpoint)
        except ConnectionFailed:
            self.counters.failed += 1
            raise
        self.counters.opened += 1
        self._identity = endpoint.identity
        return stream

    def close(self) -> None:
        """Close the kept connection."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()
