"""Output `null` (docs.fluentd.org, Output Plugins, null): throws events away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import boolean
from headrace.errors import Error
from headrace.pipeline.plugin import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.event import Batch
    from headrace.pipeline.lanes import Lane


class NullOutput(Output):
    """Throws events away; with <buffer>, whole chunks."""

    prefers_buffer = False
    only_counts = True
    buffer_defaults: ClassVar[Mapping[str, str]] = {"flush_at_shutdown": "true", "chunk_limit_size": "10k"}
    default_chunk_keys = ("tag",)

    never_flush = boolean(default=False, doc="Fail always, to see what a dead destination does")

    dropped = 0

    def process(self, tag: str, batch: Batch) -> None:
        """Throw a batch away. Raises Error with never_flush."""
        if self.never_flush:
            self._drop(batch.count)
        self.dropped += batch.count

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Throw a chunk away. Raises Error with never_flush."""
        self._drop(chunk.count)

    def _drop(self, count: int) -> None:
        if self.never_flush:
            raise Error("failed to flush", kind="never_flush", retryable=True)
        self.dropped += count

    def stats(self) -> dict[str, Any]:
        """How many events ended here."""
        return {"dropped": self.dropped}
