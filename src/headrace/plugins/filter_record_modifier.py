"""Filter `record_modifier` (github.com/repeatedly/fluent-plugin-record-modifier): adds, changes and removes fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Filter
from headrace.plugins.record_modifier import Modifying

if TYPE_CHECKING:
    from headrace.pipeline.context import Context


class RecordModifierFilter(Modifying, Filter):
    """Makes records anew; a record whose expression fails goes to @ERROR."""

    def provision(self, context: Context) -> None:
        """Compile."""
        self._run = self.compiled(context)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Modify the records."""
        return Batch.of(self._run(tag, batch.events(), self.router.emit_error_event))
