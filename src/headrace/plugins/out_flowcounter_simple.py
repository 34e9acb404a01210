"""Output `flowcounter_simple` of fluent-plugin-flowcounter-simple: events end here and are counted in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.pipeline.plugin import Output
from headrace.plugins.flowcounter import FlowCounter, FlowParams

if TYPE_CHECKING:
    from headrace.pipeline.event import Batch


class FlowcounterSimpleOutput(FlowParams, Output):
    """Counts events."""

    _counter: FlowCounter | None = None

    async def start(self) -> None:
        """Begin to count."""
        self._counter = FlowCounter(self, self.context, self.log)

    def process(self, tag: str, batch: Batch) -> None:
        """Count a batch."""
        assert self._counter is not None
        self._counter.add(batch)

    async def stop(self) -> None:
        """Log what is left."""
        if self._counter is not None:
            await self._counter.stop()

    def stats(self) -> dict[str, Any]:
        """The sum of the lines."""
        return {"counted": self._counter.total if self._counter is not None else 0}
