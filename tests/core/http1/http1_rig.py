"""A server connection on a memory stream, a client that reads its answers, and a handler that answers 200."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.core.http1.frame import response_head
from headrace.core.http1.server import HttpConnection, ServerSettings
from headrace.testing.clock import FakeClock, settle
from headrace.testing.streams import Recorder, stream_pair

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headrace.core.http1.exchange import Exchange
    from headrace.errors import HttpError

_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


def head_for(exchange: Exchange, status: int, length: int | None = 0) -> bytes:
    """A head with the length and the Connection field that the exchange wants."""
    fields = [] if length is None else [(b"Content-Length", b"%d" % length)]
    fields.append((b"Connection", b"keep-alive" if exchange.keep_alive else b"close"))
    return response_head(status, fields)


class Answering:
    """Answers every request with 200 and its body, whole; at once when the body is here."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes, bytes]] = []
        self.errors: list[HttpError] = []
        self.closed_count = 0

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        body = exchange.body_now()
        if body is None:
            return self.later(exchange)
        self.answer(exchange, body)
        return None

    async def later(self, exchange: Exchange) -> None:
        self.answer(exchange, await exchange.read_body())

    def answer(self, exchange: Exchange, body: bytes) -> None:
        self.seen.append((exchange.head.method, exchange.head.target, body))
        exchange.respond(head_for(exchange, 200, len(body) + 2), b"ok" + body)

    def refuse(self, exchange: Exchange, error: HttpError) -> None:
        self.errors.append(error)
        exchange.respond(head_for(exchange, error.status, 0))

    def closed(self, conn: HttpConnection) -> None:
        self.closed_count += 1


class Rig:
    """near: the server's end. The client's end records. `run` moves everything until nothing is left to do."""

    def __init__(self, handler: Any = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.client = Recorder()
        self.pair = stream_pair(self.clock, far_owner=self.client)
        self.pair.far.start_reading()
        self.handler = handler or Answering()
        self.settings = ServerSettings(**settings)
        self.conn = HttpConnection(self.pair.near, self.handler, self.settings, self.clock)
        self.faults: list[BaseException] = []
        self.settings.on_error = lambda _exchange, error: self.faults.append(error)

    def send(self, data: bytes) -> None:
        """Send without letting anybody react."""
        self.pair.far.write(data)

    @property
    def ended(self) -> bool:
        """The client has seen the end of the answers."""
        return self.client.eof or bool(self.client.lost)

    @property
    def output(self) -> bytes:
        return self.client.data


def read_answers(data: bytes, methods: list[bytes]) -> list[str]:
    """Statuses of the answers in `data`; bodies are skipped by their length."""
    statuses = []
    at = 0
    while at < len(data):
        match = _ANSWER.match(data, at)
        if match is None:
            statuses.append("0.9")
            break
        at = match.end()
        statuses.append(match[1].decode())
        if match[1][:1] == b"1":
            continue
        method = methods.pop(0) if methods else b"GET"
        length = re.search(rb"(?i)content-length: (\d+)", match[2])
        if length is not None and method != b"HEAD":
            at += int(length[1])
    return statuses


def get(name: bytes = b"") -> bytes:
    return b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % name


def post(length: int, body: bytes = b"", extra: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (length, extra, body)


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end
    return b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body


class Handler(Answering):
    """Runs a function of the test for each request."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def handle(self, exchange: Exchange) -> Any:
        return self.function(exchange)


async def rig_with(function: Any, **settings: Any) -> Rig:
    rig = Rig(Handler(function), **settings)
    await settle()
    return rig


async def say(rig: Rig, data: bytes) -> bytes:
    """Send; what came back until nothing moves any more."""
    before = len(rig.output)
    rig.send(data)
    await settle()
    return rig.output[before:]
