"""One visit: a request asks the peers of a group, one after the other, until one answers.

What ends a try: no connection, no answer in time, a head that cannot be used, a status of proxy_next_upstream. The
next peer is asked when that is configured for it, nothing of the answer is on its way, and the request can be sent
again. The task of the request runs the visit; a client that leaves interrupts it, and every way out gives the
connection back or closes it.
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_next_upstream
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.body import refuse_broken_body
from headrace.edge.upstream import link
from headrace.edge.upstream.answer import answered_here, orders_of, take_answer
from headrace.edge.upstream.body import streams
from headrace.edge.upstream.cache.cacher import Cacher, open_cache
from headrace.edge.upstream.cache.heads import set_modified
from headrace.edge.upstream.relay import Relay
from headrace.edge.upstream.reply import BadReply, Failed
from headrace.edge.upstream.service import Route, Unroutable
from headrace.edge.upstream.settings import ERROR, INVALID_HEADER, NEXT_STATUSES, NON_IDEMPOTENT, TIMEOUT
from headrace.edge.upstream.state import Try, state_of
from headrace.edge.upstream.steer import Refused, Steered
from headrace.edge.upstream.store import Store
from headrace.edge.upstream.tunnel import tunnel
from headrace.edge.upstream.watched import Watched
from headrace.errors import ConnectionFailed, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.http1.events import ResponseHead
    from headrace.core.stream import Stream
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import Ask
    from headrace.edge.upstream.link import Key
    from headrace.edge.upstream.peers import Chooser, Group, Keep, Peer
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.service import Pump, Service

UNSAFE: Final = frozenset((b"POST", b"LOCK", b"PATCH"))
READ_SIZE: Final = 65536
HEADER: Final = "reading response header from upstream"


class Visit(Watched):
    """See the module. stream: the connection in use, which the visit owns; reader: of the answer."""

    stream: Stream | None = None
    reader: Reader
    ask: Ask
    head: ResponseHead
    trial: Try
    chooser: Chooser
    key: Key
    peer: Peer | None = None
    keep: Keep | None = None
    cached = False
    sent = False
    pump: Pump | None = None
    behind = False
    """The answer goes to the cache only."""
    cache_key: bytes | None = None
    cacher: Cacher | None = None
    storage: Store | Cacher | None = None
    _base = 0
    _begun = 0.0

    def __init__(self, request: Request, service: Service) -> None:
        self.request = request
        self.service = service
        self.settings = service.settings
        self.clock = request.exchange.conn.clock
        self.started = self.clock.now()

    async def run(self) -> int | None:
        """Visit; returns what a content handler returns."""
        request, service = self.request, self.service
        state = self.state = state_of(request)
        state.begin()
        try:
            found = service.route(request)
            self.route = route = found if isinstance(found, Route) else await found
            state.cacher = self.cacher = open_cache(self)
        except Unroutable as error:
            self.log(log.ERR, error.message)
            return error.status
        state.scheme, state.host, state.port = route.scheme, route.host, route.port
        stream = self.cacher is None and streams(self)
        if not stream:
            wait = request.read_body()
            if wait is not None:
                await wait
        elif request.exchange.body is not None:
            refuse_broken_body(request)
        self.trial = Try()
        return await self.watched(self._ask_all(stream=stream))

    async def _ask_all(self, *, stream: bool) -> int | None:
        if self.cacher is not None:
            code = await self.cacher.look()
            if code is not None:
                return code
        self.ask = self.service.ask(self.request, self.route, stream=stream)
        self.state.uri = self.ask.uri
        group = self.route.group
        self.chooser = chooser = group.chooser(self.request)
        self.limit_tries()
        if isinstance(chooser, Steered):
            chooser.visit = self
        return await self.tries(group)

    # tries

    def limit_tries(self) -> None:
        """proxy_next_upstream_tries."""
        most = self.settings.next_tries
        if most and self.chooser.tries > most:
            self.chooser.tries = most

    async def tries(self, group: Group, begun: Awaitable[list[bytes]] | None = None) -> int | None:
        """Ask one peer after the other. begun: the end of a try that is under way."""
        self._current = asyncio.current_task()
        chooser = self.chooser
        while True:
            if begun is None:
                self.trial = self.state.next_try()
                self._begun = now = self.clock.now()
                try:
                    peer = self.peer = chooser.choose(now)
                except Refused as error:
                    self.account(error.status)
                    return error.status
                if peer is None:
                    self.trial.addr = group.name
                    self.account(502)
                    self.log(log.ERR, b"no live upstreams while connecting to upstream")
                    return await self._without(ERROR, 502)
                self.trial.addr = peer.name
                begun = self._one(group, peer)
            trying, begun = begun, None
            try:
                pieces = await trying
            except Failed as error:
                if error.message:
                    self.log(error.level, error.message)
                self.account(error.status)
                if not self._leave_for_next(error.kind):
                    return await self._without(error.kind, error.status)
                continue
            status = self.head.status
            if status in NEXT_STATUSES and chooser.tries > 1 and self._allowed(f"http_{status}"):
                self.account(status)
                if self._leave_for_next(f"http_{status}"):
                    continue
            if status in NEXT_STATUSES and self.cacher is not None and self.cacher.may_use_stale(f"http_{status}"):
                self.done()
                return await self.cacher.serve(b"STALE")
            return await self._answer(pieces)

    async def _without(self, kind: str, status: int) -> int:
        """No peer has given an answer: an old one may do."""
        if self.cacher is not None and self.cacher.may_use_stale(kind):
            return await self.cacher.serve(b"STALE")
        return status

    def _allowed(self, kind: str) -> bool:
        """The configuration lets this kind of failure go on to the next peer."""
        settings = self.settings
        kinds = {kind}
        if self.sent and self.request.method in UNSAFE:
            kinds.add(NON_IDEMPOTENT)
        if not kinds <= settings.next_upstream or (self.sent and self.ask.stream):
            return False
        return not settings.next_timeout or self.clock.now() - self.started < settings.next_timeout

    def _leave_for_next(self, kind: str) -> bool:
        """Be done with this peer; True when the next one may be asked."""
        cached = self.cached
        self._free(failed=kind not in ("http_403", "http_404"))
        self._drop()
        if cached and kind == ERROR:
            self.route.group.retried += 1
            self.chooser.tries += 1
        return self.chooser.tries > 0 and self._allowed(kind)

    def _free(self, *, failed: bool) -> None:
        peer, self.peer = self.peer, None
        if peer is not None and self.chooser.free(peer, self.clock.now(), failed=failed):
            self.log(log.WARN, b"upstream server temporarily disabled")

    async def _one(self, group: Group, peer: Peer) -> list[bytes]:
        """Ask one peer; the first pieces of the body, with the head in `head`. Raises Failed."""
        self.sent = False
        self.stream = stream = await link.reach(self, group, peer)
        self.trial.connect_time = self.clock.now() - self._begun
        stream.send_timeout = self.settings.send_timeout
        self._base = stream.chain.sent
        self.pump, reader = self.service.talk(self, stream)
        self.reader, self.sent = reader, True
        return await self.listen()

    async def listen(self) -> list[bytes]:
        """Read until the head is here; the first pieces of the body. Raises Failed."""
        while True:
            pieces = self.hear(await self.read(HEADER))
            if pieces is not None:
                return pieces

    def hear(self, data: bytes) -> list[bytes] | None:
        """Bytes of the answer's beginning, b"" at the end: as `listen`, None while the head is not whole."""
        reader = self.reader
        try:
            pieces = reader.feed(data) if data else reader.eof()
        except BadReply as error:
            self._notes()
            self.trial.received += len(data)
            kind = ERROR if error.premature else INVALID_HEADER
            raise Failed(kind, 502, f"{error.message} while {HEADER}") from error
        self.trial.received += len(data)
        if reader.notes:
            self._notes()
        head = reader.head
        if head is None:
            return None
        self.head = self.state.head = head
        self.trial.header_time = self.clock.now() - self._begun
        return pieces

    def _notes(self) -> None:
        for level, text in self.reader.notes:
            self.log(level, text)
        self.reader.notes.clear()

    async def read(self, stage: str) -> bytes:
        """Some bytes of the upstream, b"" at the end. Raises Failed."""
        stream = self.stream
        assert stream is not None
        while True:
            try:
                return await stream.read(READ_SIZE, self.settings.read_timeout)
            except Timeout as error:
                if stream.closed:
                    stage = "sending request to upstream"
                elif stream.chain.length or (self.pump is not None and self.pump.running):
                    continue  # the other deadlines count as long as the request is on its way
                text = f"upstream timed out (110: Connection timed out) while {stage}"
                raise Failed(TIMEOUT, 504, text) from error
            except ConnectionFailed as error:
                if error.message.startswith("send"):
                    stage = "sending request to upstream"
                raise Failed(ERROR, 502, f"{error.message} while {stage}") from error

    # the answer

    async def _answer(self, pieces: list[bytes]) -> int | None:
        request, settings, head, reader = self.request, self.settings, self.head, self.reader
        self.trial.status = head.status
        cacher = self.cacher
        if cacher is not None and head.status == 304 and cacher.entry is not None and cacher.settings.revalidate:
            self.done()
            return await cacher.revalidated(head)
        orders = orders_of(head, settings)
        code = answered_here(self, orders)
        if code is not None:
            return code
        if not take_answer(self, orders):
            self.done()
            return 416
        if head.status == 101:
            if request.header_in(b"upgrade") is None or request.parent is not None:
                self.log(log.ERR, f"upstream sent unexpected status 101 while {HEADER}")
                request.status = 0
                self.account(502)
                return 502
            return await tunnel(self)
        if cacher is not None and cacher.begin(head):
            self.storage = cacher
            set_modified(request, head)
            request.exchange.on_abort = None
            request.exchange.abort_on_eof = False
            self.patient = True
        elif settings.store is not None and head.status == 200:
            self.storage = Store(self)
        if reader.done:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.trial.length = len(body)
            if self.storage is None:
                self.done()
                request.end_with(body)
                return phases.DONE
        return await Relay(self, orders).run(pieces)

    # the end

    def done(self) -> None:
        """The answer is read as far as anybody wants: keep the connection when it may carry another request."""
        self.account(self.trial.status)
        self._free(failed=False)
        stream = self.stream
        if stream is None:
            return
        reader = self.reader
        pump = self.pump
        if (
            self.keep is not None
            and reader.done
            and reader.keep_alive
            and not stream.closed
            and not stream.chain.length
            and (pump is None or pump.complete)
        ):
            self.state.trailers = reader.trailers
            self.put_back()
        else:
            self.state.trailers = reader.trailers
            self._drop()

    def put_back(self) -> None:
        """Keep the connection: it may carry another request."""
        stream, self.stream = self.stream, None
        assert stream is not None
        assert self.keep is not None
        link.keep(self.route.group, self.key, stream, self.clock, self.keep)

    def account(self, status: int) -> None:
        """See Watched."""
        trial = self.trial
        trial.status = status
        if trial.response_time is None:
            trial.response_time = self.clock.now() - self._begun
            if self.stream is not None:
                trial.sent = self.stream.chain.sent - self._base

    def _drop(self) -> None:
        stream, self.stream = self.stream, None
        pump, self.pump = self.pump, None
        if pump is not None:
            pump.stop()
            self.request.discard_body()
        if stream is not None:
            link.drop(stream)

    def close(self) -> None:
        """See Watched."""
        if self.peer is not None:
            self.account(self.trial.status)
            self._free(failed=False)
        self._drop()
        if self.cacher is not None:
            self.cacher.end()
