"""The base classes of all plugins, and what each kind promises.

Lifecycle, one step after the other; none is called twice:
1. construct: no side effects;
2. `configure(directive, problems)`: fills the declared parameters, `validate` checks them together;
3. `provision(context)`: finds its label, makes nested plugins; what is wrong goes to
   `context.problems`; still nothing outside the process is touched, so `check` stops here;
4. `await start()`: opens what it needs (`context.clock` and `context.sockets` exist from here on);
   outputs start before filters, filters before sources;
5. `await quiesce()` (sources only): takes no new input, finishes what it has;
6. `await stop()`, then `await close()`: gives everything back. stop never waits longer than the
   deadline of the shutdown; whoever hangs is cancelled.

Events move by `emit(tag, batch)`. It returns None when the batch is taken (in the buffers of every
output it went to), or an awaitable that ends when it is: a source waits for it before it answers its
client or reads on. BufferOverflow, raised or from the awaitable, means that nothing of the batch was
kept and the client should come back later.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from headrace.conf.params import Configurable, enum, number, raw_section, string
from headrace.conf.params import time as time_
from headrace.pipeline.compat import hint_for as compat_hint
from headrace.pipeline.event import Batch, Event, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from headrace.errors import Place
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.router import Router
    from headrace.pipeline.runner import Runner

TRACE = 5
"""Fluentd's level below debug."""
LEVELS: Mapping[str, int] = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class ListenSpec:
    """A listening socket that a source wants from the process.

    address: "HOST:PORT", "[v6]:PORT" or "unix:/path". The open socket is in `context.sockets[key]`.
    kind: "tcp" or "udp" (ignored for unix sockets). shared: workers may share one socket. place: where it is
    configured.
    """

    address: str
    backlog: int = 1024
    kind: str = "tcp"
    shared: bool = True
    place: Place | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Its name among the open sockets: the address, "udp:" before it for a socket of datagrams."""
        return f"udp:{self.address}" if self.kind == "udp" and not self.address.startswith("unix:") else self.address


@runtime_checkable
class Collector(Protocol):
    """Whatever takes events: an output, a router."""

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Take a batch; see the module's text."""
        ...


class Plugin(Configurable):
    """Base of all plugins."""

    kind: ClassVar[str] = ""
    multi_workers_ready: ClassVar[bool] = True
    """False: a source that only one worker may run."""
    takes_label: ClassVar[bool] = False
    """Whether `@label` tells where the events go that the plugin emits by `self.router`."""
    old_style: ClassVar[Mapping[str, str]] = {}
    """Sections whose parameters may stand beside the others, as before Fluentd 0.14: buffer, parse, format, inject.

    With each its chunk key (buffer) or its default type (parse, format); see `headrace.pipeline.compat`."""

    nested_types: ClassVar[Mapping[str, str]] = {}
    """The plugin of a <format> section that names none, where `old_style` does not tell it."""

    type_ = string(default="", key="@type", doc="Which plugin this is")
    id_ = string(default=None, key="@id", doc="Its unique name, in logs, statistics and below root_dir")
    log_level = enum(tuple(LEVELS), default=None, key="@log_level", doc="What it logs; default: <system> log_level")

    plugin_id: str
    """`@id`, or a name that is stable as long as the order of the configuration is."""
    log: logging.Logger
    context: Context
    router: Router
    """Where what it emits goes: the label it stands in, or the one that `@label` names."""

    @classmethod
    def hint_for(cls, name: str) -> str:
        """Where the parameter of an older version belongs."""
        if cls.kind == "buffer":
            return compat_hint(name, "buffer")
        return compat_hint(name) if cls.kind in {"input", "output", "filter"} else ""

    def provision(self, context: Context) -> None:
        """Resolve what the configuration names; `plugin_id`, `log`, `context` and `router` are set already."""

    async def start(self) -> None:
        """Open what the plugin needs. Raises Error when it cannot work."""

    async def stop(self) -> None:
        """End activity; called when no more events arrive."""

    async def close(self) -> None:
        """Give everything back; called last, also after a failed start."""

    def stats(self) -> dict[str, Any]:
        """Figures of this plugin: counters and gauges by name; nested dicts are allowed."""
        return {}


class Source(Plugin):
    """A plugin with events from outside. They go to `self.router.emit(tag, batch)`."""

    kind = "input"
    multi_workers_ready = False
    takes_label = True

    label_ = string(default=None, key="@label", doc="The <label> that takes the events")
    ack_mode = enum(
        ("buffer", "write", "fsync", "delivery"),
        default="buffer",
        doc="What an answer to the sender waits for: as the buffers say, until the kernel has the events, until the "
        "disk has them, or until every required destination has them. See docs/buffers.md",
    )
    ack_deadline = time_(default=60.0, doc="Seconds to wait for the delivery; then the sender is told to come back")

    def listeners(self) -> list[ListenSpec]:
        """Return the sockets that must be open before start."""
        return []

    def rerouted(self) -> None:
        """`self.router` is another one now: whoever keeps its `emit` takes it anew."""

    async def quiesce(self) -> None:
        """Accept nothing new, finish what was accepted; what cannot be finished is not acknowledged."""


class Filter(Plugin):
    """A plugin between sources and outputs. One of `filter` and `filter_batch` is overridden.

    An error in `filter` sends that record to the @ERROR label and goes on with the next. A filter that has to ask
    somebody outside the process sets `waits` and overrides `filter_later`.
    """

    kind = "filter"
    received = 0
    """Events that came to it."""
    passed = 0
    """Events that it let pass."""
    waits: ClassVar[bool] = False
    """Whether `filter_later` is called in place of `filter_batch`."""
    stateful: ClassVar[bool] = False
    """Whether what comes out may hold events of earlier batches: it goes on without the id of its batch."""

    label_ = string(default=None, key="@label", doc="Has no effect: what a filter lets pass stays in its label")

    def filter(self, tag: str, time: int, record: Record) -> Record | None:
        """Return the record, or another in its place, or None to drop it. It must not change its argument."""
        raise NotImplementedError

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Return what goes on; the same batch when nothing changes."""
        kept: list[Event] = []
        one = self.filter
        for time, record in batch.events():
            try:
                result = one(tag, time, record)
            except Exception as error:  # noqa: BLE001 - whatever a filter raises belongs to its record
                self.router.emit_error_event(tag, time, record, error)
                continue
            if result is not None:
                kept.append((time, result))
        return Batch.of(kept)

    def filter_later(self, tag: str, batch: Batch) -> Batch | Awaitable[Batch]:
        """Return what goes on, or an awaitable of it: then the batches behind it under the same tag wait too."""
        return self.filter_batch(tag, batch)


class Parser(Plugin):
    """Text to records."""

    kind = "parser"

    def parse(self, text: bytes) -> Iterable[tuple[int | None, Record | None]]:
        """Yield (time in ns or None, record), or (None, None) for text that does not match."""
        raise NotImplementedError

    def parse_lines(
        self, lines: Sequence[bytes], failed: Callable[[bytes, Exception | None], Event | None]
    ) -> list[Event]:
        """Return the events of many texts, in their order.

        failed: called with a text that has none (it does not match, has no time, or raised the error); the event that
        it returns, if any, takes the place. A parser overrides this where many texts at once are cheaper.
        """
        events: list[Event] = []
        add = events.append
        parse = self.parse
        for line in lines:
            try:
                for moment, record in parse(line):
                    if moment is not None and record is not None:
                        add((moment, record))
                    elif (instead := failed(line, None)) is not None:
                        add(instead)
            except Exception as error:  # noqa: BLE001 - what one text does wrong concerns no other
                if (instead := failed(line, error)) is not None:
                    add(instead)
        return events


class Formatter(Plugin):
    """A record to text."""

    kind = "formatter"

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """Return the text, newline included where the format has one. Raises ValueError if it has none."""
        raise NotImplementedError

    def format_many(self, tag: str, times: Sequence[int], records: Sequence[Record]) -> bytes:
        """Return the texts of some events, one behind the other; raises what `format` raises for one without."""
        return b"".join([self.format(tag, time, record) for time, record in zip(times, records, strict=True)])


class Output(Plugin):
    """A plugin that brings events elsewhere.

    Unbuffered: it overrides `process`. Buffered: it overrides `write` (or `try_write`, see there), and
    `format` unless chunks hold the msgpack stream of events. With both, a `<buffer>` section, or
    `prefers_buffer`, decides.
    """

    kind = "output"
    prefers_buffer: ClassVar[bool] = True
    prefers_delayed_commit: ClassVar[bool] = True
    """With `write` and `try_write` both: which is used."""
    buffer_defaults: ClassVar[Mapping[str, str]] = {}
    """Parameters of <buffer> that this output sets where the configuration does not; "@type" too."""
    default_chunk_keys: ClassVar[tuple[str, ...]] = ()
    """The chunk keys of a <buffer> section without an argument."""
    routes: ClassVar[bool] = False
    """True: all it does is send events on within the pipeline, so that `headrace test` runs it as it is."""
    only_counts: ClassVar[bool] = False
    """True: `process` needs the number of events and nothing else of a batch."""
    emits: ClassVar[bool] = False
    """True: it brings events back into the pipeline, by `self.router`, and ends before the other outputs."""
    formatted_to_msgpack: ClassVar[bool] = False
    """True: `format` makes msgpack entries, so that `chunk.events()` works."""

    passes_to: Sequence[Router] = ()
    """The labels that it sends every event to at once, under the same tag; `provision` sets it."""

    label_ = string(default=None, key="@label", doc="The <label> that takes the events that the output emits")
    slow_flush_log_threshold = number(default=20.0, doc="Seconds after which a flush is logged as slow")
    buffer_section = raw_section(name="buffer", doc="How chunks are built, kept, flushed and retried")
    secondary_section = raw_section(name="secondary", doc="The output that takes what this one could not deliver")

    format_many: Callable[[str, Sequence[int], Sequence[Record]], bytes] | None = None
    """What `format` makes of many events that are stored together, one behind the other, where that is faster; called
    with the tag, the times, the records. `provision` sets it."""

    received = 0
    """Events that came to it, where it has no buffer."""
    refused = 0
    """Those of them that it raised an error for at once."""
    runner: Runner | None = None
    """The buffer and the lanes of a buffered output; the primary's for a secondary."""

    def buffer_parameters(self) -> Mapping[str, str]:
        """`buffer_defaults`, or what they are with these parameters; `context` is set already."""
        return self.buffer_defaults

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Take a batch: into the buffer, or straight to `process`."""
        self.received += batch.count
        try:
            return self.process(tag, batch)
        except Exception:
            self.refused += batch.count
            raise

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Deliver a batch now (unbuffered outputs)."""
        raise NotImplementedError

    def pass_on(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Send a batch on at once, without the buffer (outputs that have one and `routes`)."""
        raise NotImplementedError

    def format(self, tag: str, time: int, record: Record) -> bytes | None:
        """Return the bytes of one record in the chunk; None leaves it out. Called when the event arrives."""
        raise NotImplementedError

    def format_failed(self, tag: str, time: int, record: Record, error: Exception) -> bytes | None:
        """Policy for a record that `format` (or msgpack) cannot encode.

        Return bytes to keep instead. Raising (the default) rejects this record alone: it goes to @ERROR.
        """
        raise error

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Deliver a chunk; returning means it is delivered and may be forgotten.

        Raises Error: retryable ones are tried again by the retry parameters, others (Unrecoverable, and
        TypeError, ValueError) send the chunk to <secondary> or the backup at once.
        """
        raise NotImplementedError

    async def try_write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk whose delivery is told later by `commit(chunk.id)` or `rollback(chunk.id)`.

        Neither within delayed_commit_timeout counts as a failure.
        """
        raise NotImplementedError

    def commit(self, chunk_id: bytes) -> None:
        """A chunk that `try_write` sent has arrived."""
        assert self.runner is not None
        self.runner.commit(chunk_id)

    def rollback(self, chunk_id: bytes, error: Exception | None = None) -> None:
        """A chunk that `try_write` sent has not arrived: it is tried again."""
        assert self.runner is not None
        self.runner.rollback(chunk_id, error)

    def require_placeholders(self, name: str, text: str) -> None:
        """Report a text that does not name every chunk key: two chunks would get the same name.

        Called in `provision` by outputs to whom that matters, such as files.
        """
        if self.runner is not None:
            for message in self.runner.keys.missing_placeholders(text):
                self.context.problems.error(f'parameter "{name}" "{text}" {message}', self.place_of(name))


def overrides(plugin: Plugin, base: type[Plugin], method: str) -> bool:
    """Whether the plugin's class has its own version of a method of `base`."""
    return getattr(type(plugin), method) is not getattr(base, method)
