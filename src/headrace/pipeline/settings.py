"""The <buffer> section: every parameter of docs.fluentd.org, Config: Buffer Section.

`BufferSection` is the base of the buffer plugins; a plugin adds the parameters of its storage and makes
the `Store`. Where this differs from Fluentd: flush_thread_burst_interval and flush_thread_interval have no
default, because lanes do not sleep while chunks wait and wake by themselves when one is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import array, boolean, enum, integer, literal_of, number, size, string, time
from headrace.conf.tree import Directive
from headrace.pipeline.codec import NAMES
from headrace.pipeline.placeholders import ChunkKeys
from headrace.pipeline.plugin import Output, Plugin, overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.buffer import Store
    from headrace.pipeline.context import Context
    from headrace.pipeline.fluentfiles import Location

MANY_KEYS = 4
MANY_LANES = 10_000


class BufferSection(Plugin):
    """How an output's chunks are built, kept, flushed and retried."""

    kind = "buffer"
    persistent: ClassVar[bool] = False
    """Whether chunks outlive the process."""

    chunk_keys = array(default=[], doc="By what events are grouped: tag, time, fields of the record")
    timekey = time(default=None, doc="Seconds of a time slice, with the chunk key time")
    timekey_wait = time(default=600.0, doc="Seconds to wait for late events after a time slice has ended")
    timekey_use_utc = boolean(default=False, doc="Time slices and their placeholders in UTC")
    timekey_zone = string(default=None, doc="Time zone of slices and placeholders; default: local time")

    chunk_limit_size = size(default=8 << 20, doc="Bytes of a chunk")
    chunk_limit_records = integer(default=None, doc="Events of a chunk")
    chunk_full_threshold = number(default=0.95, doc="Part of the limits at which a chunk is full")
    total_limit_size = size(default=512 << 20, doc="Bytes of all chunks: staged, queued and in flight")
    queue_limit_length = integer(default=None, doc="Old form of total_limit_size, in chunks of chunk_limit_size")
    queued_chunks_limit_size = integer(
        default=None, doc="Queued chunks at which flush_interval stages no more; default: flush_thread_count"
    )
    compress = enum(tuple(NAMES), default="text", doc="Compression of what a chunk holds")
    decompression_size_limit = size(
        default=None, doc="Refused: a chunk was compressed here; sources have a limit of this name for what comes"
    )
    disable_chunk_backup = boolean(default=False, doc="Throw chunks away that cannot be delivered")

    flush_at_shutdown = boolean(default=None, doc="Flush everything at the end; default: unless chunks are kept")
    flush_mode = enum(
        ("default", "lazy", "interval", "immediate"),
        default="default",
        doc="When chunks are queued; default is lazy with the chunk key time, else interval",
    )
    flush_interval = time(default=60.0, doc="Seconds after which a chunk is queued")
    flush_thread_count = integer(default=1, doc="Flush lanes: chunks delivered at the same time")
    flush_thread_interval = number(default=None, doc="Least seconds between two checks of what is due")
    flush_thread_burst_interval = number(default=None, doc="Seconds a lane rests after a chunk")
    delayed_commit_timeout = time(default=60.0, doc="Seconds until a chunk without an answer counts as failed")
    overflow_action = enum(
        ("throw_exception", "block", "drop_oldest_chunk"),
        default="throw_exception",
        doc="What happens when the buffer is full",
    )

    retry_type = enum(("exponential_backoff", "periodic"), default="exponential_backoff", doc="How waits grow")
    retry_wait = time(default=1.0, doc="Seconds before the first retry")
    retry_exponential_backoff_base = number(default=2.0, doc="By what each wait is longer than the one before")
    retry_max_interval = time(default=None, doc="Longest wait in seconds")
    retry_timeout = time(default=72 * 3600.0, doc="Seconds after which a chunk is given up")
    retry_max_times = integer(default=None, doc="Retries of a chunk before it is given up; 0: none")
    retry_forever = boolean(default=False, doc="Never give up what may be tried again")
    retry_secondary_threshold = number(default=0.8, doc="Part of retry_timeout after which <secondary> is used")
    retry_randomize = boolean(default=True, doc="Vary waits by an eighth, so that senders do not come together")

    keys: ChunkKeys
    owner: Output

    def open_store(self, context: Context) -> Store:
        """Make the storage; `owner` is set. Called in the owner's start, so it may touch the disk."""
        raise NotImplementedError

    def adopts(self, context: Context) -> list[Location]:
        """Where chunks of a Fluentd may lie that are to be taken over: nowhere, for a buffer that keeps none."""
        return []

    def holds_packed(self) -> bool:
        """Whether chunks hold the msgpack stream of events."""
        return not overrides(self.owner, Output, "format") or self.owner.formatted_to_msgpack

    def validate(self, problems: Problems) -> None:
        """Check the parameters together."""
        if self.decompression_size_limit is not None:
            problems.error(
                'parameter "decompression_size_limit" of a buffer is not supported: chunks are as large as '
                "chunk_limit_size and chunk_limit_records let them be",
                self.place_of("decompression_size_limit"),
                hint="leave it out; the sources forward and http have it for what clients send",
            )
        try:
            self.keys = ChunkKeys(
                self.chunk_keys,
                timekey=self.timekey,
                use_utc=self.timekey_use_utc,
                timezone=self.timekey_zone,
            )
        except ValueError as error:
            problems.error(str(error), self.place)
            return
        if len(self.chunk_keys) - ("time" in self.chunk_keys) >= MANY_KEYS:
            problems.warn("many chunk keys are configured; they may make very many chunks", self.place)
        self._validate_flush(problems)

    def validate_values(self, problems: Problems) -> None:
        """Check each parameter by itself."""
        fail = problems.error
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                fail(f'parameter "{name}" must be at least 1', self.place_of(name))
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                fail(f'parameter "{name}" cannot be negative', self.place_of(name))
        if self.flush_thread_count > MANY_LANES:
            place = self.place_of("flush_thread_count")
            fail(f'parameter "flush_thread_count" must be at most {MANY_LANES}', place)
        if not 0 < self.chunk_full_threshold <= 1:
            fail('parameter "chunk_full_threshold" must be above 0 and at most 1', self.place)
        if not 0 < self.retry_secondary_threshold <= 1:
            fail('parameter "retry_secondary_threshold" must be above 0 and at most 1', self.place)

    def _validate_flush(self, problems: Problems) -> None:
        has_interval = self.directive is not None and any(self.directive.children("flush_interval"))
        if has_interval and self.effective_mode != "interval":
            place = self.place_of("flush_interval")
            if self.flush_mode != "default":
                problems.error(
                    f'"flush_interval" cannot stand beside flush_mode {self.flush_mode}', place, hint="remove one"
                )
            else:
                problems.warn('"flush_interval" is ignored: with the chunk key time, flush_mode is lazy', place)
        if self.flush_at_shutdown is False and not self.persistent:
            problems.warn(
                "flush_at_shutdown is false and the buffer is in memory: what is buffered at the end is lost",
                self.place_of("flush_at_shutdown"),
            )

    @property
    def effective_mode(self) -> str:
        """flush_mode with its default resolved: lazy, interval or immediate."""
        if self.flush_mode != "default":
            return self.flush_mode
        return "interval" if self.keys.timekey is None else "lazy"

    @property
    def flushes_at_shutdown(self) -> bool:
        """flush_at_shutdown with its default resolved."""
        return not self.persistent if self.flush_at_shutdown is None else self.flush_at_shutdown

    @property
    def total_limit(self) -> int:
        """Bytes of all chunks, queue_limit_length taken into account."""
        if self.queue_limit_length is not None:
            return self.chunk_limit_size * self.queue_limit_length
        return self.total_limit_size

    @property
    def queued_limit(self) -> int:
        """Queued chunks at which flush_interval stages no more."""
        return self.flush_thread_count if self.queued_chunks_limit_size is None else self.queued_chunks_limit_size

    def stats(self) -> dict[str, Any]:
        """Return nothing: the owner tells the figures of its buffer."""
        return {}


_AT_LEAST_ONE = (
    "chunk_limit_size",
    "chunk_limit_records",
    "total_limit_size",
    "queue_limit_length",
    "queued_chunks_limit_size",
    "flush_thread_count",
)
_NOT_NEGATIVE = (
    "retry_wait",
    "retry_max_interval",
    "retry_timeout",
    "retry_max_times",
    "retry_exponential_backoff_base",
    "flush_interval",
    "flush_thread_interval",
    "flush_thread_burst_interval",
    "delayed_commit_timeout",
    "timekey_wait",
)


def with_defaults(directive: Directive, defaults: Mapping[str, str], keys: Iterable[str]) -> Directive:
    """Return a <buffer> section with an output's own defaults added where it says nothing.

    keys: the chunk keys when the section has no argument.
    """
    given = {child.name for child in directive.block or ()}
    if any(str(literal_of(child)) not in {"interval", "default"} for child in directive.children("flush_mode")):
        given.add("flush_interval")  # it would be an error, and nobody wrote it
    added = tuple(
        Directive(name, (value,), directive.file, directive.line, values=(value,))
        for name, value in defaults.items()
        if name not in given and name != "@type"
    )
    argument = " ".join(directive.args).strip() or ",".join(keys)
    return Directive(
        directive.name,
        (argument,) if argument else (),
        directive.file,
        directive.line,
        block=(directive.block or ()) + added,
    )


def configured(section: BufferSection, directive: Directive, problems: Problems) -> None:
    """Fill a buffer plugin from its section, the tag's argument included."""
    if directive.args and str(literal_of(directive)).strip():
        section.take_argument("chunk_keys", directive, problems)
    section.configure(directive, problems)
