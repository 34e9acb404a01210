"""Source `exec`: what a command prints, once or from time to time (https://docs.fluentd.org/input/exec)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import Param, enum, raw_section, section, size, string, time
from headrace.errors import Error
from headrace.pipeline.plugin import Source
from headrace.pipeline.throttle import Throttle
from headrace.plugins.exec.child import Child, as_command, ended_how, shown
from headrace.plugins.exec.reading import Events, cutter_for, decoder_for
from headrace.plugins.extract import Extract
from headrace.plugins.network.frames import FrameError
from headrace.plugins.patience import Emitter
from headrace.plugins.sections import parse_section, with_texts_for_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.core.clock import Deadline
    from headrace.pipeline.context import Context
    from headrace.plugins.patience import Groups

_PARSE: Final[Mapping[str, str | None]] = {
    "time_type": "float",
    "time_key": None,
    "estimate_current_event": "false",
}
"""Fluentd's defaults for the parser of this source."""


class ExecInput(Source):
    """Runs a command and takes what it prints."""

    multi_workers_ready = True
    old_style: ClassVar[Mapping[str, str]] = {"extract": "", "parse": "tsv"}

    command: Param[str | list[str]] = Param(
        as_command, type_name="string or array", doc="Command for the shell, or an array: a program and its arguments"
    )
    connect_mode = enum(("read", "read_with_stderr"), default="read", doc="Take standard error too, or not")
    tag = string(default=None, doc="Tag of the events")
    run_interval = time(default=None, doc="Seconds between two runs; absent: it runs once, from the start on")
    command_timeout = time(default=None, doc="Seconds after which a run is ended")
    read_block_size = size(default=10240, doc="Bytes that are read at once")
    encoding = string(default=None, doc="Encoding of the output, when it is not UTF-8")
    parse_section = raw_section(name="parse", doc="The parser of the output; absent: tsv")
    extract = section(Extract, name="extract", doc="What of a record becomes its tag or its time")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """With time_format, extracted times are texts."""
        super().configure(with_texts_for_times(directive, "extract"), problems)

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        if self.tag is None and self.extract.tag_key is None:
            problems.error("tag, or tag_key in <extract>, is needed", self.place)
        if self.run_interval is not None and self.run_interval <= 0:
            problems.error('parameter "run_interval" must be above 0', self.place_of("run_interval"))
        if self.read_block_size < 1:
            problems.error('parameter "read_block_size" must be at least 1', self.place_of("read_block_size"))
        try:
            decoder_for(self.encoding)
        except ValueError as error:
            problems.error(f'parameter "encoding": {error}', self.place_of("encoding"))

    def provision(self, context: Context) -> None:
        """Make the parser."""
        assert self.directive is not None
        given = parse_section(self.directive, self.parse_section, "tsv", _PARSE, context.lookup)
        self._parser = context.make("parser", given, default_type="tsv")

    async def start(self) -> None:
        """Run the command now, or after the first interval."""
        self.runs = self.skipped = self.unmatched = self.failures = 0
        self.emitter = Emitter(self)
        self._lines = Throttle()
        self._running: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._ending = False
        self._timer: Deadline | None = None
        clock = self.context.clock
        self._events = Events(
            self._parser,
            tag=self.tag or "",
            tag_of=self.extract.tag_of(),
            time_of=self.extract.time_of(clock.wall_ns),
            now=clock.wall_ns,
            unmatched=self._not_matched,
        )
        if self.run_interval is None:
            self._begin()
        else:
            self._timer = clock.deadline(self.run_interval, self._due)

    def _due(self) -> None:
        assert self._timer is not None
        assert self.run_interval is not None
        self._timer.reschedule(self.run_interval)
        if self._running is not None:
            self.skipped += 1
            self._lines.log(self.log, logging.WARNING, "%s still runs: this run is left out", shown(self.command))
            return
        self._begin()

    def _begin(self) -> None:
        self._running = self.context.loop.create_task(self._run(), name=self.plugin_id)

    async def _run(self) -> None:
        self.runs += 1
        try:
            async with self.context.clock.timeout(self.command_timeout, "it takes longer than command_timeout"):
                await self._once()
        except (Error, FrameError) as error:
            self.failures += 1
            self.log.warning("%s: %s", shown(self.command), error)
        finally:
            child, self._child = self._child, None
            if child is not None:
                await child.end()
            self._running = None

    async def _once(self) -> None:
        with_stderr = self.connect_mode == "read_with_stderr"
        child = self._child = await Child.start(self.command, self.context.clock, read=True, with_stderr=with_stderr)
        if self._ending:  # it was started while we were told to end
            return
        cutter = cutter_for(self._parser)
        decode = decoder_for(self.encoding)
        while True:
            data = await child.read(self.read_block_size)
            last = not data
            if decode is not None:
                data = decode(data, last)
            messages = [*cutter.feed(data)] if data else []
            if last:
                messages += cutter.end()
            groups: Groups = {}
            self._events.add(messages, groups)
            pending = self.emitter.patiently(groups)
            if pending is not None:
                await pending
            if last:
                break
        status = await child.wait()
        if status:
            # What we end ourselves when the process stops is no news of the command.
            level = logging.INFO if self._ending else logging.WARNING
            self.log.log(level, "%s: %s", shown(self.command), ended_how(status))

    def _not_matched(self, message: bytes, why: object) -> None:
        self.unmatched += 1
        reason = f" ({why})" if why else ""
        self._lines.log(self.log, logging.WARNING, "pattern not matched%s: %r", reason, message[:256])

    async def quiesce(self) -> None:
        """Run nothing more; end what runs, after what it has printed is taken."""
        self._ending = True
        if getattr(self, "_timer", None) is not None:
            assert self._timer is not None
            self._timer.cancel()
        running = getattr(self, "_running", None)
        if running is None:
            return
        if self._child is not None:
            await self._child.end()
        await asyncio.wait({running})

    async def stop(self) -> None:
        """Cut what is still open."""
        running = getattr(self, "_running", None)
        if running is not None:
            running.cancel()
            await asyncio.wait({running})

    def stats(self) -> dict[str, Any]:
        """Runs, runs left out because the last one was not over, runs that failed, and events."""
        if not hasattr(self, "runs"):
            return {}
        return {
            "runs": self.runs,
            "skipped": self.skipped,
            "failures": self.failures,
            "unmatched": self.unmatched,
            "events": self.emitter.events,
            "refused": self.emitter.refused,
        }
