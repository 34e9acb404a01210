"""A pipeline on a stage: virtual time, no source runs, and outputs keep what comes to them instead of sending it.

What runs as it is: filters, parsers, formatters, and outputs that only send events on within the pipeline (`routes`).
What is replaced: every other output (it keeps its events), buffers (what has one passes at once), and filters that ask
somebody outside the process (they let everything pass, which is noted).
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.conf.params import Problems
from headrace.errors import Error
from headrace.pipeline.ack import AckRouter
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch, Event, Record
from headrace.pipeline.plugin import Filter, Formatter, Output, Parser, Plugin, Source
from headrace.testing.clock import FakeClock, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Lookup
    from headrace.pipeline.router import Router
    from headrace.testing.trials.cases import Input

    Row = tuple[str, int, Record]
    """(tag, nanoseconds, record)"""

PATIENCE = 3600
"""Seconds of virtual time that a batch may wait until it is taken."""
_TURNS = 50


@dataclass
class Seen:
    """What happened. notes: lines of the engine's log, and what is not as in production."""

    outputs: dict[str, list[Row]] = field(default_factory=dict)
    labels: dict[str, list[Row]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    errors: list[tuple[str, Record, str]] = field(default_factory=list)
    """(tag, record, error) of each error event."""
    unmatched: int = 0
    error_outputs: set[str] = field(default_factory=set)
    """Outputs inside <label @ERROR>."""
    notes: list[str] = field(default_factory=list)


class _Notes(logging.Handler):
    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.append(f"[{record.levelname.lower()}] {record.getMessage()}")


class Stage:
    """One pipeline for one case. Raises ConfError for a configuration that cannot run."""

    def __init__(self, tree: Sequence[Directive], lookup: Lookup, at: int) -> None:
        problems = Problems()
        self._null = os.open(os.devnull, os.O_WRONLY)
        settings = Settings(hostname=os.uname().nodename, stdout_fd=self._null)
        made = build_pipeline(tree, lookup=lookup, problems=problems, settings=settings)
        problems.raise_first()
        assert made is not None
        self._context = made.context
        self._clock = FakeClock(wall=at)
        self._started: list[Plugin] = []
        self.seen = Seen()

    async def play(self, inputs: Sequence[Input]) -> Seen:
        """Let the inputs come, one after the other, and then end the pipeline. Raises Error."""
        handler = _Notes(self.seen.notes)
        log = self._context.log
        log.addHandler(handler)
        before, log.propagate = log.propagate, False
        try:
            self._prepare()
            await self._start()
            for one in inputs:
                await self._give(one)
            await self._end()
        finally:
            log.removeHandler(handler)
            log.propagate = before
            os.close(self._null)
        context = self._context
        self.seen.unmatched = sum(router.unmatched for router in context.labels.values())
        for plugin in context.plugins:
            if isinstance(plugin, Filter):
                for name in (plugin.plugin_id, plugin.type_):
                    self.seen.dropped[name] = self.seen.dropped.get(name, 0) + plugin.received - plugin.passed
        return self.seen

    def _prepare(self) -> None:
        context, seen = self._context, self.seen
        context.run_on(asyncio.get_running_loop(), self._clock, {})
        for plugin in context.plugins:
            if isinstance(plugin, Output):
                self._keep(plugin)
            elif isinstance(plugin, Filter) and plugin.waits:
                plugin.__dict__["filter_later"] = lambda _tag, batch: batch
                seen.notes.append(f"{plugin.plugin_id} asks somebody outside: here it lets everything pass")
        for name, router in context.labels.items():
            self._listen(name, router)
            router.reroute()
        desk = context.desk
        event, batch = desk.event, desk.batch

        def one(tag: str, time: int, record: Record, error: BaseException, source: Router) -> Any:
            seen.errors.append((tag, record, _described(error)))
            return event(tag, time, record, error, source)

        def several(tag: str, failed: Batch, error: BaseException) -> Any:
            seen.errors.extend((tag, record, _described(error)) for _time, record in failed.events())
            return batch(tag, failed, error)

        desk.__dict__.update(event=one, batch=several)

    def _keep(self, output: Output) -> None:
        """Let an output keep what comes to it; one that routes sends it on too."""
        names = {output.plugin_id, output.type_}
        lists = [self.seen.outputs.setdefault(name, []) for name in names]
        if output.router is self._context.desk.collector:
            self.seen.error_outputs |= names
        onward: Callable[[str, Batch], Awaitable[None] | None] | None = None
        if output.routes:
            onward = output.emit if output.runner is None else output.pass_on

        def emit(tag: str, batch: Batch) -> Awaitable[None] | None:
            for each in lists:
                each.extend((tag, time, record) for time, record in batch.events())
            return onward(tag, batch) if onward is not None else None

        output.__dict__["emit"] = emit

    def _listen(self, name: str, router: Router) -> None:
        rows = self.seen.labels[name] = []
        emit = router.emit

        def listened(tag: str, batch: Batch) -> Awaitable[None] | None:
            rows.extend((tag, time, record) for time, record in batch.events())
            return emit(tag, batch)

        router.__dict__["emit"] = listened

    async def _start(self) -> None:
        for plugin in self._context.plugins:
            runs = isinstance(plugin, (Parser, Formatter)) or (isinstance(plugin, Output) and plugin.routes)
            if runs or (isinstance(plugin, Filter) and not plugin.waits):
                self._started.append(plugin)
                await plugin.start()

    async def _give(self, one: Input) -> None:
        if one.wait:
            await self._clock.elapse(one.wait)
            return
        router = self._router(one)
        now = self._clock.wall_ns()
        events: list[Event] = [(now if time is None else time, record) for time, record in one.events]
        try:
            waiting = router.emit(one.tag, Batch.of(events))
            if waiting is not None:
                await self._wait(waiting)
        except Error as error:
            self.seen.notes.append(f"{one.place}: the input was refused: {error}")
        except Exception as error:  # noqa: BLE001 - of a plugin from anywhere: it is what the test is about
            self.seen.notes.append(f"{one.place}: the input was refused: {error!r}")
        await settle(_TURNS)

    def _router(self, one: Input) -> Router:
        context = self._context
        if one.source is None:
            return context.label(one.to or "@ROOT", one.place) if self._has(one) else context.root
        found = [
            plugin
            for plugin in context.plugins
            if isinstance(plugin, Source) and one.source in {plugin.plugin_id, plugin.type_}
        ]
        if not found:
            raise Error(f'{one.place}: there is no source "{one.source}"')
        router = found[0].router
        if isinstance(router, AckRouter):
            router = context.labels[found[0].label_ or "@ROOT"]
        return router

    def _has(self, one: Input) -> bool:
        if one.to and one.to not in self._context.labels:
            names = ", ".join(sorted(self._context.labels))
            raise Error(f'{one.place}: there is no label "{one.to}"; there are: {names}')
        return bool(one.to)

    async def _wait(self, waiting: Awaitable[None]) -> None:
        task = asyncio.ensure_future(waiting)
        for _ in range(PATIENCE):
            await settle()
            if task.done():
                break
            await self._clock.elapse(1.0)
        if not task.done():
            task.cancel()
            raise Error(f"it was not taken within {PATIENCE} s")
        task.result()

    async def _end(self) -> None:
        """What filters hold back comes out, as at the end of a process."""
        await settle(_TURNS)
        for plugin in self._started:
            task = asyncio.ensure_future(plugin.stop())
            await self._wait(task)
        await settle(_TURNS)
        for plugin in self._started:
            await plugin.close()


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
