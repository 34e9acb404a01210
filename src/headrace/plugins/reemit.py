"""Events that go back into the pipeline: at once for several tags, and later by a timer's doing."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from headrace.pipeline.event import Event
    from headrace.pipeline.plugin import Plugin
    from headrace.pipeline.router import Router

_RETRY: Final = 0.1
"""Seconds until a full buffer is tried again."""


def part_of(batch: Batch, events: Sequence[Event], mark: str) -> Batch:
    """Some events of a batch, changed perhaps, as one of their own.

    What the sender waits for stays. A batch that has a name gives its parts names, which are the same when it comes
    again; mark: what tells the parts apart.
    """
    made = Batch.of(events)
    made.ack = batch.ack
    if batch.id is not None:
        made.id = blake2b(batch.id + mark.encode("utf-8", "surrogateescape"), digest_size=16).digest()
    return made


def emit_all(parts: Iterable[tuple[Router, str, Batch]]) -> Awaitable[None] | None:
    """Emit several batches; an awaitable when one of them takes time.

    BufferOverflow goes to the caller: what was taken before it may come again.
    """
    waiting = [outcome for router, tag, batch in parts if (outcome := router.emit(tag, batch)) is not None]
    if len(waiting) < 2:
        return waiting[0] if waiting else None
    return _together(waiting)


async def _together(waiting: list[Awaitable[None]]) -> None:
    await asyncio.gather(*waiting)


class Later:
    """Emits what nobody waits for; what finds no room is offered until it is taken."""

    def __init__(self, owner: Plugin) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, router: Router, tag: str, batch: Batch) -> None:
        """Emit a batch."""
        try:
            pending = router.emit(tag, batch)
        except BufferOverflow:
            pending = None
        except Exception:  # noqa: BLE001 - the router has logged it
            return
        else:
            if pending is None:
                return
        task = asyncio.ensure_future(self._persist(router, tag, batch, pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _persist(self, router: Router, tag: str, batch: Batch, pending: Awaitable[None] | None) -> None:
        while True:
            try:
                if pending is None:
                    await self._owner.context.clock.sleep(_RETRY)
                    pending = router.emit(tag, batch)
                if pending is not None:
                    await pending
            except BufferOverflow:
                pending = None
            except Exception:  # noqa: BLE001 - the router has logged it
                return
            else:
                return

    async def drain(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
