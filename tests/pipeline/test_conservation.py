"""received + restored = delivered + buffered + dropped, at every moment of whatever happens."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.errors import BufferOverflow, Unrecoverable
from headrace.pipeline.event import Batch
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, Script, TransientError, settle


class Second(Script):
    name = "second"


CONF = """
<match **>
  @type script
  @id out
  <buffer {argument}>
    @type {kind}
    {path}
    flush_interval 2s
    chunk_limit_size 400
    total_limit_size 3000
    overflow_action {overflow}
    flush_thread_count {lanes}
    retry_max_times 2
    retry_wait 1s
    {backup}
  </buffer>
  {secondary}
</match>
"""
SECONDARY = "<secondary>\n@type second\n</secondary>"


class Moments(RuleBasedStateMachine):
    """Batches come, time passes, the destination and the disk fail and come back, the process ends and starts."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.waiting: list[asyncio.Future] = []
        self.number = 0
        self.sent: set[int] = set()
        self.kit: Kit | None = None

    @initialize(
        kind=st.sampled_from(["memory", "file"]),
        overflow=st.sampled_from(["throw_exception", "block", "drop_oldest_chunk"]),
        lanes=st.sampled_from([1, 3]),
        secondary=st.booleans(),
        backup=st.booleans(),
        argument=st.sampled_from(["", "tag", "k"]),
    )
    def begin(self, kind, overflow, lanes, secondary, backup, argument) -> None:
        self.disk = Disk()
        self.text = CONF.format(
            argument=argument,
            kind=kind,
            path="path /b" if kind == "file" else "",
            overflow=overflow,
            lanes=lanes,
            backup="" if backup else "disable_chunk_backup true",
            secondary=SECONDARY if secondary else "",
        )
        self.persistent = kind == "file"
        self.open()

    def open(self) -> None:
        self.kit = Kit(self.text, plugins=[Second], files=self.disk)
        self.runner.run(self.kit.start())

    async def _emit(self, tag, records, ack) -> None:
        batch = Batch.of([(self.kit.clock.wall_ns(), record) for record in records])
        batch.ack = ack
        try:
            answer = self.kit.pipeline.router.emit(tag, batch)
        except BufferOverflow:
            return
        if answer is not None:
            future = asyncio.ensure_future(answer)
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self.waiting.append(future)
        await settle()

    @rule(
        tag=st.sampled_from(["a", "b"]),
        sizes=st.lists(st.integers(0, 500), min_size=1, max_size=8),
        ack=st.sampled_from([0, 0, 1, 3]),
    )
    def emit(self, tag, sizes, ack) -> None:
        records = []
        for size in sizes:
            self.number += 1
            records.append({"n": self.number, "k": size % 2, "x": "x" * size})
        self.runner.run(self._emit(tag, records, ack))

    @rule(what=st.sampled_from(["up", "down", "bad"]), second=st.sampled_from(["up", "down", "bad"]))
    def destinations(self, what, second) -> None:
        answers = {"up": None, "down": TransientError("down"), "bad": Unrecoverable("bad")}
        self.kit.script.then = answers[what]
        for plugin in self.kit.pipeline.plugins:
            if isinstance(plugin, Second):
                plugin.then = answers[second]

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0]))
    def time_passes(self, seconds) -> None:
        async def pass_(clock) -> None:
            left = seconds
            while left > 0:
                step = min(left, 0.5)
                await clock.elapse(step)
                left -= step
                self.balanced()

        self.runner.run(pass_(self.kit.clock))

    @rule(times=st.integers(1, 3))
    def disk_full(self, times) -> None:
        self.disk.fail("append", OSError(28, "No space left on device"), times)

    @rule()
    def flush(self) -> None:
        self.kit.pipeline.flush()

    @rule()
    def restart(self) -> None:
        self.disk._failures.clear()
        before = self.kit.stats()["buffered"]
        self.runner.run(self.kit.stop(1.0))
        self.balanced()
        after = self.kit.stats()
        assert after["buffered"] + after["dropped"]["lost_at_shutdown"] <= before or after["received"]
        left = after["buffered"]
        self.open()
        assert self.kit.stats()["restored"] == (left if self.persistent else 0)

    @invariant()
    def balanced(self) -> None:
        if self.kit is not None:
            figures = self.kit.stats()
            assert figures["unaccounted"] == 0, figures
            assert self.kit.balanced(), figures
            assert min(figures["buffered"], *figures["dropped"].values()) >= 0
            buffer = self.kit.pipeline.runners[0].buffer
            assert buffer.used == sum(chunk.size for chunk in buffer.everything())
            assert buffer.events == sum(chunk.count for chunk in buffer.everything())

    def teardown(self) -> None:
        if self.kit is not None:
            self.disk._failures.clear()
            self.runner.run(self.kit.stop(1.0))
            self.balanced()
        self.runner.close()


Moments.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMoments = Moments.TestCase
