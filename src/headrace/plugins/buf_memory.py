"""Buffer `memory` (docs.fluentd.org, Buffer Plugins, memory): fast, and gone with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.memory import MemoryStore
from headrace.pipeline.settings import BufferSection

if TYPE_CHECKING:
    from headrace.pipeline.context import Context


class MemoryBuffer(BufferSection):
    """Chunks in memory."""

    def open_store(self, context: Context) -> MemoryStore:
        """Make the storage."""
        return MemoryStore()
