"""The answer to each request of an http source.

200 (or 204) only after every event of the request is in the buffers. 400 with the reason for input
that is wrong, and nothing of it is kept; 413 for what is too large; 503 when the buffers or the room for bodies
are full, and nothing of it is kept; 500 when an output failed. Refusals are answers and log lines, at a bounded rate,
and never events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.errors import BufferOverflow, Error, HttpError
from headrace.pipeline.event import Batch
from headrace.pipeline.throttle import Throttle
from headrace.plugins.chunk_names import batch_id
from headrace.plugins.in_http import answers
from headrace.plugins.in_http.body import FORMATS, bad, expand
from headrace.plugins.in_http.bounds import LOOKED_AT
from headrace.plugins.in_http.form import Parameters, parse_multipart, parse_urlencoded
from headrace.plugins.in_http.plan import CHUNK, FORM, MULTIPART, query_time
from headrace.plugins.in_http.times import timed
from headrace.plugins.jsoncodec import decode as decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from headrace.core.clock import Clock
    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Exchange
    from headrace.core.http1.server import HttpConnection
    from headrace.pipeline.event import Event, Record
    from headrace.plugins.in_http.plan import Plan, Planner
    from headrace.plugins.in_http.room import Room

    Emit = Callable[[str, Batch], Awaitable[None] | None]
    Parse = Callable[[bytes], list[tuple[int | None, Record]]]


_OBJECT = ord("{")


class RequestHandler:
    """Answers the requests of all connections of one source.

    parse: what a <parse> section made; None: the Content-Type decides. convert: a value of the field
    `time_key` to nanoseconds. room: for the bodies of all connections. log: None to write no line about
    refused requests.
    """

    def __init__(
        self,
        planner: Planner,
        emit: Emit,
        clock: Clock,
        *,
        parse: Parse | None,
        time_key: str,
        keep_time_key: bool,
        convert: Callable[[Any], int],
        expanded_limit: int,
        room: Room,
        log: logging.Logger | None,
    ) -> None:
        self._planner = planner
        self._plans = planner.kept
        self.emit = emit
        self._clock = clock
        self._parse = parse
        self._time_key = time_key
        self._keep_time_key = keep_time_key
        self._convert = convert
        self._remote_addr = planner.options.remote_addr
        self._expanded_limit = expanded_limit
        self._log = log
        self._lines = {status: Throttle() for status in (400, 500, 503)}
        self.connections: set[HttpConnection] = set()
        self._empty: asyncio.Event | None = None
        self.room = room
        self._begun: Awaitable[None] | Exception | None = None
        """What became of a body that `prompt` took, for `handle` of the same request."""
        self.requests = 0
        self.events = 0
        self.refused: Counter[int] = Counter()

    def prompt(self, conn: HttpConnection, head: RequestHead, body: bytes, keep_alive: bool) -> bytes | None:
        """Answer now when the buffers take the events of the body at once."""
        try:
            plan = self._plans.get(head.shape) or self._planner.plan(head)
            if plan.final:
                return None
            if self.room.used:
                self.room.check(len(body))
            if plan.plain and body[0] == _OBJECT and len(body) < LOOKED_AT:
                # As `_take`, without a call more: one record a request is the most common body by far.
                try:
                    record = decode_json(body)
                except ValueError as error:
                    raise bad(str(error)) from error
                wall_ns, emit = self._clock.wall_ns, self.emit
                now = wall_ns()
                events = [(now, record)] if self._time_key not in record else self._timed([record], None, now)
                pending = emit(plan.tag, Batch(events, None, 1))
                self.events += 1
                if pending is not None:
                    pending = self.room.hold(len(body), pending)
            else:
                pending = self._take(conn, head, plan, body)
        except Exception as error:  # noqa: BLE001 - raised by `handle`
            self._begun = error
            return None
        if pending is not None:
            self._begun = pending
            return None
        self.requests += 1
        return plan.kept_whole if keep_alive else plan.closing_whole

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Answer now when the body is here and the buffers take it, otherwise return what does it."""
        self.requests += 1
        begun, self._begun = self._begun, None
        if isinstance(begun, Exception):
            raise _as_status(begun) if isinstance(begun, Error) else begun
        head = exchange.head
        plan = self._plans.get(head.shape) or self._planner.plan(head)
        if begun is not None:
            return self._when_taken(exchange, plan, begun)
        if not plan.final:
            body = exchange.body_now()
            if body is None:
                return self._later(exchange, plan)
            self.room.check(len(body))
            pending = self._take(exchange.conn, head, plan, body)
            if pending is not None:
                return self._when_taken(exchange, plan, pending)
        self._answer(exchange, plan)
        return None

    async def _later(self, exchange: Exchange, plan: Plan) -> None:
        room = self.room
        room.check(exchange.head.content_length or 0)
        held = 0
        parts = []
        try:
            while part := await exchange.next_chunk():
                room.take(len(part))
                held += len(part)
                parts.append(part)
            pending = self._take(exchange.conn, exchange.head, plan, b"".join(parts))
        finally:
            room.give(held)
        del parts
        if pending is None:
            self._answer(exchange, plan)
        else:
            await self._when_taken(exchange, plan, pending)

    async def _when_taken(self, exchange: Exchange, plan: Plan, pending: Awaitable[None]) -> None:
        try:
            await pending
        except Error as error:
            raise _as_status(error) from error
        self._answer(exchange, plan)

    def _answer(self, exchange: Exchange, plan: Plan) -> None:
        exchange.respond(plan.kept if exchange.keep_alive else plan.closing, plan.body)

    def _take(self, conn: HttpConnection, head: RequestHead, plan: Plan, body: bytes) -> Awaitable[None] | None:
        """Decode a body and emit its events; None when they are in the buffers. Raises HttpError."""
        if plan.coding:
            body = expand(plan.coding, body, self._expanded_limit)
        now = self._clock.wall_ns()
        events: list[Event]
        if plan.decode is not None:
            events = self._timed(plan.decode(body), plan.time, now)
        elif self._parse is not None:
            given = plan.time
            events = [(given or (now if time is None else time), record) for time, record in self._parse(body)]
        else:
            parameters = self._parameters(plan, body)
            events = self._timed(_of_parameters(parameters), query_time(parameters), now)
        if plan.added or self._remote_addr:
            self._add(conn, plan, events)
        if not events:
            return None
        batch = Batch(events, None, len(events))
        if plan.named:
            batch.id = batch_id(plan.tag.encode("utf-8", "surrogateescape"), head.header(CHUNK) or b"")
        try:
            pending = self.emit(plan.tag, batch)
        except Error as error:
            raise _as_status(error) from error
        self.events += batch.count
        return None if pending is None else self.room.hold(len(body), pending)

    def _timed(self, records: list[Record], time: int | None, now: int) -> list[Event]:
        """Give records the time of the request, or that of their own field, or now."""
        if time is not None:
            return [(time, record) for record in records]
        key = self._time_key
        events = [(now, record) for record in records if key not in record]
        if len(events) == len(records):
            return events
        return timed(records, now, key=key, keep=self._keep_time_key, convert=self._convert)

    def _add(self, conn: HttpConnection, plan: Plan, events: list[Event]) -> None:
        """Add to each record what its request says."""
        added = plan.added
        if self._remote_addr:
            peer = conn.peer
            added = {**added, "REMOTE_ADDR": plan.forwarded or (peer if isinstance(peer, str) else peer[0])}
        for _, record in events:
            record.update(added)

    @staticmethod
    def _parameters(plan: Plan, body: bytes) -> Parameters:
        if plan.media == FORM:
            return {**plan.query, **parse_urlencoded(body)}
        if plan.media == MULTIPART:
            return {**plan.query, **parse_multipart(body, plan.content_type)}
        return plan.query

    def refuse(self, exchange: Exchange, error: HttpError) -> None:
        """Answer a request that failed, and log it."""
        status = error.status
        self.refused[status] += 1
        if self._log is not None and (throttle := self._lines.get(status)) is not None:
            level = logging.WARNING if status == 503 else logging.ERROR
            throttle.log(self._log, level, "failed to process request: status=%d error=%s", status, error.message)
        if error.close:
            exchange.keep_alive = False
        body = answers.told(status, error.message)
        fields = answers.TEXT + self._planner.cors_fields(exchange.head)
        if status == 503:
            fields += b"Retry-After: 1\r\n"
        exchange.respond(answers.head(status, fields, len(body), keep_alive=exchange.keep_alive), body)

    def closed(self, conn: HttpConnection) -> None:
        """Forget a connection that is gone."""
        self.connections.discard(conn)
        if self._empty is not None and not self.connections:
            self._empty.set()

    async def all_closed(self) -> None:
        """Return when no connection is left."""
        if self.connections:
            self._empty = asyncio.Event()
            await self._empty.wait()


def _of_parameters(parameters: Parameters) -> list[Record]:
    for name, decode in FORMATS.items():
        value = parameters.get(name.encode())
        if value is not None:
            return decode(value)
    raise bad("'json', 'ndjson' or 'msgpack' parameter is required")


def _as_status(error: Error) -> HttpError:
    if isinstance(error, HttpError):
        return error
    status = 503 if isinstance(error, BufferOverflow) else 500
    return HttpError(status, error.message, close=False)
