"""What a server connection is told: times, limits, switches, counters, and who answers.

The names follow nginx's core module (https://nginx.org/en/docs/http/ngx_http_core_module.html);
the defaults are nginx's too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.http1.request import HeadRules

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headrace.core.http1.exchange import Exchange
    from headrace.core.http1.server import HttpConnection
    from headrace.errors import HttpError


@dataclass(slots=True)
class ServerStats:
    """Counters of all connections that share them. They only grow, except `connections`.

    accepted, connections: connections ever and now. requests, answered: begun and ended.
    refused: requests answered by `Handler.refuse`. timeouts: connections ended by a deadline while a
    request or an answer was under way. aborted: requests whose client went away before the answer ended.
    """

    accepted: int = 0
    connections: int = 0
    requests: int = 0
    answered: int = 0
    refused: int = 0
    timeouts: int = 0
    aborted: int = 0

    @property
    def busy(self) -> int:
        """Requests being answered now."""
        return self.requests - self.answered

    @property
    def idle(self) -> int:
        """Connections without a request now."""
        return self.connections - self.busy


@dataclass(slots=True)
class ServerSettings:
    """Settings of server connections; shared by all connections of one listener.

    Times are in seconds, sizes in bytes.

    header_timeout: the whole head must have come within it, counted from its first byte (for the first
    request from the accept). body_timeout: between two reads of a body; body_min_rate: bytes/s that a
    body must come at on average once it took longer than body_timeout, 0 for any. send_timeout: between
    two successful writes. keepalive_timeout: idle between requests; 0 closes after each answer.
    keepalive_requests, keepalive_time: a connection older than either is closed after its answer.
    header_buffer, large_headers: client_header_buffer_size and large_client_header_buffers
    (number, size). max_headers: lines of one head. max_body: decoded body bytes; 0 is unlimited.
    body_buffer: body bytes held for a handler that lags before reading pauses.
    lingering_close: read and drop what still comes after the last answer, so that the client can read
    it: at most lingering_time in all and lingering_timeout between reads.
    http2_streams: requests at the same time on one HTTP/2 connection. http2_preread: bytes of a body that are taken
    before the handler wants them. http2_chunk: bytes of a body in one frame.
    on_error: told of exceptions that a handler let escape (they are answered with 500).
    """

    header_timeout: float = 60.0
    body_timeout: float = 60.0
    body_min_rate: float = 0.0
    send_timeout: float = 60.0
    keepalive_timeout: float = 75.0
    keepalive_requests: int = 1000
    keepalive_time: float = 3600.0
    header_buffer: int = 1024
    large_headers: tuple[int, int] = (4, 8192)
    max_headers: int = 1000
    max_body: int = 1 << 20
    body_buffer: int = 65536
    ignore_invalid_headers: bool = True
    underscores_in_headers: bool = False
    lingering_close: bool = True
    lingering_time: float = 30.0
    lingering_timeout: float = 5.0
    http2_streams: int = 128
    http2_preread: int = 65536
    http2_chunk: int = 8192
    on_error: Callable[[Exchange, BaseException], None] | None = None
    stats: ServerStats = field(default_factory=ServerStats)
    _rules: HeadRules | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def rules(self) -> HeadRules:
        """The rules for heads, compiled at the first use; settings of heads do not change after it."""
        if self._rules is None:
            self._rules = HeadRules(
                header_buffer=self.header_buffer,
                large=self.large_headers,
                max_headers=self.max_headers,
                ignore_invalid=self.ignore_invalid_headers,
                underscores=self.underscores_in_headers,
            )
        return self._rules


class Handler(Protocol):
    """Who answers the requests of a connection.

    An `HttpError` that escapes from `handle` or from its coroutine is given to `refuse` when nothing was
    sent yet. A `handle` that returns None without having finished the exchange keeps it and finishes
    later; the connection waits.
    """

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Answer now, or return a coroutine that the connection runs as a task."""

    def refuse(self, exchange: Exchange, error: HttpError) -> Coroutine[Any, Any, None] | None:
        """Answer a request that cannot be served (malformed, too large, too slow, or a failed handler).

        `exchange.head` may be partial (`RequestHead.partial`). Returning None without an answer closes the
        connection silently.
        """

    def closed(self, conn: HttpConnection) -> None:
        """The connection is gone (closed, or handed over by `Exchange.upgrade`). Called once."""
