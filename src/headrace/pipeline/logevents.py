"""The engine's own log as events: tag fluent.LEVEL, to <label @FLUENT_LOG> or a <match fluent...>.

A line that arises while such an event is on its way is logged, but makes no event. A catch-all
(<match **>) does not take log events, unlike in Fluentd: a destination that fails would be sent the
lines about its failing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.context import Context
    from headrace.pipeline.router import Router

LABEL: Final = "@FLUENT_LOG"
TAGS: Final = tuple(f"fluent.{level}" for level in LEVELS)
_NAMES: Final = tuple(sorted(((number, name) for name, number in LEVELS.items()), reverse=True))


class LogEvents(logging.Handler):
    """Turns log records into events."""

    def __init__(self, router: Router, level: int, wall_ns: Callable[[], int]) -> None:
        super().__init__(level)
        self._router = router
        self._wall_ns = wall_ns
        self._busy = False
        self.lost = 0
        """Lines for which there was no room."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one line on its way."""
        if self._busy:
            return
        self._busy = True
        try:
            event = {"message": record.getMessage(), "plugin_id": record.name.rpartition("headrace.pipeline.")[2]}
            self._router.emit(f"fluent.{level_name(record.levelno)}", Batch.one(self._wall_ns(), event))
        except BufferOverflow:
            self.lost += 1
        except Exception:  # noqa: BLE001 - logging never fails its caller
            self.handleError(record)
        finally:
            self._busy = False


def level_name(number: int) -> str:
    """Fluentd's name of a level of Python's logging."""
    return next((name for least, name in _NAMES if number >= least), "trace")


def log_router(context: Context) -> Router | None:
    """Return where log events go, None when the configuration does not ask for them."""
    if LABEL in context.labels:
        return context.labels[LABEL]
    return context.root if any(map(context.root.matches_by_name, TAGS)) else None
