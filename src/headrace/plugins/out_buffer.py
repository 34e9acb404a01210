"""Output `buffer` (Fluentd 1.18 and later): keeps events in a buffer of its own and emits them again, in a label.

A stage between sources and outputs: what is behind it may be slow, or refuse for a while, and the sources do not feel
it. In <secondary> it emits what its primary gave up: a label for dead letters. To a source with `ack_mode delivery`
an event is delivered when it has left this stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from headrace.conf.params import string
from headrace.errors import ConfError
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.lanes import Lane

_TAG: Final = "tag"


class BufferOutput(Output):
    """Buffers events on their way to a label."""

    routes = True

    buffer_defaults: ClassVar[Mapping[str, str]] = {
        "@type": "file",
        "flush_mode": "interval",
        "flush_interval": "10",
    }
    default_chunk_keys = (_TAG,)

    label_ = string(key="@label", doc="The label that the events go on in; @ROOT is the top level")

    def provision(self, context: Context) -> None:
        """Find the label."""
        target = context.label(self.label_, self.place_of("@label"))
        if target is self.router:
            raise ConfError(
                f"the label {self.label_} is the one that this section stands in: its events would go round for ever",
                self.place_of("@label"),
            )
        runner = self.runner
        if runner is not None and runner.output is not self and not runner.section.holds_packed():
            raise ConfError(
                f"{runner.output.type_} formats its events as they come: there are none to emit in <secondary>",
                self.place,
            )
        if runner is not None and not runner.keys.tag:
            raise ConfError(
                "the chunk keys must have the tag, which the events need to go on", self.place, hint="<buffer tag>"
            )
        self._target = target

    def pass_on(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Emit a batch in the label."""
        return self._target.emit(tag, batch)

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Emit the events of a chunk. Raises BufferOverflow when what comes next is full: it is tried again."""
        waiting = self.pass_on(chunk.tag or "", Batch.from_packed(chunk.read(), chunk.count))
        if waiting is not None:
            await waiting
