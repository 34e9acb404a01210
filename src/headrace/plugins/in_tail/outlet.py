"""Batches of files on their way into the buffers.

A file has one batch under way at most. When the buffers have it (at once, or after an await), `settled` is called and
the position may be saved. A batch that is refused is offered again after a while, the same one. No other error stops
a file: as in Fluentd, what no output takes is lost, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.core.clock import Clock
    from headrace.pipeline.event import Batch
    from headrace.plugins.in_tail.tailed import Tailed

FIRST_DELAY: Final = 0.1
LAST_DELAY: Final = 5.0
"""Seconds until a batch that was refused is offered again."""


class Outlet:
    """The batches of one source.

    emit: the router's. settled: everything of a file before an offset is in the buffers. later: it is a file's turn
    again in some seconds. Counters: events, refused (offers), failed (events that no output took).
    """

    def __init__(
        self,
        emit: Callable[[str, Batch], Awaitable[None] | None],
        clock: Clock,
        log: logging.Logger,
        *,
        settled: Callable[[Tailed, int], None],
        later: Callable[[Tailed, float], None],
    ) -> None:
        self._to = emit
        self._clock = clock
        self._log = log
        self._settled = settled
        self._later = later
        self._waiting: dict[Tailed, asyncio.Future[None]] = {}
        self.parked = 0
        """Batches that the buffers have not taken yet."""
        self.ending = False
        self.events = 0
        self.refused = 0
        self.failed = 0
        self._failures = Throttle(now=clock.now)

    def send_to(self, emit: Callable[[str, Batch], Awaitable[None] | None]) -> None:
        """Emit to another router from now on."""
        self._to = emit

    def put(self, tail: Tailed, batch: Batch, after: int) -> None:
        """Emit a batch of a file; after: the offset when the buffers have it."""
        tail.pending = (batch, after)
        self.parked += 1
        self.emit(tail)

    def emit(self, tail: Tailed) -> None:
        """Offer what is pending."""
        assert tail.pending is not None
        try:
            waiting = self._to(tail.tag, tail.pending[0])
        except BufferOverflow:
            self._refuse(tail)
        except Exception as error:  # noqa: BLE001 - whatever an output raises
            self._fail(tail, error)
        else:
            if waiting is None:
                self._taken(tail)
                return
            tail.busy = True
            future = self._waiting[tail] = asyncio.ensure_future(waiting)
            future.add_done_callback(partial(self._awaited, tail))

    def _awaited(self, tail: Tailed, future: asyncio.Future[None]) -> None:
        tail.busy = False
        del self._waiting[tail]
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._taken(tail)
        elif isinstance(error, BufferOverflow):
            self._refuse(tail)
        else:
            self._fail(tail, error)

    def _refuse(self, tail: Tailed) -> None:
        self.refused += 1
        tail.delay = min(max(2 * tail.delay, FIRST_DELAY), LAST_DELAY)
        if not self.ending:
            self._later(tail, tail.delay)

    def _fail(self, tail: Tailed, error: BaseException) -> None:
        assert tail.pending is not None
        count = tail.pending[0].count
        self.failed += count
        self.events -= count
        message = "%d events of %s are lost: no output took them: %r"
        self._failures.log(self._log, logging.ERROR, message, count, tail.path, error)
        self._taken(tail)

    def _taken(self, tail: Tailed) -> None:
        assert tail.pending is not None
        batch, after = tail.pending
        self.events += batch.count
        tail.pending = None
        tail.delay = 0.0
        self.parked -= 1
        self._settled(tail, after)

    def forget(self, tail: Tailed) -> None:
        """A file is let go of."""
        if tail.pending is not None and not tail.busy:
            tail.pending = None
            self.parked -= 1

    async def all_taken(self, seconds: float) -> None:
        """Wait for what is under way; after some seconds give it up, so that it is read again the next time."""
        self.ending = True
        waiting = list(self._waiting.values())
        if not waiting:
            return
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.deadline(seconds, late.cancel)
        everything = asyncio.ensure_future(asyncio.wait(waiting))
        either: list[asyncio.Future[Any]] = [everything, late]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        everything.cancel()
        late.cancel()
        for future in list(self._waiting.values()):
            future.cancel()
        await asyncio.sleep(0)
