"""Input `sample` (docs.fluentd.org, Input Plugins, sample): made-up events at an exact rate.

Event k of a run is due k/rate seconds after its beginning, whatever became of the ones before. At high rates
what is due is emitted every 10 ms, in batches that hold the loop for about SLICE. Between two of them those who
deliver get the loop for GIVE_WAY times as long, if they have that much to do: so what is delivered at a rate that
nobody can follow is as much as at the highest one that they can.

A loop that was held up makes up for at most one second; what is older is not emitted (`skipped` counts it), as
Fluentd begins each second anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import Param, boolean, integer, raw_section, string
from headrace.conf.values import from_json
from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch, pack_event, pack_value
from headrace.pipeline.plugin import Source
from headrace.pipeline.storage import storage_of

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.storage import Storage

TICK: Final = 0.01
CATCH_UP: Final = 1.0
"""Seconds of events that are made up for after a delay."""
MOST: Final = 10**9
COUNTER: Final = "auto_increment_value"
"""Key of the storage, as in Fluentd: the last number that was used."""
LARGEST: Final = 256
"""Events of a batch, unless `size` is larger."""
SMALLEST: Final = 16
SLICE: Final = 0.0003
"""Seconds that a batch should take at most: where events are dear (a chunk each), batches become smaller."""
GIVE_WAY: Final = 4
IDLE_TURN: Final = 20e-6
"""Seconds of a turn of the loop in which nobody had anything to do."""


def _samples(value: object) -> list[Record]:
    found = from_json(value) if isinstance(value, str) else value
    samples: list[Any] = found if isinstance(found, list) else [found]
    for index, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise ValueError(f"element {index} of sample, {sample!r}, is not a hash")  # noqa: TRY004 - for users
    if not samples:
        raise ValueError("an array without a hash")
    return samples


class SampleInput(Source):
    """Emits sample events."""

    multi_workers_ready = True

    tag = string(doc="Tag of the events")
    size = integer(default=1, doc="Events of one emit")
    rate = integer(default=1, doc="Emits per second")
    auto_increment_key = string(
        default=None, doc="Field that counts the events, from 0; <storage> keeps it between runs"
    )
    suspend = boolean(default=False, deprecated="it has no effect, as in Fluentd since 1.10", doc="No effect")
    reuse_record = boolean(
        default=False, doc="Emit the configured hash itself again and again, in place of a copy for each event"
    )
    sample: Param[list[Record]] = Param(
        _samples,
        type_name="hash or array of hashes",
        default=[{"message": "sample"}],
        alias="dummy",
        doc="The record, or an array of records that are emitted in turn",
    )
    storage_section = raw_section(name="storage", doc="Where the counter is kept between runs")

    def validate(self, problems: Problems) -> None:
        """Check the numbers."""
        super().validate(problems)
        for name in ("size", "rate"):
            if getattr(self, name) < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))
        if self.size * self.rate > MOST:
            problems.error(f"more than {MOST} events per second cannot be made", self.place_of("rate"))

    def provision(self, context: Context) -> None:
        """Make the storage of the counter."""
        self._storage: Storage | None = None
        if self.storage_section is not None or self.auto_increment_key is not None:
            self._storage = storage_of(self, self.storage_section, usage="suspend")

    async def start(self) -> None:
        """Begin to emit."""
        self.emitted = 0
        self.refused = 0
        self.skipped = 0
        self._serial = 0
        self._most = LARGEST
        packed = [(sample, pack_value(sample)) for sample in self.sample]
        self._cycle = cycle(packed)
        self._task = self.context.loop.create_task(self._run(), name=self.plugin_id)

    async def quiesce(self) -> None:
        """End."""
        if hasattr(self, "_task"):
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        clock, rate = self.context.clock, self.rate
        if self._storage is not None:
            await self._storage.ready()
            self._serial = int(self._storage.get(COUNTER, -1)) + 1
        begin = clock.now()
        done = 0
        while True:
            due = int((clock.now() - begin) * rate + 1e-6) + 1 - done
            late = due - max(int(CATCH_UP * rate), 1)
            if late > 0:
                self.skipped += late * self.size
                done += late
                due -= late
            if due > 0:
                done += due
                await self._emit(due * self.size)
            # At low rates each event has its moment; at high ones the tick has its events.
            await clock.sleep(max(begin + done / rate - clock.now(), TICK if rate > 1 / TICK else 0.0))

    async def _emit(self, count: int) -> None:
        now = self.context.clock.now
        while count > 0:
            number = min(count, max(self._most, self.size))
            count -= number
            began = now()
            taken = 0.0
            try:
                waiting = self.router.emit(self.tag, self._batch(number))
                taken = now() - began
                self._adapt(number, taken)
                if waiting is not None:
                    await waiting
            except BufferOverflow:
                self.refused += number
            except Exception:  # noqa: BLE001 - the router has logged it; a source of samples goes on
                self.refused += number
            else:
                self.emitted += number
            if count > 0:
                await self._give_way(taken)

    async def _give_way(self, seconds: float) -> None:
        """Let the others have the loop, at least once, for as long as our `seconds` on it are worth."""
        clock = self.context.clock
        left = seconds * GIVE_WAY
        while True:
            began = clock.now()
            await clock.sleep(0)
            turn = clock.now() - began
            left -= turn
            if left <= 0 or turn < IDLE_TURN:
                return

    def _adapt(self, number: int, seconds: float) -> None:
        """Choose how many events the next batch has at most, from what the last one took."""
        if seconds > SLICE:
            self._most = max(number // 2, SMALLEST)
        elif seconds < SLICE / 2 and number >= self._most:
            self._most = min(self._most * 2, LARGEST)

    def _batch(self, count: int) -> Batch:
        time = self.context.clock.wall_ns()
        samples = list(islice(self._cycle, count))
        key = self.auto_increment_key
        if key is not None:
            first, self._serial = self._serial, self._serial + count
            if self._storage is not None:
                self._storage.put(COUNTER, self._serial - 1)
            return Batch.of([(time, {**sample, key: first + index}) for index, (sample, _) in enumerate(samples)])
        # Both forms at once: the packed one is a matter of copying bytes.
        head = pack_event(time, {})[:-1]
        packed = head + head.join([body for _, body in samples])
        if self.reuse_record:
            return Batch([(time, sample) for sample, _ in samples], packed, count)
        return Batch([(time, sample.copy()) for sample, _ in samples], packed, count)

    def stats(self) -> dict[str, Any]:
        """Events emitted, refused by outputs, and skipped because the process was late."""
        return {
            "emitted": getattr(self, "emitted", 0),
            "refused": getattr(self, "refused", 0),
            "skipped": getattr(self, "skipped", 0),
        }
