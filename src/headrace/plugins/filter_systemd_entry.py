"""Filter `systemd_entry`: renames the fields of journal entries; see systemd_entry.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.plugin import Filter
from headrace.plugins.systemd_entry import EntryFields

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch, Record


class SystemdEntryFilter(EntryFields, Filter):
    """Renames fields."""

    def provision(self, context: Context) -> None:
        """Prepare."""
        self._change = self.change()

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Where nothing is to be changed, the batch passes as it is."""
        return batch if self._change is None else super().filter_batch(tag, batch)

    def filter(self, tag: str, time: int, record: Record) -> Record | None:
        """Return the record with its fields renamed."""
        return record if self._change is None else self._change(record)
