"""The machinery of one buffered output: its buffer, its entrance, its lanes, and the timers between them.

`wire` decides, when an output is made, whether it is buffered, and gives it a Runner; nothing is opened
before `start`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from headrace.conf.params import reserved
from headrace.conf.tree import Directive
from headrace.errors import ConfError
from headrace.pipeline import nested
from headrace.pipeline.adopt import Adopter
from headrace.pipeline.backup import Backup
from headrace.pipeline.buffer import Buffer, Limits
from headrace.pipeline.delivery import Delivery
from headrace.pipeline.dlq import ChunkLetters
from headrace.pipeline.handover import hand_over
from headrace.pipeline.intake import Intake
from headrace.pipeline.lanes import Lane, Lanes
from headrace.pipeline.plugin import LEVELS, Output, overrides
from headrace.pipeline.retry import RetryPolicy
from headrace.pipeline.settings import BufferSection, configured, with_defaults
from headrace.pipeline.shape import Shaper
from headrace.pipeline.staging import Staging
from headrace.pipeline.stats import runner_stats

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.clock import Deadline
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context

_LEAST_WAIT = 0.01
"""Seconds until lanes that found nothing look again at the earliest."""
LOOK = 5.0
"""Seconds between two looks for files to take over."""
_ASKED = 5.0
"""Seconds for which a flush that was asked for is finished before the end."""
_POLL = 0.05
"""Seconds between two looks at whether everything is flushed, at the end."""
_LINGER = 20.0
"""Most seconds that deliveries may take at the end when what they deliver is on disk anyway."""
_STUCK = 3.0
"""Seconds that deliveries may take at the end when the destination had failed before."""


class Runner:
    """Runs one buffered output. `buffer`, `intake`, `delivery` and `lanes` exist from start on."""

    buffer: Buffer
    intake: Intake
    delivery: Delivery
    lanes: Lanes
    staging: Staging
    adopter: Adopter
    _look_timer: Deadline

    def __init__(self, output: Output, section: BufferSection, context: Context) -> None:
        self.output = output
        self.section = section
        self.context = context
        self.keys = section.keys
        self.secondary: Output | None = None
        self.started = False
        self._asked_at = -math.inf
        self.restored = 0
        """Events that an earlier run left in the buffer."""
        self.lost = 0
        """Events that were still in memory at the end."""
        self._finishing = False
        """Lanes take no more chunks."""
        self._try_timer: Deadline | None = None
        self._try_at = math.inf

    def check_placeholders(self, plugin: Output) -> None:
        """Report what the parameters of the output, or of its secondary, name and no chunk key provides."""
        for item, value in plugin.placeholder_texts():
            for message in self.keys.unresolvable(value):
                self.context.problems.error(f'parameter "{item.key}" {message}', plugin.place_of(item.key))

    async def start(self) -> None:
        """Open the store, queue what an earlier run left, start the lanes. Raises Error or OSError."""
        section, context, output = self.section, self.context, self.output
        clock = context.clock
        store = section.open_store(context)
        limits = Limits(
            section.chunk_limit_size, section.chunk_limit_records, section.total_limit, section.chunk_full_threshold
        )
        self.buffer = Buffer(store, limits)
        self.adopter = self._adopter()
        left = self.adopter.look(clock.now()) + await store.recover(self.keys, clock.now())
        self._look_timer = clock.deadline(LOOK, self._look)
        self.buffer.restore(left)
        self.restored = self.buffer.events
        shaper = Shaper(output, section, self.buffer, now=clock.now, wall_ns=clock.wall_ns)
        self.intake = Intake(shaper, section, self, left=left)
        self.staging = Staging(self.buffer, section, clock, self.chunks_queued)
        self.delivery = Delivery(
            output,
            self.buffer,
            RetryPolicy(section, has_secondary=self.secondary is not None),
            lanes=section.flush_thread_count,
            secondary=self.secondary,
            backup=None if section.disable_chunk_backup else self.backup(),
            commit_timeout=section.delayed_commit_timeout,
            changed=self._changed,
            clock=clock,
            letters=self._letters(),
        )
        self.lanes = Lanes(
            section.flush_thread_count,
            job=self._job,
            lost=self.delivery.lost,
            clock=clock,
            log=output.log,
            rest=section.flush_thread_burst_interval,
        )
        self.started = True
        self.lanes.start()
        output.__dict__["emit"] = self.intake.emit

    def _letters(self) -> ChunkLetters | None:
        """The way to <label @DLQ>; None without it, and for what stands in it: its own dead letters are kept."""
        router = self.context.desk.dlq
        if router is None or self.output.router is router:
            return None
        return ChunkLetters(router, self.output, packed=self.section.holds_packed())

    def _adopter(self) -> Adopter:
        section, context, output = self.section, self.context, self.output
        backup = self.backup()
        return Adopter(
            [*section.adopts(context), backup.replays, *backup.elsewhere(context.settings.workers)],
            files=context.files,
            log=output.log,
            keys=self.keys,
            packed=section.holds_packed(),
            key=next(iter(self.keys.fields), None),
            backup=None if section.disable_chunk_backup else backup,
            mode=context.settings.file_mode,
        )

    def _look(self) -> None:
        """Take over what was put where we look for chunks.

        Letters to deliver again, files that Fluentd left, and what an elder had in memory.
        """
        self.adopter.also(self.backup().elsewhere(self.context.settings.workers))
        if chunks := self.adopter.look(self.context.clock.now()):
            self.restore(chunks)
        self._look_timer.reschedule(LOOK)

    def restore(self, chunks: list[Chunk]) -> None:
        """Take over chunks that another process has left."""
        self.buffer.restore(chunks)
        self.restored += sum(chunk.count for chunk in chunks)
        self.chunks_queued()

    def backup(self) -> Backup:
        """Return where chunks go that nobody takes."""
        return Backup(self.context.dead_letters, self.output.plugin_id)

    # What the intake tells.

    def chunk_staged(self, chunk: Chunk) -> None:
        """Set the timer that queues a new chunk."""
        self.staging.add(chunk)

    def chunk_awaited(self, chunk: Chunk) -> None:
        """Queue a staged chunk as soon as a lane can take it."""
        self.staging.hurry(chunk)

    def chunks_queued(self) -> None:
        """Wake as many lanes as there is work for."""
        self.lanes.wake(len(self.buffer.queued))

    def call_later(self, seconds: float) -> None:
        """Let waiting batches try again in some seconds."""
        self.context.clock.deadline(seconds, self.intake.resume)

    # What outputs tell.

    def commit(self, chunk_id: bytes) -> None:
        """Forget a chunk that arrived; see Output.commit."""
        self.delivery.commit(chunk_id)

    def rollback(self, chunk_id: bytes, error: Exception | None) -> None:
        """Try a chunk again; see Output.rollback."""
        self.delivery.rollback(chunk_id, error)

    # Between the buffer and the lanes.

    def flush(self) -> None:
        """Queue everything that is staged, now."""
        self._asked_at = self.context.clock.now()
        for chunk in list(self.buffer.staged.values()):
            self.buffer.seal(chunk)
        self.chunks_queued()

    def _job(self, lane: Lane) -> Awaitable[None] | None:
        if self._finishing:
            return None
        work = self.delivery.next(lane)
        if work is None:
            self._arm_try()
        elif self.staging.held:
            self.staging.run()
        return work

    def _changed(self) -> None:
        if self.intake.waiting:
            self.intake.resume()
        self.lanes.wake(len(self.buffer.queued) + self.delivery.parted)

    def _arm_try(self) -> None:
        """Wake the lanes at the next moment at which something may be tried."""
        moment = self.delivery.next_moment()
        now = self.context.clock.now()
        if moment == math.inf or (now < self._try_at <= moment):
            return
        self._try_at = moment
        # There was nothing to do at this very moment, so the next one is never now: lanes do not spin.
        wait = max(moment - now, _LEAST_WAIT)
        if self._try_timer is None:
            self._try_timer = self.context.clock.deadline(wait, self._try)
        else:
            self._try_timer.reschedule(wait)

    def _try(self) -> None:
        self._try_at = math.inf
        self.lanes.wake_all()

    # The end.

    async def stop(self, deadline: float, *, heir: bool = False) -> None:
        """Flush (if flush_at_shutdown), let lanes finish, give up files. deadline: by the clock, in seconds.

        heir: the same output of another process takes over what is left in memory.
        Returns at the deadline at the latest, plus a second in which cancelled lanes end. What is safe in files, and
        what hangs at a destination that had failed before, is not waited for as long.
        """
        if not self.started:
            return
        self.started = False
        clock = self.context.clock
        self.intake.close()
        # Who asks for a flush and ends the process right after it waits for that flush.
        flushing = clock.now() - self._asked_at < _ASKED
        if self.section.flushes_at_shutdown:
            flushing = True
            self.flush()
            self.delivery.begin_last()
            self.lanes.wake_all()
        # Without flush_at_shutdown too: what is sent and acknowledged in time need not be sent again.
        self._finishing = not flushing
        begun = clock.now()
        end = deadline
        if not flushing:  # it is on disk anyway
            end = min(deadline, begun + min(max(2 * self.delivery.longest, _STUCK), _LINGER))
        while clock.now() < end and (self.lanes.busy or self.delivery.pending or (flushing and self._flushable())):
            if self._failing:
                end = min(end, begun + _STUCK)
            await clock.sleep(min(_POLL, max(end - clock.now(), 0.001)))
        await self.lanes.stop()
        self.delivery.take_back()
        self.staging.close()
        self._look_timer.cancel()
        if self._try_timer is not None:
            self._try_timer.cancel()
        self.intake.give_up()
        store = self.buffer.store
        lost = [chunk for chunk in self.buffer.everything() if not chunk.store.persistent and chunk.count]
        if heir and lost:
            lost = hand_over(lost, self.backup(), self.output, packed=self.section.holds_packed())
        if lost:
            self.lost = sum(chunk.count for chunk in lost)
            size = sum(chunk.size for chunk in lost)
            self.output.log.error("%d events in memory are lost at shutdown, %d bytes", self.lost, size)
        store.close()
        self.adopter.close()

    @property
    def _failing(self) -> bool:
        """Whether every destination had failed before, and has not answered since."""
        delivery = self.delivery
        return bool(delivery.gate.step) and (self.secondary is None or bool(delivery.secondary_gate.step))

    def _flushable(self) -> bool:
        """Whether there is something that can be delivered without waiting for a back-off."""
        gate = self.delivery.gate
        if gate.step:
            return bool(self.delivery.pending) or (
                bool(self.buffer.queued) and gate.opens_at <= self.context.clock.now()
            )
        return bool(self.buffer.queued or self.delivery.parted or self.delivery.pending)

    def stats(self) -> dict[str, Any]:
        """Return all figures of the buffer, the delivery and each lane."""
        return runner_stats(self) if hasattr(self, "lanes") else {}


def wire(output: Output, context: Context, primary: Output | None) -> None:
    """Give a buffered output its runner, a secondary its primary's; report sections that do not fit."""
    problems = context.problems
    can_buffer = overrides(output, Output, "write") or overrides(output, Output, "try_write")
    direct = overrides(output, Output, "process")
    if primary is not None:
        if not overrides(output, Output, "write"):
            problems.error(f'"{output.type_}" cannot be a <secondary>: it does not write chunks', output.place)
        for name in ("buffer", "secondary"):
            extra: Directive | None = getattr(output, f"{name}_section")
            if extra is not None:
                problems.error(f"<secondary> cannot have a <{name}> section", extra.place)
        output.runner = primary.runner
        return
    directive = output.buffer_section
    if can_buffer and (directive is not None or not direct or output.prefers_buffer):
        output.runner = _runner(output, context)
        return
    if not direct and not can_buffer and not overrides(output, Output, "emit"):
        raise ConfError(f"{type(output).__name__} overrides neither process nor write", output.place)
    if directive is not None:
        problems.error("<buffer> is configured, but this output has no buffer", directive.place)
    if output.secondary_section is not None:
        problems.error("<secondary> needs a buffered output", output.secondary_section.place)


def _runner(output: Output, context: Context) -> Runner | None:
    owner = output.directive
    assert owner is not None
    given = output.buffer_section or Directive("buffer", (), owner.file, owner.line, block=())
    defaults = output.buffer_parameters()
    directive = with_defaults(given, defaults, output.default_chunk_keys)
    type_name = reserved(directive, "@type") or defaults.get("@type", "memory")
    problems = context.problems
    before = problems.broken
    try:
        cls = context.lookup("buffer", type_name)
    except ConfError as error:
        problems.error(error.message, directive.place, hint=error.hint)
        nested.check_secondary(context, output)
        return None
    section = cast("BufferSection", cls())
    configured(section, directive, problems)
    if problems.broken > before:
        nested.check_secondary(context, output)
        return None
    section.owner = output
    section.context = context
    section.plugin_id = f"{output.plugin_id}.buffer"
    section.log = output.log
    if section.log_level is not None:
        section.log = output.log.getChild("buffer")
        section.log.setLevel(LEVELS[section.log_level])
    section.provision(context)
    runner = Runner(output, section, context)
    if output.secondary_section is not None:
        output.runner = runner
        made = context.make(
            "output", output.secondary_section, default_type=output.type_, router=output.router, primary=output
        )
        runner.secondary = made
        if section.retry_forever:
            problems.warn("with retry_forever, only errors that no retry mends reach <secondary>", made and made.place)
    return runner
