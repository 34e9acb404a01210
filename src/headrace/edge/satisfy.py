"""`satisfy any`: one of the access handlers is enough.

https://nginx.org/en/docs/http/ngx_http_core_module.html#satisfy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request

REFUSALS: Final = frozenset({401, 403})


def any_of(handlers: tuple[Handler, ...]) -> Handler:
    """A handler that passes when one of these does; they run in order until then.

    When none does, a refusal that asks for credentials (401) wins over one that does not.
    """

    def check(request: Request) -> Result | Awaitable[Result]:
        refused = 0
        for i, handler in enumerate(handlers):
            found = handler(request)
            if found is not None and not isinstance(found, int):
                return _rest(request, handlers[i + 1 :], found, refused)
            code, refused = _judge(request, found, refused)
            if code is not None:
                return code
        return _refuse(request, refused)

    return check


def delayed(handlers: tuple[Handler, ...], seconds: float) -> Handler:
    """A handler that passes when all of these do, and waits before it asks for credentials (auth_delay).

    https://nginx.org/en/docs/http/ngx_http_core_module.html#auth_delay
    """

    async def check(request: Request) -> Result:
        code: Result = None
        for handler in handlers:
            found = handler(request)
            code = found if found is None or isinstance(found, int) else await found
            if code is not None and code != phases.OK:
                break
        if code == 401:
            request.log_error(log.NOTICE, b"delaying unauthorized request")
            await request.exchange.conn.clock.sleep(seconds)
        return code

    return check


async def _rest(request: Request, handlers: tuple[Handler, ...], first: Awaitable[Result], refused: int) -> Result:
    code, refused = _judge(request, await first, refused)
    if code is not None:
        return code
    for handler in handlers:
        found = handler(request)
        if found is not None and not isinstance(found, int):
            found = await found
        code, refused = _judge(request, found, refused)
        if code is not None:
            return code
    return _refuse(request, refused)


def _judge(request: Request, code: Result, refused: int) -> tuple[Result, int]:
    """(what decides, or None; the refusal so far)."""
    if code is None:
        return None, refused
    if code == phases.OK:
        if request.kept_headers is not None:
            request.kept_headers.remove(b"WWW-Authenticate")
        return code, 0
    if code in REFUSALS:
        return None, refused if refused == 401 else code
    return code, refused


def _refuse(request: Request, refused: int) -> Result:
    if refused == 403:
        request.log_error(log.ERR, b"access forbidden by rule")
    return refused or None
