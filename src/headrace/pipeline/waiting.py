"""The way of a batch past filters that may have to wait: batches of a tag leave it in the order in which they came.

As long as nobody waits it is the ordinary way, one call after the other. When a filter returns an awaitable, its
batch and all that come after it under the same tag wait in line, and one task takes them on in turn; other tags go
their own way. Whoever emitted waits for its own batch, which is how a source is held back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.pipeline.plugin import Filter

    Route = Callable[[str, Batch], Awaitable[None] | None]
    OnError = Callable[[str, Batch, BaseException], Awaitable[None] | None]


class _Held:
    """A batch in line. at: the filter it stands before. step: what that filter has returned already."""

    __slots__ = ("ack", "at", "batch", "future", "name", "step")

    def __init__(self, batch: Batch, at: int, step: Awaitable[Batch] | None) -> None:
        self.batch = batch
        self.name, self.ack = batch.id, batch.ack
        self.at = at
        self.step = step
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Lines:
    """The lines of one router, by tag. failed: what becomes of a batch whose way raised, as for one that did not wait.

    length: batches in line now.
    """

    def __init__(self, failed: OnError) -> None:
        self._failed = failed
        self._lines: dict[str, deque[_Held]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def length(self) -> int:
        """Batches in line."""
        return sum(map(len, self._lines.values()))

    def route(self, filters: Sequence[Filter], last: Route) -> Route:
        """The way past some filters to `last`."""

        def through(tag: str, batch: Batch) -> Awaitable[None] | None:
            line = self._lines.get(tag)
            if line is not None:
                held = _Held(batch, 0, None)
                line.append(held)
                return held.future
            name, ack = batch.id, batch.ack
            for at, plugin in enumerate(filters):
                plugin.received += batch.count
                step = plugin.filter_later(tag, batch) if plugin.waits else plugin.filter_batch(tag, batch)
                if not isinstance(step, Batch):
                    held = _Held(batch, at + 1, step)
                    held.name, held.ack = name, ack
                    self._begin(tag, held, filters, last)
                    return held.future
                batch = step
                plugin.passed += batch.count
                if not batch.count:
                    return None
            return last(tag, _named(batch, name, ack))

        return through

    def _begin(self, tag: str, held: _Held, filters: Sequence[Filter], last: Route) -> None:
        self._lines[tag] = deque([held])
        task = asyncio.get_running_loop().create_task(self._take_on(tag, filters, last))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_on(self, tag: str, filters: Sequence[Filter], last: Route) -> None:
        """Bring everything in line to the end of the way; the line is gone when nothing is left in it."""
        line = self._lines[tag]
        try:
            while line:
                held = line[0]
                try:
                    outcome = await self._one(tag, held, filters, last)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever emitted
                    _end(held.future, error)
                else:
                    _follow(outcome, held.future)
                line.popleft()
        finally:
            del self._lines[tag]
            for held in line:
                held.future.cancel()

    async def _one(self, tag: str, held: _Held, filters: Sequence[Filter], last: Route) -> Awaitable[None] | None:
        batch = held.batch
        try:
            if held.step is not None:
                batch = await held.step
                filters[held.at - 1].passed += batch.count
            for plugin in filters[held.at :]:
                if not batch.count:
                    return None
                plugin.received += batch.count
                step = plugin.filter_later(tag, batch) if plugin.waits else plugin.filter_batch(tag, batch)
                batch = step if isinstance(step, Batch) else await step
                plugin.passed += batch.count
            return last(tag, _named(batch, held.name, held.ack)) if batch.count else None
        except BufferOverflow:
            raise
        except Exception as error:  # noqa: BLE001 - as the router does for what does not wait
            return self._failed(tag, held.batch, error)


def _named(batch: Batch, name: bytes | None, ack: object) -> Batch:
    """The batch with what its sender said about it."""
    if name is not None:
        batch.id = name
    if ack:
        batch.ack = ack  # type: ignore[assignment] # it came from a batch
    return batch


def _end(future: asyncio.Future[None], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _follow(outcome: Awaitable[None] | None, future: asyncio.Future[None]) -> None:
    """End `future` as `outcome` ends; the line does not wait for that."""
    if outcome is None:
        if not future.done():
            future.set_result(None)
        return

    def ended(task: asyncio.Future[None]) -> None:
        if future.done():
            return
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(None)

    asyncio.ensure_future(outcome).add_done_callback(ended)
