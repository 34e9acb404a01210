"""Handlers of the request phases that run Lua chunks.

A run that ends at once stays synchronous: one call into Lua, the output to the request, the end. Only a run that waits
gets a future. What a run gives: bytes (output; it ended), maybe with the fields that it set, an integer (its code) or
False (it waits).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, cast

from headrace.edge import log, phases
from headrace.edge.pages import page
from headrace.edge.values import Value, evaluate
from headrace.lua.api.headers import change_fields
from headrace.lua.late import Late, may_be_late
from headrace.lua.runtime import (
    ACCESS,
    CONTENT,
    HEAD,
    HEADER_FILTER,
    KEEP,
    LOG,
    REWRITE,
    SENT,
    SERVER_REWRITE,
    Runtime,
)

if TYPE_CHECKING:
    from headrace.edge.filters import BodyFilter, HeaderFilter
    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request
    from headrace.edge.variables import Setter
    from headrace.lua.sched import Scheduler
    from headrace.lua.source import Source

OK, DONE = phases.OK, phases.DONE
DECLINED = -5
EXEC = phases.REDIRECT


def _flags(request: Request, flags: int) -> int:
    if request.method == b"HEAD":
        flags += HEAD
    return flags + SENT if request.header_sent else flags


class LuaHandlers:
    """Makes the handlers of one runtime."""

    _may_be_late = staticmethod(may_be_late)

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def content(self, source: Source, *, keep: bool) -> Handler:
        """A content handler; keep: Lua runs again for the request after it (log)."""
        return self._make(source, CONTENT + (KEEP if keep else 0), _ended_content)

    def access(self, source: Source) -> Handler:
        """An access handler: passing means OK."""
        return self._make(source, ACCESS + KEEP, _ended_access)

    def rewrite(self, source: Source) -> Handler:
        """A rewrite handler: passing means go on."""
        handler = self._make(source, REWRITE + KEEP, _ended_rewrite)

        def handle(request: Request) -> Result | Awaitable[Result]:
            return None if request.uri_changed else handler(request)  # `rewrite ... last` came first

        return handle

    def server_rewrite(self, source: Source) -> Handler:
        """A handler of the server's rewrite phase, before its location is looked for: passing means go on."""
        return self._make(source, SERVER_REWRITE + KEEP, _ended_rewrite)

    def _make(self, source: Source, flags: int, ended: Ended) -> Handler:
        handler = self._runner(source, flags, ended)
        return _with_body(handler) if source.need_body else handler

    def _runner(self, source: Source, flags: int, ended: Ended) -> Handler:
        run = self.runtime.run
        wait = self._wait
        enter = self._enter
        fixed = source.fixed

        if fixed is None or fixed.failure is not None or not source.cached:
            return self._careful(source, flags, ended)
        ref = fixed.ref
        check = source.check_abort
        # With KEEP no fields come back: they are told before, since other runs may look at them.
        run_kept = cast("Callable[[int, int, int], bytes | int]", run)

        if flags == CONTENT:

            def answer(request: Request) -> Result | Awaitable[Result]:
                if request.lua is not None:
                    enter(request)
                plain = request.method != b"HEAD" and not request.header_sent
                result = run(ref, request.id, CONTENT if plain else _flags(request, CONTENT))
                if type(result) is bytes:
                    request.end_with(result)
                    return DONE
                if isinstance(result, tuple):
                    change_fields(request, result[1])
                    request.end_with(result[0])
                    return DONE
                if result is False:
                    return wait(request, ended, check)
                return ended(request, result)

            return answer

        def handle(request: Request) -> Result | Awaitable[Result]:
            enter(request)
            result = run_kept(ref, request.id, _flags(request, flags))
            if result is False:
                return wait(request, ended, check)
            return ended(request, result)

        return handle

    def _careful(self, source: Source, flags: int, ended: Ended) -> Handler:
        """The way of code that may have failed to compile, whose file depends on the request, or is not cached."""
        runtime = self.runtime

        def handle(request: Request) -> Result | Awaitable[Result]:
            self.begin(request, source)
            chunk = source.chunk(request)
            if chunk.failure is not None:
                request.log_error(log.ERR, chunk.said)
                return chunk.status
            result = runtime.run(chunk.ref, request.id, _flags(request, flags))
            if result is False:
                return self._wait(request, ended, source.check_abort)
            if isinstance(result, tuple):
                result, fields = result
                change_fields(request, fields)
            return ended(request, result)

        return handle

    def _wait(self, request: Request, ended: Ended, check_abort: bool) -> Result | Awaitable[Result]:
        scheduler = self.runtime.scheduler
        request_id = request.id
        late = self._may_be_late(request)
        if late:
            assert scheduler.loop is not None
            scheduler.pending[request_id] = Late(request, ended, scheduler.loop)
        else:
            future = scheduler.wait_for(request_id)
        if check_abort:
            exchange = request.exchange
            exchange.abort_on_eof = True
            exchange.on_abort = lambda: _gone(request, scheduler, request_id)
        if late:
            return phases.LATER
        return self._result(request, request_id, future, ended)

    async def _result(
        self, request: Request, request_id: int, future: asyncio.Future[bytes | int], ended: Ended
    ) -> Result:
        try:
            result = await future
        except asyncio.CancelledError:
            self.runtime.forget(request_id)
            raise
        request.exchange.on_abort = None
        return ended(request, result)

    def log(self, source: Source) -> Callable[[Request], None]:
        """A log handler."""
        run_plain = self.runtime.run_plain

        def handle(request: Request) -> None:
            chunk = source.chunk(request)
            if chunk.failure is not None:
                request.log_error(log.ERR, chunk.said)
                return
            result = run_plain(chunk.ref, request.id, LOG)
            if isinstance(result, tuple) and not result[0]:
                request.log_error(log.ERR, result[1] + b" while logging request")

        return handle

    def set(self, source: Source, setter: Setter, args: Sequence[Value]) -> Callable[[Request], int | None]:
        """A step of the rewrite program that sets a variable to what the code returns."""
        run_set = self.runtime.run_set

        def step(request: Request) -> int | None:
            self.begin(request, source)
            chunk = source.chunk(request)
            if chunk.failure is not None:
                request.log_error(log.ERR, chunk.said)
                return 500
            ok, value = run_set(chunk.ref, request.id, *(evaluate(arg, request) for arg in args))
            if not ok:
                request.log_error(log.ERR, value)
                return 500
            setter(request, value)
            return None

        return step

    def header_filter(self, source: Source) -> HeaderFilter:
        """A header filter. When it fails the answer becomes a 500: what it was to hide or add must not be missed."""
        run_plain = self.runtime.run_plain

        def handle(request: Request) -> None:
            self.begin(request, source)
            chunk = source.chunk(request)
            failed = chunk.failure is not None
            result = (False, chunk.said) if failed else run_plain(chunk.ref, request.id, HEADER_FILTER)
            if not result[0]:
                request.log_error(log.ERR, result[1])
                _replace(request, 500)
            elif result[1] is not None and result[1] >= 200:
                _replace(request, int(result[1]))

        return handle

    def body_filter(self, source: Source) -> BodyFilter:
        """A body filter. When it fails the connection is closed: the answer cannot be completed."""
        filter_body = self.runtime.filter_body

        def handle(request: Request, data: bytes, last: bool) -> bytes:
            state = self.begin(request, source)
            if state.ended:
                return b""
            chunk = source.chunk(request)
            if chunk.failure is None:
                ok, result, end = (*filter_body(chunk.ref, request.id, data, 1 if last else 0), 0)[:3]
                if ok:
                    if end and not last:
                        state.ended = True
                    return bytes(result)
            else:
                result = chunk.said
            request.log_error(log.ERR, result)
            request.exchange.conn.stream.abort()
            return b""

        return handle

    def begin(self, request: Request, source: Source) -> State:
        """Before a run; with lua_code_cache off a request begins with modules and globals of its own."""
        if not source.cached and request.lua is None:
            self.runtime.forget_modules()
        return self._enter(request)

    def _enter(self, request: Request) -> State:
        """Before a run that others of this request may follow: what Lua keeps between them ends with the request.

        An internal redirect begins anew: ngx.ctx is empty then.
        """
        state: State | None = request.lua
        if state is None:
            request_id, forget = request.id, self.runtime.forget
            request.on_cleanup(lambda: forget(request_id))
            state = request.lua = State(request.redirects)
        elif state.redirects != request.redirects:
            self.runtime.forget(request.id)
            state.redirects = request.redirects
        return state


class State:
    """What Python keeps of a request that runs Lua more than once.

    redirects: those the request had when Lua ran last. ended: a body filter has ended the body.
    """

    __slots__ = ("ended", "redirects")

    def __init__(self, redirects: int) -> None:
        self.redirects = redirects
        self.ended = False


def _gone(request: Request, scheduler: Scheduler, request_id: int) -> None:
    request.log_error(log.INFO, b"client prematurely closed connection")
    scheduler.aborted(request_id)


def _replace(request: Request, status: int) -> None:
    """From within a header filter: another status, with its page instead of the body that follows."""
    if status == 444:
        request.exchange.conn.stream.abort()
        return
    text = page(status, request.location.server_token) or b""
    request.status, request.content_type, request.content_length = status, b"text/html", len(text)
    request.body_filters = (lambda _request, _data, last: text if last else b"",)


def untyped(handler: Handler) -> Handler:
    """lua_use_default_type off: an answer has the Content-Type that the script gives it, or none."""

    def handle(request: Request) -> Result | Awaitable[Result]:
        if request.content_type is None:
            request.content_type = b""
        return handler(request)

    return handle


def drop_length(request: Request) -> None:
    """A header filter for answers whose body a script changes: their length is not known (chunked instead)."""
    request.content_length = None


def _with_body(handler: Handler) -> Handler:
    """lua_need_request_body: the handler runs when the body is there."""

    async def after(request: Request, reading: Awaitable[None]) -> Result:
        await reading
        result = handler(request)
        return await result if isinstance(result, Awaitable) else result

    def handle(request: Request) -> Result | Awaitable[Result]:
        reading = request.read_body()
        return handler(request) if reading is None else after(request, reading)

    return handle


Ended = Callable[["Request", bytes | int], "Result"]


def _ended_content(request: Request, result: bytes | int) -> Result:
    if isinstance(result, bytes):
        request.end_with(result)
        return DONE
    if result in (OK, DECLINED):
        request.finish()
        return DONE
    return _code(request, result)


def _ended_early(passed: Result) -> Ended:
    """The end of a handler before the content phase; passed: what its phase returns to go on."""

    def ended(request: Request, result: bytes | int) -> Result:
        if isinstance(result, bytes):
            if result:
                request.output(result)
            result = OK
        if request.header_sent and result in (OK, DECLINED):
            request.finish()
            return DONE
        if result == DECLINED:
            return None
        return passed if result == OK else _code(request, result)

    return ended


_ended_access = _ended_early(OK)
_ended_rewrite = _ended_early(None)


def _code(request: Request, code: int) -> Result:
    if request.header_sent and code >= 200:
        if code in {408, 444, 499}:
            return 444
        request.finish()
        return DONE
    if code >= 200 and not request.status:
        request.status = code  # error_page `=` may lead to a handler that sets none
    return code
