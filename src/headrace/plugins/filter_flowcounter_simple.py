"""Filter `flowcounter_simple` of fluent-plugin-flowcounter-simple: counts in the log what passes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.pipeline.plugin import Filter
from headrace.plugins.flowcounter import FlowCounter, FlowParams

if TYPE_CHECKING:
    from headrace.pipeline.event import Batch


class FlowcounterSimpleFilter(FlowParams, Filter):
    """Counts events and lets them pass."""

    _counter: FlowCounter | None = None

    async def start(self) -> None:
        """Begin to count."""
        self._counter = FlowCounter(self, self.context, self.log)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Count a batch and return it."""
        assert self._counter is not None
        self._counter.add(batch)
        return batch

    async def stop(self) -> None:
        """Log what is left."""
        if self._counter is not None:
            await self._counter.stop()

    def stats(self) -> dict[str, Any]:
        """The sum of the lines."""
        return {"counted": self._counter.total if self._counter is not None else 0}
