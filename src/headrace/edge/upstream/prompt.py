"""Visits without a task: a kept connection, one write, and an answer that comes whole.

That is most requests of a gateway with keep-alive upstreams. The visit borrows a connection of its group's pool, is
called when there is something to read, and answers from there. What does not go this way (no kept connection, a
failure, an answer that is long or that the gateway has to act on) goes on in a task from where it is: all of it but the
waiting is Visit's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core.http1.dispatch import drive, spawn
from headrace.edge import phases
from headrace.edge.upstream import link
from headrace.edge.upstream.answer import answered_here, orders_of, take_answer
from headrace.edge.upstream.reply import Failed
from headrace.edge.upstream.settings import NEXT_STATUSES, TIMEOUT
from headrace.edge.upstream.state import state_of
from headrace.edge.upstream.steer import Steered
from headrace.edge.upstream.visit import HEADER, UNSAFE, Visit

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.pool import Lent
    from headrace.edge.request import Request
    from headrace.edge.upstream.peers import Chooser
    from headrace.edge.upstream.routing import PassService
    from headrace.edge.upstream.service import Route

_SWITCHED: Final = 101
_TAKEN_OVER: Final = frozenset((_SWITCHED, *NEXT_STATUSES))
"""Statuses whose answers may be more than an answer."""


def begin(request: Request, service: PassService, route: Route) -> int | Awaitable[int | None]:
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
    chooser = group.chooser(request)
    if isinstance(chooser, Steered):
        return Visit(request, service).run()
    return PromptVisit(request, service).begin(route, chooser)


class PromptVisit(Visit):
    """lent: the connection, while it is borrowed. See Visit."""

    lent: Lent | None = None

    def begin(self, route: Route, chooser: Chooser) -> int | Awaitable[int | None]:
        """Send the request, if a kept connection is there for it."""
        request, service, settings = self.request, self.service, self.settings
        request.read_body()
        state = self.state = state_of(request)
        state.begin()
        self.route = route
        state.scheme, state.host, state.port = route.scheme, route.host, route.port
        ask = self.ask = service.ask(request, route, stream=False)
        state.uri = ask.uri
        group = route.group
        self.chooser = chooser
        self.limit_tries()
        self._begun = now = self.started
        peer = self.peer = chooser.choose(now)
        if peer is None:
            return self.watched(self.tries(group))
        trial = self.trial = state.next_try()
        trial.addr = peer.name
        key = self.key = link.key_of(peer, None, "", settings.prefix)
        pool = group.pool
        assert pool is not None
        lent = pool.borrow(key, self, sure=request.method in UNSAFE) if ask.file is None else None
        if lent is None:
            return self.watched(self.tries(group, self._one(group, peer)))
        self.lent, self.keep, self.cached, self.sent = lent, group.keep, True, True
        trial.connect_time = 0.0
        stream = self.stream = lent.stream
        stream.send_timeout = settings.send_timeout
        self._base = stream.chain.sent
        exchange = request.exchange
        self.patient = settings.ignore_abort
        if not self.patient:
            exchange.on_abort = self._client_gone
            exchange.abort_on_eof = True
        _, self.reader = service.talk(self, stream)
        pool.clock.schedule(lent, settings.read_timeout)
        return phases.LATER

    # what is heard of the connection

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        try:
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
        self._close()
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
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.trial.length = len(body)
        self.done()
        request.end_with(body)
        if not request.finished:  # a filter of its own is not done with it
            self._finish(_of(phases.DONE))

    def put_back(self) -> None:
        """See Visit."""
        lent, self.lent = self.lent, None
        if lent is None:
            super().put_back()
            return
        self.stream = None
        group, keep = self.route.group, self.keep
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
