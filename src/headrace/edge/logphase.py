"""The end of a request: the log phase runs when the answer is in the kernel, then the cleanups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge import phases
from headrace.edge.pace import Paced

if TYPE_CHECKING:
    from headrace.edge.request import Request


def end(request: Request) -> None:
    """Log now when nothing is unsent, else when the last byte has left or the connection broke."""
    exchange: object = request.exchange
    if isinstance(exchange, Paced) and not exchange.idle:
        exchange.then(lambda: end(request))
        return
    chain = request.exchange.conn.stream.chain
    if chain.length:
        chain.mark(lambda _error: _log(request))
    else:
        _log(request)


def _log(request: Request) -> None:
    if request.logged:
        return
    request.logged = True
    request.phase = phases.LOG
    for handler in request.location.log_handlers:
        try:
            handler(request)
        except Exception as error:  # noqa: BLE001 - the other logs must run too
            request.log_fault(error)
    request.run_cleanups()
