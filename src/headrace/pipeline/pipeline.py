"""A running pipeline: start and end in order, flush, figures.

start: outputs (a secondary before its primary, and what finds its nodes before it), filters and the rest,
sources last.
stop: sources take no more; outputs without a buffer end; buffers flush together until the deadline;
then everything is closed. Whatever hangs is cancelled: stop returns.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from headrace.errors import Error
from headrace.pipeline.context import of_kind
from headrace.pipeline.discovery import ServiceDiscovery
from headrace.pipeline.logevents import LogEvents, log_router
from headrace.pipeline.plugin import LEVELS, Filter, Output, Plugin, Source
from headrace.pipeline.refused import Refused
from headrace.pipeline.tap import Tap, Taps

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Mapping, Sequence

    from headrace.core.clock import Clock
    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import ListenSpec
    from headrace.pipeline.router import Router
    from headrace.pipeline.runner import Runner
    from headrace.pipeline.system import SystemSection

_CLOSE_TIME = 2.0
"""Seconds that stop and close of one plugin get at the least, even past the deadline."""


class Pipeline:
    """The plugins of one worker."""

    def __init__(self, context: Context, system: SystemSection) -> None:
        self.context = context
        self.system = system
        self.plugins = context.plugins
        self._started: list[Plugin] = []
        self._log_events: LogEvents | None = None
        self._taps = Taps(context)

    @property
    def router(self) -> Router:
        """The top level, for events that arise in the process itself."""
        return self.context.root

    @property
    def listens(self) -> list[ListenSpec]:
        """The sockets that must be open before start, without repetition."""
        specs = [spec for source in of_kind(self.plugins, Source) for spec in source.listeners()]
        return list({(spec.kind, spec.address): spec for spec in specs}.values())

    @property
    def runners(self) -> list[Runner]:
        """The machinery of the buffered outputs."""
        return [
            output.runner
            for output in of_kind(self.plugins, Output)
            if output.runner is not None and output.runner.output is output
        ]

    async def start(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket] | None = None
    ) -> None:
        """Start everything; when one part fails, the others are stopped and its error is raised."""
        context = self.context
        context.run_on(loop, clock, sockets or {})
        name = ""
        if context.settings.dead_letter_records:
            context.desk.refused = Refused(context.dead_letters, context.log)
            context.desk.refused.start(clock, context.labels)
        try:
            for plugin in sorted(self.plugins, key=_start_order):
                name = plugin.plugin_id
                self._started.append(plugin)
                await plugin.start()
                if isinstance(plugin, Output) and plugin.runner is not None and plugin.runner.output is plugin:
                    await plugin.runner.start()
        except BaseException as error:
            await self.stop(0.0)
            if isinstance(error, OSError):
                raise Error(f"{name}: {error}", kind="start") from error
            raise
        router = log_router(context)
        if router is not None:
            level = LEVELS[context.settings.log_level]
            labelled = router is not context.root
            self._log_events = LogEvents(router, level, clock.wall_ns, clock.now, every_tag=labelled)
            context.log.addHandler(self._log_events)

    async def stop(self, within: float, *, heir: bool = False) -> None:
        """Stop everything within about `within` seconds.

        heir: a process with the same outputs serves already, and takes over what is left in memory too.
        """
        clock = self.context.clock
        end = clock.now() + within
        if self._log_events is not None:
            self.context.log.removeHandler(self._log_events)
            self._log_events.close()
            self._log_events = None
        started, self._started = self._started, []
        sources = [plugin for plugin in started if isinstance(plugin, Source)]
        others = [plugin for plugin in started if not isinstance(plugin, Source)]
        running = [runner for runner in self.runners if runner.started]
        buffered = {runner.output for runner in running} | {runner.secondary for runner in running}

        def share(part: float) -> float:
            """Part of the time that is left: who hangs must leave some to the buffers."""
            return max((end - clock.now()) * part, _CLOSE_TIME)

        await self._together([(source, source.quiesce()) for source in sources], share(0.5))
        await self._together([(source, source.stop()) for source in sources], share(0.2))
        # What brings events back into the pipeline ends before those who take them.
        emitting = [runner for runner in running if runner.output.emits]
        if emitting:
            half = (clock.now() + end) / 2
            ends = [(runner.output, runner.stop(half, heir=heir)) for runner in emitting]
            await self._together(ends, share(0.5) + _CLOSE_TIME)
            await self._together([(runner.output, runner.output.stop()) for runner in emitting], share(0.3))
            running = [runner for runner in running if not runner.output.emits]
            others = [plugin for plugin in others if not (isinstance(plugin, Output) and plugin.emits)]
        direct = [plugin for plugin in others if plugin not in buffered]
        await self._together([(plugin, plugin.stop()) for plugin in direct], share(0.2))
        ends = [(runner.output, runner.stop(end, heir=heir)) for runner in running]
        await self._together(ends, share(1.0) + _CLOSE_TIME)
        rest = [plugin for plugin in others if plugin in buffered]
        await self._together([(plugin, plugin.stop()) for plugin in rest], _CLOSE_TIME)
        await self._together([(plugin, plugin.close()) for plugin in reversed(started)], _CLOSE_TIME)
        if self.context.desk.refused is not None:
            self.context.desk.refused.close()
            self.context.desk.refused = None

    def flush(self) -> None:
        """Queue all staged chunks now (signal USR1, `headrace flush`)."""
        for runner in self.runners:
            if runner.started:
                runner.flush()

    def tap(self, pattern: str, side: str | None, *, counts_only: bool = False) -> Tap:
        """Look at events that enter ("in") or leave ("out") plugins; see tap.py. Raises Error when none fits."""
        return self._taps.open(pattern, side, counts_only=counts_only)

    def stats(self) -> dict[str, Any]:
        """Return the figures of every plugin by its id, and of the routers."""
        plugins: dict[str, Any] = {}
        for plugin in self.plugins:
            figures: dict[str, Any] = {"kind": plugin.kind, "type": plugin.type_, **plugin.stats()}
            if isinstance(plugin, Output) and plugin.runner is not None and plugin.runner.output is plugin:
                figures.update(plugin.runner.stats())
            elif isinstance(plugin, Output) and plugin.runner is None:
                figures.update(received=plugin.received, refused=plugin.refused)
            elif isinstance(plugin, Filter):
                figures.update(received=plugin.received, passed=plugin.passed)
            if isinstance(plugin, Source) and (late := getattr(plugin.router, "late", None)) is not None:
                figures["acks_late"] = late
            plugins[plugin.plugin_id] = figures
        context = self.context
        return {
            "plugins": plugins,
            "unmatched": {name: router.unmatched for name, router in context.labels.items()},
            "error_events": context.desk.events,
            "error_events_lost": context.desk.lost,
            "error_events_sent_to_dlq": context.desk.sent_to_dlq,
            "error_events_kept": context.desk.refused.kept if context.desk.refused is not None else 0,
            "dead_letters": context.dead_letters.figures(),
            "log_events_lost": self._log_events.lost if self._log_events is not None else 0,
        }

    async def _together(self, steps: Sequence[tuple[Plugin, Coroutine[Any, Any, None]]], within: float) -> None:
        """Run one step of the end for several plugins at once; log what fails, cancel what hangs."""
        if not steps:
            return
        tasks = {asyncio.ensure_future(step): plugin for plugin, step in steps}
        everything: asyncio.Future[Any] = asyncio.ensure_future(asyncio.wait(tasks))
        late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timer = self.context.clock.deadline(within, late.cancel)
        await asyncio.wait([everything, late], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        everything.cancel()
        done = [task for task in tasks if task.done()]
        hanging = [task for task in tasks if not task.done()]
        for task in hanging:
            self.context.log.error("%s does not end and is cancelled", tasks[task].plugin_id)
            task.cancel()
        if hanging:
            await asyncio.wait(hanging, timeout=0.5)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                plugin = tasks[task]
                plugin.log.log(logging.ERROR, "unexpected error at the end: %r", error, exc_info=error)


def _start_order(plugin: Plugin) -> int:
    if isinstance(plugin, Source):
        return 2
    if isinstance(plugin, Output) and plugin.emits:
        return 1
    return 0 if isinstance(plugin, (Output, ServiceDiscovery)) else 1
