"""Emitting for sources whose senders can be held back, and for those whose cannot.

Patiently: what finds no room is offered again until it is taken; meanwhile the source reads nothing more. At once:
what finds no room is dropped and counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from headrace.pipeline.event import Event
    from headrace.pipeline.plugin import Plugin

    Groups = dict[str, list[Event]]
    """Tag -> its events, in the order in which they came."""

_RETRY: Final = 0.1
"""Seconds until a full buffer is tried again."""


class Emitter:
    """Emits the events of one plugin.

    events: taken. refused: given up, for an output failed or had no room. held: how often somebody waited.
    """

    def __init__(self, owner: Plugin) -> None:
        self._owner = owner
        self._full = Throttle()
        self.events = 0
        self.refused = 0
        self.held = 0

    def patiently(self, groups: Groups) -> Awaitable[None] | None:
        """Emit; an awaitable when that takes time, because buffers are full or slow."""
        batches = iter([(tag, Batch.of(events)) for tag, events in groups.items()])
        emit = self._owner.router.emit
        for tag, batch in batches:
            try:
                pending = emit(tag, batch)
            except BufferOverflow:
                return self._hold(tag, batch, None, batches)
            except Exception:  # noqa: BLE001 - the router has logged it; the source goes on
                self.refused += batch.count
                continue
            if pending is not None:
                return self._hold(tag, batch, pending, batches)
            self.events += batch.count
        return None

    async def _hold(
        self, tag: str, batch: Batch, pending: Awaitable[None] | None, rest: Iterator[tuple[str, Batch]]
    ) -> None:
        self.held += 1
        while True:
            await self._persist(tag, batch, pending)
            try:
                tag, batch = next(rest)
            except StopIteration:
                return
            pending = None

    async def _persist(self, tag: str, batch: Batch, pending: Awaitable[None] | None) -> None:
        """Emit one batch until it is taken. pending: of an attempt that was made already."""
        owner = self._owner
        while True:
            try:
                if pending is None:
                    pending = owner.router.emit(tag, batch)
                if pending is not None:
                    await pending
            except BufferOverflow as error:
                message = "the buffer is full, senders are held back: %s"
                self._full.log(owner.log, logging.WARNING, message, error.message)
            except Exception:  # noqa: BLE001 - the router has logged it; the source goes on
                self.refused += batch.count
                return
            else:
                self.events += batch.count
                return
            pending = None
            await owner.context.clock.sleep(_RETRY)

    def at_once(self, groups: Groups) -> Awaitable[None] | None:
        """Emit what there is room for, and drop the rest; an awaitable when buffers are slow."""
        waiting: list[tuple[int, Awaitable[None]]] = []
        emit = self._owner.router.emit
        for tag, events in groups.items():
            try:
                pending = emit(tag, Batch.of(events))
            except BufferOverflow as error:
                self._drop(len(events), error)
                continue
            except Exception:  # noqa: BLE001 - the router has logged it; the source goes on
                self.refused += len(events)
                continue
            if pending is None:
                self.events += len(events)
            else:
                waiting.append((len(events), pending))
        return self._await_all(waiting) if waiting else None

    async def _await_all(self, waiting: list[tuple[int, Awaitable[None]]]) -> None:
        for count, pending in waiting:
            try:
                await pending
            except BufferOverflow as error:
                self._drop(count, error)
            except Exception:  # noqa: BLE001 - the router has logged it
                self.refused += count
            else:
                self.events += count

    def _drop(self, count: int, error: BufferOverflow) -> None:
        self.refused += count
        self._full.log(self._owner.log, logging.WARNING, "the buffer is full, messages are dropped: %s", error.message)
