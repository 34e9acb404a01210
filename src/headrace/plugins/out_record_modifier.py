"""Output `record_modifier` (github.com/repeatedly/fluent-plugin-record-modifier): changed records under another tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import string
from headrace.errors import Error
from headrace.pipeline.plugin import Output
from headrace.plugins.record_modifier import Modifying
from headrace.plugins.reemit import emit_all
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch, Event


class RecordModifierOutput(Modifying, Output):
    """Makes records anew, and sends them on."""

    routes = True
    takes_label = True

    tag = string(doc="The new tag; ${...} is filled in from the changed record")

    def provision(self, context: Context) -> None:
        """Compile."""
        self._run = self.compiled(context, self.tag)

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Modify the records and emit them."""
        if tag == self.tag:
            raise Error(f'the tag is "{tag}" already: its events would come back here for ever')
        events = self._run(tag, batch.events(), self.router.emit_error_event)
        if "${" not in self.tag:
            return self.router.emit(self.tag, batch.onward(events, self.tag)) if events else None
        groups: dict[str, list[Event]] = {}
        made: list[tuple[int, Any]] = list(events)
        for time, (new, record) in made:
            name = to_s(new)
            if name == tag:
                error = Error(f'the tag is "{tag}" already: the event would come back here for ever')
                self.router.emit_error_event(tag, time, record, error)
                continue
            groups.setdefault(name, []).append((time, record))
        return emit_all((self.router, new, batch.onward(some, new)) for new, some in groups.items())
