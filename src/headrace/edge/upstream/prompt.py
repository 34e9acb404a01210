"""Visits without a task: a kept connection, one write, and an answer that comes whole.

That is most requests of a gateway with keep-alive upstreams. The visit borrows a connection of its group's pool, is
called when there is something to read, and answers from there. What does not go this way (no kept connection, a
failure, an answer that is long or that the gateway has to act on) goes on in a task from where it is: all of it but the
waiting is Visit's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core.http1.dispatch import drive, spawn
from headrace.edge import names, phases
from headrace.edge.upstream import link
from headrace.edge.upstream.answer import NO_ORDERS, answered_here, orders_of, take_answer
from headrace.edge.upstream.body import send_ask
from headrace.edge.upstream.reply import Failed
from headrace.edge.upstream.settings import NEXT_STATUSES, TIMEOUT
from headrace.edge.upstream.state import Try, state_of
from headrace.edge.upstream.steer import Steered
from headrace.edge.upstream.visit import HEADER, UNSAFE, Visit

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.http1.events import ResponseHead
    from headrace.core.pool import Lent
    from headrace.edge.request import Request
    from headrace.edge.upstream.answer import Orders
    from headrace.edge.upstream.http import HttpService
    from headrace.edge.upstream.peers import Chooser, Peer
    from headrace.edge.upstream.service import Route

_OK: Final = 200
_SWITCHED: Final = 101
_TAKEN_OVER: Final = frozenset((_SWITCHED, *NEXT_STATUSES))
"""Statuses whose answers may be more than an answer."""
_KEPT: Final = 128
_KEPT_SIZE: Final = 1024
"""Heads of answers that a location remembers, and how long they may be (bytes)."""


def begin(request: Request, service: HttpService, route: Route) -> int | Awaitable[int | None]:
    """As a content handler. The route is fixed, and nothing of the location needs more than PromptVisit knows."""
    exchange, group = request.exchange, route.group
    if (
        group.pool is None
        or not exchange.conn.serving
        or request.parent is not None
        or exchange.refused
        or (exchange.body is not None and not exchange.body.done)
    ):
        return Visit(request, service).run()
    chooser = None
    if group.make is not None or not group.single:
        chooser = group.chooser(request)
        if isinstance(chooser, Steered):
            return Visit(request, service).run()
    return PromptVisit(request, service).begin(service, route, chooser)


class Known:
    """A head that upstreams send again and again, before an answer with nothing special about it.

    length: of the body. reason: b"" for the usual one. fields: for the client.
    """

    __slots__ = ("content_type", "fields", "head", "length", "reason", "status")

    def __init__(self, head: ResponseHead, fields: list[tuple[bytes, bytes]]) -> None:
        self.head = head
        self.status = head.status
        self.reason = head.reason if names.REASONS.get(head.status) != head.reason else b""
        self.content_type = head.header(b"content-type")
        self.length = 0 if head.bodyless else head.content_length
        self.fields = fields


class PromptVisit(Visit):
    """lent: the connection, while it is borrowed. lone: its group has one peer, and no chooser was made. See Visit."""

    service: HttpService
    lent: Lent | None = None
    lone = False
    heard = False
    """The reader has got what came."""

    def begin(self, service: HttpService, route: Route, chooser: Chooser | None) -> int | Awaitable[int | None]:
        """Send the request, if a kept connection is there for it."""
        request, settings, group = self.request, self.settings, route.group
        exchange = request.exchange
        state = self.state = state_of(request)
        state.begin()
        self.route = route
        state.scheme, state.host, state.port = route.scheme, route.host, route.port
        ask = service.bodyless_ask(request, route) if exchange.body is None and not request.body_read else None
        if ask is None:
            request.read_body()
            ask = service.ask(request, route, stream=False)
        else:
            request.body_read, request.body = True, b""
        self.ask = ask
        state.uri = ask.uri
        self._begun = now = self.started
        if chooser is None:
            peer: Peer | None = group.primary.peers[0]
            assert peer is not None
            if peer.down or (peer.max_conns and peer.conns >= peer.max_conns):
                return self.watched(self._without_chooser())
            peer.conns += 1
            self.lone = True
        else:
            self.chooser = chooser
            self.limit_tries()
            peer = chooser.choose(now)
            if peer is None:
                return self.watched(self.tries(group))
        self.peer = peer
        trial = self.trial = Try()
        state.tries.append(trial)
        trial.addr = peer.name
        key = self.key = (peer.name, None, "", settings.prefix)
        pool = group.pool
        assert pool is not None
        lent = pool.borrow(key, self, sure=request.method in UNSAFE) if ask.file is None else None
        if lent is None:
            self._make_chooser()
            return self.watched(self.tries(group, self._one(group, peer)))
        self.lent = lent
        self.cached = self.sent = True
        trial.connect_time = 0.0
        stream = self.stream = lent.stream
        stream.send_timeout = settings.send_timeout
        self._base = stream.chain.sent
        if settings.ignore_abort:
            self.patient = True
        else:
            exchange.on_abort = self._client_gone
            exchange.abort_on_eof = True
        if ask.body:
            send_ask(self, stream)
        else:
            stream.write(ask.head)
        self.clock.schedule(lent, settings.read_timeout)
        return phases.LATER

    def _make_chooser(self) -> None:
        if self.lone:
            self.lone = False
            self.chooser = self.route.group.chooser(self.request)
            self.limit_tries()

    async def _without_chooser(self) -> int | None:
        self.lone = True
        self._make_chooser()
        return await self.tries(self.route.group)

    # what is heard of the connection

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        try:
            if not self.heard:
                end = data.find(b"\r\n\r\n") + 4
                known = self.service.known.get(data[:end])
                if known is not None and known.length == len(data) - end and self.ask.method != b"HEAD":
                    self._end_known(known, data[end:], len(data))
                    return
                self._hear_on()
            pieces = self.hear(data)
            if pieces is None:
                assert self.lent is not None
                self.clock.schedule(self.lent, self.settings.read_timeout)
            elif not self.reader.done or self.head.status in _TAKEN_OVER:
                self._go_on(self._heard(pieces))
            else:
                self._end(pieces)
        except Exception as error:  # noqa: BLE001 - of this request, not of the connection
            self._go_on(self._raise(error))

    def _hear_on(self) -> None:
        """From here on the answer is read as any other."""
        if not self.heard:
            self.heard = True
            self.keep = self.route.group.keep
            self.reader = self.service.reader(self.request, self.ask)

    def eof_received(self) -> None:
        """The upstream sends no more."""
        self._go_on(self.listen())

    def connection_lost(self, _error: Exception | None) -> None:
        """The connection is gone."""
        self._go_on(self.listen())

    def expired(self) -> None:
        """Nothing has come for proxy_read_timeout."""
        assert self.lent is not None
        if self.lent.stream.chain.length:  # the other deadline counts as long as the request is on its way
            self.clock.schedule(self.lent, self.settings.read_timeout)
        else:
            text = f"upstream timed out (110: Connection timed out) while {HEADER}"
            self._go_on(self._raise(Failed(TIMEOUT, 504, text)))

    def _client_gone(self) -> None:
        if self.lent is None:
            super()._client_gone()
            return
        self.gone = True
        self._unborrow()
        code = self.interrupted()
        self.close()
        self._finish(_of(code))

    # the end

    def _end(self, pieces: list[bytes]) -> None:
        """The answer is whole."""
        request = self.request
        exchange = request.exchange
        exchange.on_abort = None
        exchange.abort_on_eof = False
        self.trial.status = self.head.status
        orders = orders_of(self.head, self.settings)
        code = answered_here(self, orders)
        if code is None and not take_answer(self, orders):
            self.done()
            code = 416
        if code is not None:
            self._finish(_of(code))
            return
        self._remember(orders)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.trial.length = len(body)
        self.done()
        request.end_with(body)
        if not request.finished:  # a filter of its own is not done with it
            self._finish(_of(phases.DONE))

    def _remember(self, orders: Orders) -> None:
        """An answer with this head needs no look at it the next time."""
        head, settings = self.head, self.settings
        fields = settings.known.get(head)
        if (
            fields is not None
            and orders is NO_ORDERS
            and len(head.raw) <= _KEPT_SIZE
            and head.raw.endswith(b"\r\n\r\n")
            and head.status >= _OK
            and head.keep_alive
            and not (head.chunked or settings.own_server or settings.force_ranges)
            and (head.content_length is not None or head.bodyless)
            and self.ask.method != b"HEAD"
        ):
            known = self.service.known
            if len(known) >= _KEPT:
                known.clear()
            known[head.raw] = Known(head, fields)

    def _end_known(self, known: Known, body: bytes, received: int) -> None:
        """The answer is whole, and its head is one that was seen before."""
        request, lent = self.request, self.lent
        assert lent is not None
        exchange, stream, trial, peer = request.exchange, lent.stream, self.trial, self.peer
        exchange.on_abort = None
        exchange.abort_on_eof = False
        now = self.clock.now()
        trial.header_time = trial.response_time = now - self._begun
        trial.status = known.status
        trial.received = received
        trial.length = len(body)
        trial.sent = stream.chain.sent - self._base
        self.state.head = known.head
        if self.lone:
            assert peer is not None
            peer.conns -= 1
            peer.fails = 0
            self.peer = None
        else:
            self._free(failed=False)
        if stream.chain.length:
            self._drop()
        else:
            self.put_back()
        request.status = known.status
        if known.reason:
            request.reason = known.reason
        if known.content_type is not None:
            request.content_type = known.content_type
        elif request.content_type is None:
            request.content_type = b""
        request.content_length = known.length
        if known.fields:
            request.headers_out.fields.extend(known.fields)
        request.end_with(body)
        if not request.finished:
            self._finish(_of(phases.DONE))

    def _free(self, *, failed: bool) -> None:
        self._make_chooser()
        super()._free(failed=failed)

    def put_back(self) -> None:
        """See Visit."""
        lent, self.lent = self.lent, None
        if lent is None:
            super().put_back()
            return
        self.stream = None
        group = self.route.group
        keep = group.keep
        assert keep is not None
        if keep.lifetime is not None and link.age(group, lent.stream, self.clock) >= keep.lifetime:
            link.drop(lent.release())
        else:
            lent.pool.give_back(lent, idle_timeout=keep.timeout, max_requests=keep.requests)

    def _drop(self) -> None:
        self._unborrow()
        super()._drop()

    def _unborrow(self) -> None:
        """The connection is this visit's for good."""
        lent, self.lent = self.lent, None
        if lent is not None:
            lent.release()

    def _go_on(self, begun: Awaitable[list[bytes]]) -> None:
        """Wait in a task from here on."""
        self._hear_on()
        self._make_chooser()
        self._unborrow()
        self._finish(self.watched(self.tries(self.route.group, begun)))

    def _finish(self, result: Awaitable[int | None]) -> None:
        request = self.request
        exchange = request.exchange
        spawn(drive(exchange.conn, phases.go_on(request, result), exchange))

    async def _heard(self, pieces: list[bytes]) -> list[bytes]:
        return pieces

    async def _raise(self, error: Exception) -> list[bytes]:
        raise error


async def _of(code: int) -> int:
    return code
