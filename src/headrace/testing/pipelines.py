"""Pipelines in tests: a configuration in, events in, virtual time, and outputs that do what a test says.

kit = Kit(text, plugins=[Collect])        # classes with a `name`, beside the built-ins
await kit.start()
await kit.emit("tag", {"a": 1}, {"a": 2})
await kit.clock.elapse(60)
await kit.stop()
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.errors import Error
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.event import Batch, Event
from headrace.pipeline.logevents import LABEL
from headrace.pipeline.plugin import Filter, Output, Plugin
from headrace.plugins.registry import lookup
from headrace.testing.clock import FakeClock, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Settings
    from headrace.pipeline.event import Record
    from headrace.pipeline.files import Files
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.pipeline import Pipeline

__all__ = ["Direct", "DropFilter", "Kit", "Script", "TransientError", "settle"]


_NO_LOG: Final = f"<label {LABEL}>\n<match **>\n@type kit_log\n</match>\n</label>\n"


class _LogSink(Output):
    """Takes log events where a test does not ask for them."""

    def process(self, tag: str, batch: Batch) -> None:
        """Forget them."""


class Script(Output):
    """A buffered output, `@type script`, whose answers a test sets.

    answers: for each write in turn None (delivered), an exception to raise, or a future to wait for; when
    they are used up, `then`. A chunk that was delivered is in `chunks` and its events in `got`.
    """

    name: ClassVar[str] = "script"

    def __init__(self) -> None:
        self.answers: list[BaseException | Awaitable[None] | None] = []
        self.then: BaseException | None = None
        self.refuse: Any = None
        """A function of a chunk that returns an exception or None, asked first."""
        self.tries: list[tuple[float, bytes]] = []
        """(when, chunk id) of every write."""
        self.chunks: list[list[Event]] = []
        self.raw: list[bytes] = []
        self.metas: list[Any] = []
        self.stopped = 0

    @property
    def got(self) -> list[Record]:
        """The records that were delivered."""
        return [record for chunk in self.chunks for _time, record in chunk]

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Do what the test says."""
        self.tries.append((self.context.clock.now(), chunk.id))
        answer = self.answers.pop(0) if self.answers else self.then
        await asyncio.sleep(0)  # as any real destination
        if self.refuse is not None and (refusal := self.refuse(chunk)) is not None:
            raise refusal
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            await answer
        self.raw.append(chunk.read())
        self.chunks.append(chunk.events())
        self.metas.append(chunk.meta)

    async def stop(self) -> None:
        """Count."""
        self.stopped += 1


class Direct(Output):
    """An unbuffered output, `@type direct`: events are in `got`; `error` is raised when set."""

    name: ClassVar[str] = "direct"

    def __init__(self) -> None:
        self.events: list[tuple[str, int, Record]] = []
        self.error: Exception | None = None

    def process(self, tag: str, batch: Batch) -> None:
        """Keep the events."""
        if self.error is not None:
            raise self.error
        self.events += [(tag, time, record) for time, record in batch.events()]


class DropFilter(Filter):
    """`@type drop_odd`: drops records whose `n` is odd, fails for those without `n`."""

    name: ClassVar[str] = "drop_odd"

    def filter(self, tag: str, time: int, record: Record) -> Record | None:
        """Keep even ones."""
        return record if record["n"] % 2 == 0 else None


class TransientError(Error):
    """A failure that may be retried."""

    retryable = True


class Kit:
    """A pipeline under test. `log` of what is logged is pytest's caplog.

    log_events: False keeps the engine's own lines away from the outputs, unless the text has @FLUENT_LOG.
    """

    def __init__(
        self,
        text: str,
        *,
        plugins: Sequence[type[Plugin]] = (),
        settings: Settings | None = None,
        files: Files | None = None,
        clock: FakeClock | None = None,
        log_events: bool = False,
    ) -> None:
        self.problems = Problems()
        self.clock = clock or FakeClock()
        self._own: dict[tuple[str, str], type[Plugin]] = {
            (cls.kind, vars(cls)["name"]): cls for cls in _own_plugins(plugins)
        }
        tree = parse(text, "test.conf", env={}, hostname="host", worker_id="0")
        if not log_events and LABEL not in text:
            tree += parse(_NO_LOG, "kit.conf", env={}, hostname="host", worker_id="0")
        self.pipeline: Pipeline | None = build_pipeline(
            tree, lookup=self._lookup, problems=self.problems, settings=settings, files=files
        )

    @property
    def errors(self) -> list[str]:
        """What is wrong with the configuration."""
        return [str(error) for error in self.problems.errors]

    def _lookup(self, kind: str, name: str) -> type[Plugin]:
        if (kind, name) == ("output", "kit_log"):
            return _LogSink
        return self._own.get((kind, name)) or lookup(kind, name)

    async def start(self) -> Kit:
        """Start the pipeline; raises the first problem of the configuration."""
        self.problems.raise_first()
        assert self.pipeline is not None
        await self.pipeline.start(asyncio.get_running_loop(), self.clock)
        return self

    async def stop(self, within: float = 5.0, *, heir: bool = False) -> None:
        """Stop the pipeline, moving the clock as far as it asks. heir: another process goes on."""
        assert self.pipeline is not None
        task = asyncio.ensure_future(self.pipeline.stop(within, heir=heir))
        while not task.done():
            await self.clock.elapse(0.1)
        await task

    def of(self, cls: type[Any], index: int = 0) -> Any:
        """Return the plugin of a class, in the order of the configuration."""
        assert self.pipeline is not None
        mine = [plugin for plugin in self.pipeline.plugins if type(plugin) is not _LogSink]
        exact = [plugin for plugin in mine if type(plugin) is cls]
        return (exact or [plugin for plugin in mine if isinstance(plugin, cls)])[index]

    @property
    def script(self) -> Script:
        """The first Script output."""
        found = self.of(Script)
        assert isinstance(found, Script)
        return found

    async def emit(self, tag: str, *records: Record, time: int | None = None) -> None:
        """Emit records as one batch and wait until they are taken."""
        outcome = self.offer(tag, *records, time=time)
        if outcome is not None:
            await outcome

    def offer(self, tag: str, *records: Record, time: int | None = None) -> Awaitable[None] | None:
        """Emit records as one batch and return what `emit` returned."""
        assert self.pipeline is not None
        stamp = self.clock.wall_ns() if time is None else time
        return self.pipeline.router.emit(tag, Batch.of([(stamp, record) for record in records]))

    async def work(self) -> None:
        """Let everything happen that needs no time."""
        before = -1
        while before != (now := sum(len(plugin.tries) for plugin in self._scripts())):
            before = now
            await settle(100)

    def _scripts(self) -> list[Script]:
        assert self.pipeline is not None
        return [plugin for plugin in self.pipeline.plugins if isinstance(plugin, Script)]

    def stats(self, index: int = 0) -> dict[str, Any]:
        """Return the figures of a buffered output."""
        assert self.pipeline is not None
        return self.pipeline.runners[index].stats()

    def balanced(self, index: int = 0) -> bool:
        """Whether every event of an output is accounted for."""
        figures = self.stats(index)
        known = figures["delivered"] + figures["buffered"] + sum(figures["dropped"].values())
        return bool(figures["received"] + figures["restored"] == known)


def _own_plugins(plugins: Sequence[type[Plugin]]) -> list[type[Plugin]]:
    return [Script, Direct, DropFilter, *plugins]
