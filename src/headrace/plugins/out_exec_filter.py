"""Output `exec_filter`: events through a command, and back into the pipeline.

https://docs.fluentd.org/output/exec_filter

Children run all the time; chunks go to their inputs in turn, what they print becomes events. A chunk counts as
delivered when a child has taken it: what a child holds when it dies is lost, as in Fluentd.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import Param, integer, raw_section, section, size, string, time
from headrace.errors import Error
from headrace.pipeline.plugin import Output
from headrace.pipeline.throttle import Throttle
from headrace.plugins.exec.child import Child, as_command, ended_how, shown
from headrace.plugins.exec.reading import Events, cutter_for
from headrace.plugins.extract import Extract
from headrace.plugins.formatter_msgpack import MsgpackFormatter
from headrace.plugins.inject import Inject
from headrace.plugins.network.frames import FrameError
from headrace.plugins.patience import Emitter
from headrace.plugins.sections import parse_section, section_with, with_texts_for_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter
    from headrace.plugins.patience import Groups

_PARSE: Final[Mapping[str, str | None]] = {
    "time_key": None,
    "time_format": None,
    "localtime": "true",
    "estimate_current_event": "false",
}
_RESPAWN: Final = 0.2
"""Seconds until a child that ended is started again."""
_FLUSH: Final = 2.0
"""Seconds that a child has to print what is left, after the end of its input."""
_BOTH: Final = ("tag_key", "time_key", "time_format")
_OLD: Final[Mapping[str, Mapping[str, str]]] = {
    "inject": {"in_tag_key": "tag_key", "in_time_key": "time_key", "in_time_format": "time_format"},
    "format": {"in_format": "@type", "in_keys": "keys"},
    "parse": {"out_format": "@type", "out_keys": "keys", "out_stream_buffer_size": "stream_buffer_size"},
    "extract": {"out_tag_key": "tag_key", "out_time_key": "time_key", "out_time_format": "time_format"},
}
"""Sections and the parameters of theirs that stood beside the others before Fluentd 0.14."""


class FilterInject(Inject):
    """What is added to a record before the command gets it."""

    time_type = Inject.time_type.with_default("unixtime")


def respawns_of(value: object) -> int:
    """How often a child is started again, -1 without end. Raises ValueError."""
    text = str(value)
    if text in {"none", "0", ""}:
        return 0
    if text in {"inf", "-1"}:
        return -1
    if not text.isdigit():
        raise ValueError("none (or 0), inf (or -1) or a positive number is needed")
    return int(text)


class ExecFilterOutput(Output):
    """Sends events through a command."""

    emits = True
    takes_label = True
    old_style: ClassVar[Mapping[str, str]] = {"buffer": ""}
    buffer_defaults: ClassVar[Mapping[str, str]] = {"flush_mode": "interval", "flush_interval": "1"}

    command: Param[str | list[str]] = Param(
        as_command, type_name="string or array", doc="Command for the shell, or an array: a program and its arguments"
    )
    remove_prefix = string(default=None, deprecated="use @label", doc="What is taken off the tags of events that go in")
    add_prefix = string(default=None, deprecated="use @label", doc="What is put before extracted tags")
    tag = string(default=None, doc="Tag of the events that come back")
    tag_key = string(default=None, deprecated="write it in <inject> and <extract>", doc="Field of the tag, both ways")
    time_key = string(default=None, deprecated="write it in <inject> and <extract>", doc="Field of the time, both ways")
    time_format = string(default=None, deprecated="write it in <inject> and <extract>", doc="Format of the time")
    read_block_size = size(default=10240, doc="Bytes that are read at once")
    num_children = integer(default=1, doc="Processes that run the command")
    child_respawn: Param[int] = Param(
        respawns_of, type_name="none, inf or integer", default=0, doc="How often a process that ended is started again"
    )
    suppress_error_log_interval = time(default=0.0, doc="Seconds between two lines about events that cannot be emitted")
    format_section = raw_section(name="format", doc="The formatter of what goes in; absent: tsv")
    parse_section = raw_section(name="parse", doc="The parser of what comes out; absent: tsv")
    inject = section(FilterInject, name="inject", doc="What is added to a record before it goes in")
    extract = section(Extract, name="extract", doc="What of a record becomes its tag or its time")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Move the parameters of old versions to where they belong."""
        super().configure(with_texts_for_times(_modern(directive), "inject", "extract"), problems)

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        if self.tag is None and self.extract.tag_key is None:
            problems.error("tag, or tag_key in <extract>, is needed", self.place)
        for name in ("num_children", "read_block_size"):
            if getattr(self, name) < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))

    def provision(self, context: Context) -> None:
        """Make the formatter and the parser."""
        assert self.directive is not None
        given = self.format_section
        if given is None:
            self._formatter: Formatter = context.make_default("formatter", "tsv", self, "format")
        else:
            self._formatter = context.make("formatter", given, default_type="tsv")
        parse = parse_section(self.directive, self.parse_section, "tsv", _PARSE, context.lookup)
        self._parser = context.make("parser", parse, default_type="tsv")
        self._inject = self.inject.injector(context, self)
        self._lines = not isinstance(self._formatter, MsgpackFormatter)
        self._removed = f"{self.remove_prefix}." if self.remove_prefix else ""

    async def start(self) -> None:
        """Start the children."""
        self.unmatched = self.ended = 0
        self.emitter = Emitter(self)
        interval = self.suppress_error_log_interval
        self._complaints = Throttle(1, interval) if interval else Throttle()
        self._turn = 0
        self._stopping = False
        self._children: list[Child | None] = [None] * self.num_children
        clock = self.context.clock
        self._events = Events(
            self._parser,
            tag=self.tag or "",
            tag_of=self.extract.tag_of(),
            time_of=self.extract.time_of(clock.wall_ns),
            now=clock.wall_ns,
            unmatched=self._not_matched,
            prefix=f"{self.add_prefix}." if self.add_prefix else "",
        )
        for index in range(self.num_children):
            self._children[index] = await self._spawn()
        loop = self.context.loop
        self._keepers = [loop.create_task(self._keep(index), name=self.plugin_id) for index in range(self.num_children)]

    async def _spawn(self) -> Child:
        return await Child.start(self.command, self.context.clock, read=True, write=True)

    async def _keep(self, index: int) -> None:
        """Read what a child prints; start it again when it ends."""
        left = self.child_respawn
        while True:
            child = self._children[index]
            if child is not None:
                await self._read(child)
                await child.end()
                self._children[index] = None
                if self._stopping:
                    return
                self.ended += 1
                self.log.warning("%s: %s", shown(self.command), ended_how(await child.wait()))
            if left == 0 or self._stopping:
                return
            await self.context.clock.sleep(_RESPAWN)
            left -= left > 0
            self.log.info("%s is started again, num=%d respawn_counter=%d", shown(self.command), index, left)
            try:
                self._children[index] = await self._spawn()
            except Error as error:
                self.log.error("%s", error)  # noqa: TRY400 - no traceback

    async def _read(self, child: Child) -> None:
        cutter = cutter_for(self._parser)
        try:
            while True:
                data = await child.read(self.read_block_size)
                groups: Groups = {}
                self._events.add(cutter.feed(data) if data else cutter.end(), groups)
                pending = self.emitter.patiently(groups)
                if pending is not None:
                    await pending
                if not data:
                    return
        except (FrameError, OSError) as error:
            self._not_matched(b"", error)

    def _not_matched(self, message: bytes, why: object) -> None:
        self.unmatched += 1
        reason = f" ({why})" if why else ""
        self._complaints.log(self.log, logging.ERROR, "exec_filter failed to emit%s: %r", reason, message[:256])

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record as the formatter writes it, a line where it writes text."""
        if self._removed and tag.startswith(self._removed):
            tag = tag[len(self._removed) :]
        if self._inject is not None:
            record = self._inject(tag, time, record)
        text = self._formatter.format(tag, time, record)
        return text.removesuffix(b"\n").removesuffix(b"\r") + b"\n" if self._lines else text

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Give a chunk to the next child that lives."""
        for _ in self._children:
            self._turn = (self._turn + 1) % len(self._children)
            child = self._children[self._turn]
            if child is not None and child.alive:
                await child.write(chunk.read())
                return
        raise Error("no healthy child processes exist", kind="exec", retryable=True)

    async def stop(self) -> None:
        """Let the children see the end of their input, take what they print, end them."""
        if not hasattr(self, "_keepers"):
            await self._end_all()
            return
        self._stopping = True
        for child in self._children:
            if child is not None:
                child.close_input()
        loop = self.context.loop
        late = loop.create_future()
        timer = self.context.clock.deadline(_FLUSH, late.cancel)
        everything = asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.wait([everything, late], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        for keeper in self._keepers:
            keeper.cancel()
        await self._end_all()
        await asyncio.wait([everything])

    async def _end_all(self) -> None:
        children = [child for child in getattr(self, "_children", ()) if child is not None]
        await asyncio.gather(*[child.end() for child in children])

    def stats(self) -> dict[str, Any]:
        """Children that live and that have ended, and events that came back."""
        if not hasattr(self, "emitter"):
            return {}
        return {
            "children": sum(child is not None and child.alive for child in self._children),
            "ended": self.ended,
            "unmatched": self.unmatched,
            "events": self.emitter.events,
            "refused": self.emitter.refused,
        }


def _modern(directive: Directive) -> Directive:
    """The section with the parameters of old versions in sections of their own."""
    old = {child.name: child for child in directive.block or () if child.block is None}
    there = {child.name for child in directive.block or () if child.block is not None}
    for name in _BOTH:
        if name in old:
            for way in ("in_", "out_"):
                old.setdefault(way + name, replace(old[name], name=way + name))
    gone: set[str] = set()
    sections: list[Directive] = []
    for name, table in _OLD.items():
        moved = [replace(old[before], name=now) for before, now in table.items() if before in old]
        if name in there or not moved:
            continue
        gone |= table.keys()
        moved = [child for child in moved if child.name != "stream_buffer_size"]  # nothing is read by it here
        sections.append(replace(section_with(directive, name, None, {}), block=tuple(moved)))
    block = tuple(child for child in directive.block or () if child.block is not None or child.name not in gone)
    return replace(directive, block=(*block, *sections))
