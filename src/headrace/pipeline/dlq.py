"""<label @DLQ>: dead letters as events, where the configuration has that label.

A chunk that is given up, and a record that is refused, goes there with the reason in the field `dead_letter`; in the
store of dead letters (backup.py, refused.py) is only what the label does not take. What bears that field already has
been here: it is not sent again, so no letter goes round. The fields are told in docs/buffers.md.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import Batch, Event, decoded
from headrace.pipeline.lanes import cancelled_from_outside
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.event import Record
    from headrace.pipeline.plugin import Output
    from headrace.pipeline.router import Router

LABEL: Final = "@DLQ"
FIELD: Final = "dead_letter"
TAG: Final = "dead_letter"
"""The tag of events whose chunk has none."""


def marked(record: Record) -> bool:
    """Whether a record was a dead letter before."""
    return isinstance(record, dict) and isinstance(record.get(FIELD), dict)


def letter(record: Record, facts: Mapping[str, Any]) -> Record:
    """A record as a dead letter."""
    return {**record, FIELD: dict(facts)}


class ChunkLetters:
    """Sends chunks that an output gave up to the label. sent: events that it took."""

    def __init__(self, router: Router, output: Output, *, packed: bool) -> None:
        self.sent = 0
        self._router = router
        self._output = output
        self._packed = packed
        self._errors = Throttle(burst=5)
        self._told = Throttle(burst=5)

    async def send(self, chunk: Chunk, notes: Mapping[str, Any], wall_ns: int) -> bool:
        """Send a chunk's events; False when the label does not take them, or had them before."""
        log = self._output.log
        try:
            events = self._events(chunk, notes, wall_ns)
            if events is None:
                return False
            waiting = self._router.emit(chunk.tag or TAG, Batch.of(events))
            if waiting is not None:
                await waiting
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return False
        except Exception as error:  # noqa: BLE001 - whatever happens in the label, the store is still there
            message = "chunk %s cannot go to %s: %r"
            self._errors.log(log, logging.ERROR, message, chunk.hex_id, LABEL, error)
            return False
        self._told.log(log, logging.WARNING, "bad chunk %s is sent to %s", chunk.hex_id, LABEL)
        self.sent += chunk.count
        return True

    def _events(self, chunk: Chunk, notes: Mapping[str, Any], wall_ns: int) -> list[Event] | None:
        output = self._output
        facts = {
            "reason": notes["reason"],
            "error": notes["error"],
            "attempts": notes["attempts"],
            "secondary_attempts": notes["secondary_attempts"],
            "failed_since": round(notes["failed_since"], 3),
            "plugin": output.plugin_id,
            "type": output.type_,
            "label": output.router.name,
            "chunk": chunk.hex_id,
        }
        data = chunk.read()
        if self._packed:
            events = decoded(data)
            return None if any(marked(record) for _, record in events) else [(t, letter(r, facts)) for t, r in events]
        # What was formatted is text: a record a line. It may have been a letter before, which its text tells.
        if b'"dead_letter"' in data:
            return None
        lines = data.decode("utf-8", "surrogateescape").splitlines()
        return [(wall_ns, letter({"message": line}, facts)) for line in lines]


def refused(record: Record, label: str, error: BaseException) -> Record:
    """A record that a filter, a formatter or a buffer refused, as a dead letter."""
    facts = {"reason": "refused", "error": f"{type(error).__name__}: {error}"[:1000], "attempts": 1, "label": label}
    return letter(record, facts)
