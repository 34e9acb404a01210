"""Content handlers that wait without a task: the VM says when they have ended, and the request is answered from there.

That holds where a connection has called the handler, so that nobody waits for what it returns. Where more Lua may run
at the end (filters, log), it runs in a turn of the loop of its own: the VM is still in the run that tells the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.core.http1.dispatch import drive, spawn
from headrace.edge import phases

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.edge.phases import Result
    from headrace.edge.request import Request


def may_be_late(request: Request) -> bool:
    """The content handler of this request may say LATER."""
    exchange = request.exchange
    return (
        request.parent is None
        and request.phase is phases.CONTENT
        and exchange.conn.serving
        and not exchange.refused
        and not exchange.upgraded
    )


class Late:
    """What waits for the end of a handler, as a future would. ended: what the phase returns, of what the run gives."""

    __slots__ = ("_ended", "_loop", "_request")

    def __init__(
        self, request: Request, ended: Callable[[Request, bytes | int], Result], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._request = request
        self._ended = ended
        self._loop = loop

    def done(self) -> bool:
        """As of a future: it is not."""
        return False

    def set_result(self, result: bytes | int) -> None:
        """The handler has ended."""
        location = self._request.location
        if location.log_handlers or location.header_filters or location.body_filters:
            self._loop.call_soon(self._end, result)
        else:
            self._end(result)

    def _end(self, result: bytes | int) -> None:
        request = self._request
        exchange = request.exchange
        exchange.on_abort = None
        code: Result = None
        failure: Exception | None = None
        try:
            code = self._ended(request, result)
        except Exception as error:  # noqa: BLE001 - of this request: logged and answered as any handler's fault
            failure = error
        if failure is not None or not (request.finished and exchange.finished):
            spawn(drive(exchange.conn, phases.go_on(request, _outcome(code, failure)), exchange))


async def _outcome(code: Result, failure: Exception | None) -> Result:
    if failure is not None:
        raise failure
    return code
