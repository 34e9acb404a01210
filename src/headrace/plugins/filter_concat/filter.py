"""Filter `concat` (github.com/fluent-plugins-nursery/fluent-plugin-concat): parts of a text become one event.

What stays incomplete for flush_interval, or until the end, goes to timeout_label, or to @ERROR as a timeout.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.conf.params import boolean, enum, integer, regexp, size, string, time
from headrace.errors import Error
from headrace.pipeline.event import NS, Batch
from headrace.pipeline.plugin import Filter
from headrace.plugins.filter_concat.modes import FORMATS, Cri, Lines, Metadata, Mode, Partial, Patterns
from headrace.plugins.filter_concat.streams import Stream
from headrace.plugins.guard import OverdueError, guard
from headrace.plugins.reemit import Later
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from typing import Any

    from headrace.conf.params import Problems
    from headrace.core.clock import Deadline
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event, Record
    from headrace.pipeline.router import Router

_LOG_TAGS: Final = re.compile(r"fluent\.(?:trace|debug|info|warn|error|fatal)")
_LOOK: Final = 1.0
"""Seconds between two looks at streams."""


class ConcatTimeout(Error):
    """A text that stayed incomplete."""

    kind = "timeout"


class ConcatFilter(Filter):
    """Puts parts together. Streams are told apart by tag and stream_identity_key."""

    stateful = True

    key = string(doc="The field that holds the parts")
    separator = string(default="\n", doc="What stands between the parts")
    n_lines = integer(default=None, doc="So many events are one")
    multiline_start_regexp = regexp(default=None, doc="How a text begins")
    multiline_end_regexp = regexp(default=None, doc="How a text ends")
    continuous_line_regexp = regexp(default=None, doc="How the parts between look; another event ends the text")
    stream_identity_key = string(default=None, doc="Field that tells streams apart")
    flush_interval = time(default=60.0, doc="Seconds after which an incomplete text is given up; 0: never")
    timeout_label = string(default=None, doc="Label for incomplete texts; else @ERROR")
    use_first_timestamp = boolean(default=False, doc="The time is that of the first part; false: of the last")
    partial_key = string(default=None, doc="Field that says whether more follows")
    partial_value = string(default=None, doc="Its value where more follows")
    keep_partial_key = boolean(default=False, doc="Leave partial_key, or the logtag, in the record")
    use_partial_metadata = boolean(default=False, doc="Go by the fields of Docker's log drivers")
    partial_metadata_format = enum(tuple(FORMATS), default="docker-fluentd", doc="Which fields those are")
    keep_partial_metadata = boolean(default=False, doc="Leave those fields in the record")
    use_partial_cri_logtag = boolean(default=False, doc="Go by the logtag of the Container Runtime Interface")
    partial_cri_logtag_key = string(default=None, doc="Field of the logtag")
    partial_cri_stream_key = string(default="stream", doc="Field of the stream's name; it is left out")
    buffer_limit_size = size(default=500 * 1024, doc="With partial_key: bytes that a stream may hold")
    buffer_overflow_method = enum(
        ("ignore", "truncate", "drop", "new"),
        default="ignore",
        doc="What then happens: nothing; the text ends without this part; it is lost; a new one begins",
    )

    def validate(self, problems: Problems) -> None:
        """Find the one way to put together."""
        super().validate(problems)
        patterns = self.multiline_start_regexp is not None or self.multiline_end_regexp is not None
        ways = {
            "n_lines": self.n_lines is not None,
            "multiline_start_regexp or multiline_end_regexp": patterns,
            "partial_key": self.partial_key is not None,
            "use_partial_metadata": self.use_partial_metadata,
            "use_partial_cri_logtag": self.use_partial_cri_logtag,
        }
        chosen = [name for name, given in ways.items() if given]
        if not chosen:
            problems.error("one of " + ", ".join(ways) + " is required", self.place)
        elif len(chosen) > 1:
            problems.error(" and ".join(chosen) + " exclude each other", self.place)
        if self.partial_key is not None and self.partial_value is None:
            problems.error("partial_key needs partial_value", self.place_of("partial_key"))
        if self.use_partial_cri_logtag and self.partial_cri_logtag_key is None:
            problems.error(
                "use_partial_cri_logtag needs partial_cri_logtag_key", self.place_of("use_partial_cri_logtag")
            )
        if self.continuous_line_regexp is not None and not patterns:
            place = self.place_of("continuous_line_regexp")
            problems.error("continuous_line_regexp needs multiline_start_regexp or multiline_end_regexp", place)
        if self.n_lines is not None and self.n_lines < 1:
            problems.error("n_lines must be at least 1", self.place_of("n_lines"))

    def provision(self, context: Context) -> None:
        """Find the label."""
        self._streams: dict[str, Stream] = {}
        self._timed_out = 0
        self._timer: Deadline | None = None
        self._label: Router | None = None
        if self.timeout_label is not None:
            self._label = context.label(self.timeout_label, self.place_of("timeout_label"))
        self._mode = self._chosen()
        self._later = Later(self)

    def _chosen(self) -> Mode:
        if self.n_lines is not None:
            return Lines(self)
        if self.partial_key is not None:
            return Partial(self)
        if self.use_partial_metadata:
            return Metadata(self)
        return Cri(self) if self.use_partial_cri_logtag else Patterns(self)

    async def start(self) -> None:
        """Look at the streams from now on."""
        if self.flush_interval > 0:
            self._timer = self.context.clock.deadline(_LOOK, self._look)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Keep parts, let whole texts go on."""
        if _LOG_TAGS.fullmatch(tag):
            return batch
        kept: list[Event] = []
        mode, key, first = self._mode, self.key, self.use_first_timestamp
        if not guard.armed:
            guard.arm()
        for event in batch.events():
            time, record = event
            if key not in record or (mode.indicator is not None and mode.indicator not in record):
                kept.append(event)
                continue
            guard.turn += 1
            try:
                guard.busy = True
                found = mode.take(self._stream(tag, record), event)
                guard.busy = False
                for moment, whole in found:
                    merged = {**record, **whole}
                    for name in mode.dropped:
                        merged.pop(name, None)
                    kept.append((moment if first else time, merged))
            except (TypeError, ValueError, OverdueError) as error:
                guard.busy = False
                self.router.emit_error_event(tag, time, record, error)
        return Batch.of(kept)

    def _stream(self, tag: str, record: Record) -> Stream:
        name = to_s(record.get(self.stream_identity_key)) if self.stream_identity_key is not None else ""
        if isinstance(self._mode, Metadata):
            name += to_s(record.get(self._mode.id))
        elif self.stream_identity_key is None:
            name = "default"
        identity = f"{tag}:{name}"
        now = self.context.clock.now()
        found = self._streams.get(identity)
        if found is None:
            found = self._streams[identity] = Stream(tag, identity, now)
        found.touched = now
        return found

    def flush(self, stream: Stream) -> Event:
        """The parts of a stream as one event."""
        return stream.flush(self.key, self.separator, self._mode.ordinal)

    def _look(self) -> None:
        now = self.context.clock.now()
        for identity, stream in list(self._streams.items()):
            if now - stream.touched >= self.flush_interval:
                del self._streams[identity]
                self._give_up(stream, "Timeout flush")
        self._timer = self.context.clock.deadline(_LOOK, self._look)

    def _give_up(self, stream: Stream, why: str) -> None:
        if not stream.events:
            return
        time, record = self.flush(stream)
        if why == "Timeout flush" and not self.use_first_timestamp:
            time = self.context.clock.wall_ns() // NS * NS
        self._timed_out += 1
        self.log.info("%s: %s", why, stream.name)
        if self._label is not None:
            self._later.emit(self._label, stream.tag, Batch.one(time, record))
        else:
            self.router.emit_error_event(stream.tag, time, record, ConcatTimeout(f"{why}: {stream.name}"))

    async def stop(self) -> None:
        """Give up what is incomplete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._give_up(stream, "Flush remaining buffer")
        await self._later.drain()

    async def close(self) -> None:
        """End what is left."""
        if hasattr(self, "_later"):
            self._later.cancel()

    def stats(self) -> dict[str, Any]:
        """Streams that are incomplete, and how many were given up."""
        return {"streams": len(self._streams), "given_up": self._timed_out}
