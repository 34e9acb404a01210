"""The phases of a request, in their order, and the engine that runs them.

A location is compiled to a flat tuple of steps. The engine calls them in order and stays synchronous until one
returns an awaitable; only then does the request get a coroutine. What a handler returns:

    None        declined: go on with the next step
    OK (0)      rewrite: the request is complete; access, preaccess: passed, go on; content: answered
    DONE        answered, or will be: the request is complete (finish() runs if it did not)
    ERROR       the connection cannot be used any more: it is closed
    LATER       answered from a callback, without a task; only in a call that the connection makes (`conn.serving`)
    >= 300, 201, 204   that special response (error_page applies); 444, 499 close without an answer
    other 2xx   the request is complete with that status
    REDIRECT    internal_redirect() was called: begin again with the new URI

nginx's phases: https://nginx.org/en/docs/dev/development_guide.html#http_phases
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.edge import log
from headrace.edge.pace import Paced
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headrace.edge.request import Request

OK: Final = 0
ERROR: Final = -1
DONE: Final = -4
REDIRECT: Final = -100
REFIND: Final = -101
"""The URI was rewritten: find the location anew (post_rewrite)."""

LATER: Final = -103
RELOCATE: Final = -102
"""`if` chose another set of values: go on with the steps of request.location."""

POST_READ: Final = "post_read"
SERVER_REWRITE: Final = "server_rewrite"
FIND_CONFIG: Final = "find_config"
REWRITE: Final = "rewrite"
POST_REWRITE: Final = "post_rewrite"
PREACCESS: Final = "preaccess"
ACCESS: Final = "access"
POST_ACCESS: Final = "post_access"
PRECONTENT: Final = "precontent"
CONTENT: Final = "content"
LOG: Final = "log"

ORDER: Final = (
    POST_READ,
    SERVER_REWRITE,
    FIND_CONFIG,
    REWRITE,
    POST_REWRITE,
    PREACCESS,
    ACCESS,
    POST_ACCESS,
    PRECONTENT,
    CONTENT,
    LOG,
)
SERVER_PHASES: Final = (POST_READ, SERVER_REWRITE)
LOCATION_PHASES: Final = (REWRITE, POST_REWRITE, PREACCESS, ACCESS, POST_ACCESS, PRECONTENT, CONTENT)
PASSING: Final = frozenset({POST_READ, PREACCESS, ACCESS})
"""Phases in which OK means: passed, go on."""

Result = int | None
Handler = Callable[["Request"], Result | Awaitable[Result]]
Step = tuple[str, Handler]
Steps = tuple[Step, ...]


def run(request: Request, steps: Steps) -> Coroutine[Any, Any, None] | None:
    """Run the steps, and what they lead to, until the request is complete.

    Returns a coroutine for the rest when a handler has to wait. Raises nothing: what a handler raises is
    logged and becomes the status of its HttpError, or 500.
    """
    while True:
        code: Result | Awaitable[Result] = None
        try:
            for phase, handler in steps:
                request.phase = phase
                code = handler(request)
                if code is not None and type(code) is not int:
                    return _wait(request, steps, phase, handler, code)  # type: ignore[arg-type]
                if request.finished:
                    return None
                if code is None:
                    continue
                if code == OK and phase in PASSING:
                    code = None
                    continue
                if code == LATER:
                    return None
                break
        except Exception as error:  # noqa: BLE001 - a fault of one handler must not end the worker
            code = _fault(request, error)
        assert code is None or isinstance(code, int)
        following = request.complete(code)
        if following is None:
            return None
        steps = following


async def _wait(request: Request, steps: Steps, phase: str, handler: Handler, result: Awaitable[Result]) -> None:
    try:
        code = await result
    except asyncio.CancelledError:
        request.abandon()
        raise
    except Exception as error:  # noqa: BLE001 - as in run()
        code = _fault(request, error)
    following: Steps | None = None
    if request.finished:
        pass
    elif code is None or (code == OK and phase in PASSING):
        done = next(i for i, step in enumerate(steps) if step[1] is handler and step[0] is phase)
        following = steps[done + 1 :]
    else:
        following = request.complete(code)
    rest = None if following is None else run(request, following)
    exchange: object = request.exchange
    if rest is not None:
        await rest
    elif isinstance(exchange, Paced):
        await exchange.gone()


def _late(_request: Request) -> int:
    return LATER


_LATE: Final[Steps] = ((CONTENT, _late),)


def go_on(request: Request, result: Awaitable[Result]) -> Coroutine[Any, Any, None]:
    """What is left of a request whose content handler said LATER, and has to wait after all."""
    return _wait(request, _LATE, CONTENT, _late, result)


def _fault(request: Request, error: Exception) -> int:
    """Log what a handler raised; returns the code to complete the request with."""
    exchange = request.exchange
    if isinstance(error, HttpError):
        level = log.ERR if error.status == 413 or error.status >= 500 else log.INFO
        request.log_error(level, error.message.encode("utf-8", "surrogateescape"))
        if error.close:
            exchange.keep_alive = False
        return error.status
    if isinstance(error, ConnectionFailed) and (exchange.aborted or exchange.conn.stream.closed):
        request.log_error(log.INFO, b"client prematurely closed connection")
        cut = exchange.body is not None and not exchange.body.done
        if not request.header_sent:
            request.status = 400 if cut else 499
        request.abandon()
        return DONE
    request.log_fault(error)
    return 500
