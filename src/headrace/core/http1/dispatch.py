"""Running a handler, and what happens when it fails: one place for the faults of a request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from headrace.core.http1.events import RequestHead
from headrace.core.http1.exchange import Exchange
from headrace.errors import ConnectionFailed, HttpError, Side

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headrace.core.http1.server import HttpConnection

_tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly
log = logging.getLogger(__name__)


def spawn(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine made by `drive` as a task."""
    _tasks.add(asyncio.get_running_loop().create_task(work))


def raised(conn: HttpConnection, exchange: Exchange, error: Exception) -> None:
    """Answer for a handler that raised inside of `handle`."""
    if isinstance(error, HttpError):
        refuse(conn, exchange, error)
    else:
        fail(conn, exchange, error)


async def drive(conn: HttpConnection, work: Coroutine[Any, Any, None], exchange: Exchange) -> None:
    """Run the coroutine of a handler; whatever it does, the exchange is finished afterwards."""
    try:
        await work
    except HttpError as error:
        refuse(conn, exchange, error)
    except ConnectionFailed as error:
        if _client_gone(exchange):
            exchange.close()
        else:
            fail(conn, exchange, error)
    except asyncio.CancelledError:
        exchange.close()
        raise
    except Exception as error:  # noqa: BLE001 - a handler's fault is answered with 500, and reported
        fail(conn, exchange, error)
    else:
        if not exchange.finished and not _client_gone(exchange) and not exchange.upgraded:
            fail(conn, exchange, RuntimeError("the handler ended without finishing its answer"))
        else:
            exchange.close()
    finally:
        task = asyncio.current_task()
        assert task is not None
        _tasks.discard(task)


def _client_gone(exchange: Exchange) -> bool:
    return exchange.aborted or (exchange.conn.stream.closed and not exchange.upgraded)


def refuse(conn: HttpConnection, exchange: Exchange, error: HttpError) -> None:
    """Let the handler answer with an error; an answer that has begun is cut off instead."""
    if exchange.finished:
        return
    if exchange.upgraded:
        conn.stream.close()
    if exchange.headers_sent or exchange.aborted or exchange.upgraded or exchange.refused:
        exchange.close()
        return
    exchange.refused = True
    conn.stats.refused += 1
    if error.close:
        exchange.keep_alive = False
        exchange.linger = True
    try:
        work = conn.handler.refuse(exchange, error)
        if work is not None:
            spawn(drive(conn, work, exchange))
            return
    except Exception as failure:  # noqa: BLE001 - reported; nothing else can be answered
        report(conn, exchange, failure)
    if not exchange.finished:
        exchange.close()


def refuse_head(conn: HttpConnection, raw: bytes, error: HttpError) -> Exchange:
    """Begin an exchange for a head that could not be read; the connection ends with it."""
    conn.requests += 1
    stats = conn.stats
    stats.requests += 1
    exchange = conn.exchange = Exchange(conn, RequestHead.partial(raw), conn.clock.now(), keep_alive=False)
    exchange.linger = True
    conn.serving = True
    refuse(conn, exchange, error)
    conn.serving = False
    return exchange


def fail(conn: HttpConnection, exchange: Exchange, error: Exception) -> None:
    """Report a handler's fault and answer 500."""
    report(conn, exchange, error)
    refusal = HttpError(500, "the handler failed", close=exchange.body is not None and not exchange.body.done)
    refusal.kind = "internal"
    refusal.side = Side.US
    refusal.__cause__ = error
    refuse(conn, exchange, refusal)


def report(conn: HttpConnection, exchange: Exchange, error: BaseException) -> None:
    """Tell whoever listens to the faults of handlers."""
    if conn.settings.on_error is not None:
        conn.settings.on_error(exchange, error)
    else:
        log.error("handler of %r failed", exchange.head, exc_info=error)
