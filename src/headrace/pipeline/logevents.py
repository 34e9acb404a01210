"""The engine's own log as events: tag fluent.LEVEL, to <label @FLUENT_LOG>, else to the <match> of the top level.

A catch-all (<match **>) takes them too, as in Fluentd. So an output may be sent the lines about its own failing;
what keeps that from growing:
- a line that arises while such an event is on its way is logged, but makes no event;
- each plugin makes `BURST` events at the most in `INTERVAL` seconds, and then one in each; the log has them all;
- when the buffer is full or `WAITING` of them wait for room, further ones are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.pipeline.context import Context
    from headrace.pipeline.router import Router

LABEL: Final = "@FLUENT_LOG"
TAGS: Final = tuple(f"fluent.{level}" for level in LEVELS)
BURST: Final = 10
INTERVAL: Final = 10.0
WAITING: Final = 16
_NAMES: Final = tuple(sorted(((number, name) for name, number in LEVELS.items()), reverse=True))


class LogEvents(logging.Handler):
    """Turns log records into events; made in the loop's thread, and deaf to other threads."""

    def __init__(
        self, router: Router, level: int, wall_ns: Callable[[], int], now: Callable[[], float], *, every_tag: bool
    ) -> None:
        """every_tag: whether the router takes all tags; else those without a <match> make no events."""
        super().__init__(level)
        self._router = router
        self._wall_ns = wall_ns
        self._now = now
        self._taken = {tag for tag in TAGS if every_tag or router.matches(tag)}
        self._thread = threading.get_ident()
        self._busy = False
        self._next: dict[str, tuple[float, int]] = {}
        """Logger -> (when its allowance is renewed, how many events it may make until then)."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.lost = 0
        """Lines for which there was no room."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one line on its way."""
        tag = f"fluent.{level_name(record.levelno)}"
        if self._busy or tag not in self._taken or threading.get_ident() != self._thread:
            return
        if not self._allowed(record.name):
            self.lost += 1
            return
        self._busy = True
        try:
            event = {"message": record.getMessage(), "plugin_id": record.name.rpartition("headrace.pipeline.")[2]}
            waiting = self._router.emit(tag, Batch.one(self._wall_ns(), event))
            if waiting is not None:
                self._wait(waiting)
        except BufferOverflow:
            self.lost += 1
        except Exception:  # noqa: BLE001 - logging never fails its caller; the router has logged what is wrong
            self.lost += 1
        finally:
            self._busy = False

    def _allowed(self, name: str) -> bool:
        now = self._now()
        renewed, left = self._next.get(name, (now + INTERVAL, BURST))
        if now >= renewed:
            # Who used everything up is let through once, unless an interval was quiet: it may be at it again.
            renewed, left = now + INTERVAL, BURST if left or now >= renewed + INTERVAL else 1
        self._next[name] = (renewed, left - 1 if left else 0)
        return left > 0

    def _wait(self, waiting: Awaitable[None]) -> None:
        task = asyncio.ensure_future(waiting)
        if len(self._waiting) >= WAITING:
            self.lost += 1
            task.cancel()
            return
        self._waiting.add(task)
        task.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Future[None]) -> None:
        self._waiting.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.lost += 1

    def close(self) -> None:
        """Give up what waits for room."""
        for task in list(self._waiting):
            task.cancel()
        super().close()


def level_name(number: int) -> str:
    """Fluentd's name of a level of Python's logging."""
    return next((name for least, name in _NAMES if number >= least), "trace")


def log_router(context: Context) -> Router | None:
    """Return where log events go, None when the configuration does not ask for them."""
    if LABEL in context.labels:
        return context.labels[LABEL]
    return context.root if any(map(context.root.matches, TAGS)) else None
