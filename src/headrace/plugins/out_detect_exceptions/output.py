"""Output `detect_exceptions` (github.com/GoogleCloudPlatform/fluent-plugin-detect-exceptions).

Messages that follow each other and are the lines of one stack trace become one event, with the time and the fields of
the first; all others go on as they are, under the tag without remove_tag_prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import array, boolean, integer, string, time
from headrace.errors import Error
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Output
from headrace.plugins.out_detect_exceptions.rules import LANGUAGES, table
from headrace.plugins.out_detect_exceptions.traces import Stream
from headrace.plugins.reemit import Later
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.params import Problems
    from headrace.core.clock import Deadline
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event

_STREAMS_MAX: Final = 10_000
"""Streams without a trace under way are forgotten beyond this."""


class DetectExceptionsOutput(Output):
    """Puts stack traces together."""

    routes = True
    takes_label = True

    remove_tag_prefix = string(doc="Take this, and a dot, from the tag, so that events do not come back here")
    message = string(default="", doc="Field of the text; empty: message or log, whichever is there")
    multiline_flush_interval = time(default=None, doc="Seconds after which an unfinished trace goes on")
    languages = array(default=[], doc="Whose traces: " + ", ".join(LANGUAGES))
    force_line_breaks = boolean(default=False, doc="Put newlines between messages that have none")
    max_lines = integer(default=1000, doc="Messages after which a trace goes on; 0: without limit")
    max_bytes = integer(default=0, doc="Characters after which a trace goes on; 0: without limit")
    stream = string(default="", doc="Field that tells streams of one tag apart")

    def validate(self, problems: Problems) -> None:
        """Know the languages."""
        super().validate(problems)
        for word in self.languages:
            if word.lower() not in LANGUAGES:
                problems.error(
                    f"unknown language {word}", self.place_of("languages"), hint="known: " + ", ".join(LANGUAGES)
                )

    def provision(self, context: Context) -> None:
        """Compile the rules."""
        self._table = table(tuple(self.languages))
        self._streams: dict[tuple[str, str], Stream] = {}
        self._timer: Deadline | None = None
        self._later = Later(self)

    async def start(self) -> None:
        """Look at unfinished traces from now on."""
        self._arm()

    def _arm(self) -> None:
        if self.multiline_flush_interval:
            self._timer = self.context.clock.deadline(max(self.multiline_flush_interval * 0.1, 1.0), self._look)

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Take a batch; what is whole goes on."""
        out: list[Event] = []
        now = self.context.clock.now()
        target = tag.removeprefix(self.remove_tag_prefix + ".")
        if target == tag:
            raise Error(f'the tag "{tag}" does not begin with remove_tag_prefix: its events would come back here')
        field = self.stream
        streams = self._streams
        touched: dict[tuple[str, str], Stream] = {}
        whole = True
        for event in batch.events():
            mark = (tag, to_s(event[1].get(field)) if field else "")
            stream = streams.get(mark)
            if stream is None:
                stream = self._new(mark, target)
            if mark not in touched:
                touched[mark] = stream
                whole = whole and stream.first is None
            stream.push(event, out, now)
        if not out:
            return None
        if whole and all(stream.first is None for stream in touched.values()):
            return self.router.emit(target, batch.onward(out, f"exceptions {target}"))
        made = Batch.of(out)  # without the batch's name: some of it goes on with another, or came with one
        made.ack = batch.ack
        return self.router.emit(target, made)

    def _new(self, mark: tuple[str, str], target: str) -> Stream:
        if len(self._streams) >= _STREAMS_MAX:
            self._streams = {one: stream for one, stream in self._streams.items() if stream.first is not None}
        made = self._streams[mark] = Stream(self, self._table, target)
        return made

    def _look(self) -> None:
        now = self.context.clock.now()
        for stream in self._streams.values():
            if stream.first is not None and now - stream.since > (self.multiline_flush_interval or 0):
                self._end(stream)
        self._arm()

    def _end(self, stream: Stream) -> None:
        out: list[Event] = []
        stream.end(out)
        if out:
            self._later.emit(self.router, stream.tag, Batch.of(out))

    async def stop(self) -> None:
        """Let unfinished traces go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for stream in self._streams.values():
            self._end(stream)
        await self._later.drain()

    async def close(self) -> None:
        """End what is left."""
        if hasattr(self, "_later"):
            self._later.cancel()

    def stats(self) -> dict[str, Any]:
        """Streams, and those with a trace under way."""
        return {"streams": len(self._streams), "open": sum(one.first is not None for one in self._streams.values())}
