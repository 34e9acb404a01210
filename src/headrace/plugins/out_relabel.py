"""Output `relabel` (docs.fluentd.org, Output Plugins, relabel): events go on in another label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import string
from headrace.errors import ConfError
from headrace.pipeline.plugin import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch


class RelabelOutput(Output):
    """Sends events to a label."""

    routes = True

    label_ = string(key="@label", doc="The label; @ROOT is the top level")

    def provision(self, context: Context) -> None:
        """Find the label."""
        target = context.label(self.label_, self.place_of("@label"))
        if target is self.router:
            raise ConfError(
                f"the label {self.label_} is the one that this section stands in: its events would go round for ever",
                self.place_of("@label"),
            )
        self._target = target
        self.passes_to = (target,)

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Emit a batch in the label."""
        return self._target.emit(tag, batch)
