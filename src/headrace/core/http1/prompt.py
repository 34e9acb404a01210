"""Requests that came whole, answered without an Exchange.

Most requests of a source arrive in one piece, head and body, and the answer is known as soon as the body is taken.
A handler that has `prompt` is offered such a request before anything is made for it: bytes that it returns are the
answer, written at once. Whatever takes longer, fails or is out of the ordinary goes the way of all requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.core.http1.exchange import Exchange
from headrace.core.http1.inbound import open_body
from headrace.core.http1.request import parse_request_head
from headrace.core.http1.server import BUSY, IDLE, HttpConnection
from headrace.core.http1.settings import Handler
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.settings import ServerSettings
    from headrace.core.stream import Stream


class PromptHandler(Handler, Protocol):
    """A handler that can answer without an exchange."""

    def prompt(self, conn: PromptConnection, head: RequestHead, body: bytes, keep_alive: bool) -> bytes | None:
        """Return the whole answer to a request whose body is here and as large as it may be; it must not raise.

        keep_alive: whether the connection is kept, as the answer has to say. None: `handle` is called for the same
        request before anything else happens. Not for HEAD, whose answer has no body.
        """


class PromptConnection(HttpConnection):
    """A connection whose handler has `prompt`."""

    __slots__ = ("_prompt",)

    def __init__(self, stream: Stream, handler: PromptHandler, settings: ServerSettings, clock: Clock) -> None:
        self._prompt = handler.prompt
        super().__init__(stream, handler, settings, clock)

    def data_received(self, data: bytes) -> None:
        """Answer the requests at the beginning of the bytes as far as they are answered at once."""
        if self._phase != IDLE or self._buffer or self._eof:
            super().data_received(data)
            return
        stream = self.stream
        settings = self.settings
        stats = self.stats
        rules = self._rules
        clock_now = self.clock.now  # (a slot that is called where it is read is looked up the slow way)
        prompt = self._prompt
        size = len(data)
        at = 0
        while at < size:
            try:
                head = parse_request_head(data, at, rules)
            except HttpError:
                break  # found again, and answered
            if head is None:
                break
            fields = head.fields
            length = fields.content_length
            start = at + head.length
            if not length or (end := start + length) > size or (settings.max_body and length > settings.max_body):
                break
            now = clock_now()
            number = self.requests + 1
            keep_alive = fields.keep_alive and number < self._most and now < self._until
            self._phase = BUSY
            answer = prompt(self, head, data[start:end], keep_alive)
            self._phase = IDLE
            if answer is None:
                break
            self.requests = number
            stats.requests += 1
            stats.answered += 1
            stream.write(answer)
            if (not keep_alive or stream.chain.length or stream.closed) and not self._goes_on(
                head, now, keep_alive, data, at
            ):
                return
            at = end
            if self._resting and self.due <= now + settings.keepalive_timeout:
                self.since = now  # the deadline is looked at when it comes
            else:
                self._await_request()
        else:
            return
        super().data_received(data[at:] if at else data)

    def _goes_on(self, head: RequestHead, now: float, keep_alive: bool, data: bytes, at: int) -> bool:
        """As `_go_on` after an answer that ends the connection, or that the client does not read."""
        exchange = Exchange(self, head, now, keep_alive)
        exchange.headers_sent = exchange.finished = True
        end = open_body(exchange, data, at + head.length)
        self._phase = BUSY
        if not self._go_on(exchange, data, end):
            return False
        self._phase = IDLE
        return True
