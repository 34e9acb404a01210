"""From the queue to the destination: which chunk a lane tries, where, and what its outcome means.

The primary is tried when its gate lets it. A chunk parts from it on an error that no retry mends, when it
is given up, or when it comes while the destination is down for good and a <secondary> is there; a parted chunk goes to
the secondary, and to the backup when there is none or it fails too. A chunk leaves the buffer only at the
end of this way, and what cannot even be backed up stays in the buffer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import BufferOverflow, Error, Timeout
from headrace.pipeline.lanes import Lane, cancelled_from_outside
from headrace.pipeline.plugin import Output, overrides
from headrace.pipeline.queue import Parted
from headrace.pipeline.retry import CLOSED, OPEN, Gate
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headrace.core.clock import Clock, Deadline
    from headrace.pipeline.backup import Backup
    from headrace.pipeline.buffer import Buffer
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.dlq import ChunkLetters
    from headrace.pipeline.retry import RetryPolicy

_HOPELESS: Final = (TypeError, ValueError, AttributeError)
"""Errors of Python that come back however often a chunk is tried."""


class Delivery:
    """Delivers the chunks of one output.

    changed(): called when chunks left the buffer, or may be tried at another moment than before. backup:
    None throws chunks away. The counters count events: delivered, by_secondary (part of delivered),
    backed_up, thrown_away; or deliveries: attempts, retries, failures, slow.
    """

    def __init__(
        self,
        output: Output,
        buffer: Buffer,
        policy: RetryPolicy,
        *,
        lanes: int,
        secondary: Output | None,
        backup: Backup | None,
        commit_timeout: float,
        changed: Callable[[], None],
        clock: Clock,
        letters: ChunkLetters | None = None,
    ) -> None:
        self.output = output
        self.buffer = buffer
        self.policy = policy
        self.secondary = secondary
        self.backup = backup
        self.letters = letters
        self.gate = Gate(policy, lanes)
        self.secondary_gate = Gate(policy, lanes)
        self.delivered = 0
        self.by_secondary = 0
        self.backed_up = 0
        self.thrown_away = 0
        self.attempts = 0
        self.retries = 0
        self.failures = 0
        self.slow = 0
        self.longest = 0.0
        """Seconds that the slowest delivery took."""
        self.flush_time = 0.0
        """Seconds that deliveries took."""
        self._log = output.log
        self._changed = changed
        self._clock = clock
        self._commit_timeout = commit_timeout
        self._delayed = delays_commit(output)
        self._pending: dict[bytes, tuple[Chunk, Lane, Deadline]] = {}
        self._parted = Parted()
        self._bury_at = 0.0
        """When the backup may be tried again, after it could not be written."""
        self._errors = Throttle(burst=5)
        self._burials = Throttle(burst=5)
        self._recoveries = Throttle()

    @property
    def pending(self) -> int:
        """Chunks that were sent and wait for their commit."""
        return len(self._pending)

    @property
    def parted(self) -> int:
        """Chunks on their way to the secondary or the backup."""
        return len(self._parted)

    def next(self, lane: Lane) -> Coroutine[Any, Any, None] | None:
        """Take what a lane can do now; None when there is nothing, or nothing that may be tried yet."""
        now = self._clock.now()
        if self._parted and (work := self._next_parted(lane, now)) is not None:
            return work
        if not self.buffer.queued:
            return None
        verdict = self.gate.admit(now)
        if verdict != CLOSED:
            if verdict == OPEN:
                chunk = self.buffer.take(now)
            else:
                chunk = self.buffer.take_in_window(now, verdict, probe=self.gate.probing)
            if chunk is not None:
                lane.chunk = chunk
                chunk.window = self.gate.window
                return self._deliver(chunk, lane)
            if verdict != OPEN:
                self.gate.give_back()
        if self.secondary is not None and self.gate.exhausted(now) and self.secondary_gate.opens_at <= now:
            chunk = self.buffer.take_untried()
            if chunk is not None:
                self._parted.put_first(chunk)
                return self._next_parted(lane, now)
        return None

    def begin_last(self) -> None:
        """Let what waits for a retry be tried once more now (shutdown): one failed window ends it again."""
        now = self._clock.now()
        self.gate.begin_last(now)
        self.secondary_gate.begin_last(now)
        self.buffer.queued.hurry(now)
        self._parted.hurry(now)
        self._bury_at = 0.0

    def next_moment(self) -> float:
        """When (by the clock) something that waits now may be tried; infinity when only an event can tell."""
        soonest = math.inf
        queued = self.buffer.queued
        if queued:
            closed = self.gate.step and self.gate.opens_at > self._clock.now()
            soonest = self.gate.opens_at if closed else queued.next_due()
            if self.secondary is not None and self.gate.step and queued.untried() is not None:
                soonest = min(soonest, max(self.secondary_gate.opens_at, self.gate.exhausted_at))
        if self._parted:
            opens = self._bury_at if self.secondary is None else self.secondary_gate.opens_at
            soonest = min(soonest, max(self._parted.next_due(), opens))
        return soonest

    def lost(self, lane: Lane, error: BaseException) -> None:
        """Note that a lane died with its chunk: a failure like any other."""
        chunk = lane.chunk
        if chunk is not None and chunk.id in self.buffer.in_flight and chunk not in self._parted:
            self._drop_pending(chunk)
            self._failed(chunk, lane, error)

    def commit(self, chunk_id: bytes) -> None:
        """Note that a chunk sent by try_write has arrived; an unknown id is ignored (it was late)."""
        if (found := self._pending.pop(chunk_id, None)) is not None:
            found[2].cancel()
            self._succeeded(found[0], found[1])

    def rollback(self, chunk_id: bytes, error: BaseException | None = None) -> None:
        """Note that a chunk sent by try_write has not arrived, or not in time."""
        if (found := self._pending.pop(chunk_id, None)) is not None:
            found[2].cancel()
            self._failed(found[0], found[1], error or Timeout("the destination did not confirm the chunk"))
            self._changed()

    def take_back(self) -> None:
        """Put everything that is neither queued nor held by a lane back into the queue (shutdown)."""
        for chunk, _lane, deadline in self._pending.values():
            deadline.cancel()
            self.buffer.back(chunk)
        self._pending.clear()
        for chunk in self._parted.clear():
            if self._only_backup_is_left(chunk) and self._bury(chunk):
                continue
            self.buffer.back(chunk)

    async def _deliver(self, chunk: Chunk, lane: Lane) -> None:
        chunk.attempts += 1
        self.attempts += 1
        self.retries += chunk.attempts > 1
        started = self._clock.now()
        try:
            if self._delayed:
                deadline = self._clock.deadline(self._commit_timeout, self.rollback, chunk.id)
                self._pending[chunk.id] = (chunk, lane, deadline)
                await self.output.try_write(chunk, lane)
            else:
                await self.output.write(chunk, lane)
        except asyncio.CancelledError as error:
            stopped = cancelled_from_outside()
            if self._held(chunk):
                if stopped:  # whether it arrived is not known, so it is kept
                    self.buffer.back(chunk)
                else:
                    self._failed(chunk, lane, error)
            if stopped:
                raise
        except Exception as error:  # noqa: BLE001 - the outcome of a delivery, whatever it was
            if self._held(chunk):
                self._failed(chunk, lane, error)
        else:
            self._note_slow(started)
            if not self._delayed:
                self._succeeded(chunk, lane)

    def _held(self, chunk: Chunk) -> bool:
        """Whether a chunk whose sending raised is still ours to decide about (a commit may have come first)."""
        if self._delayed:
            return self._drop_pending(chunk)
        return True

    def _drop_pending(self, chunk: Chunk) -> bool:
        found = self._pending.pop(chunk.id, None)
        if found is not None:
            found[2].cancel()
        return found is not None

    def _succeeded(self, chunk: Chunk, lane: Lane) -> None:
        lane.chunks += 1
        lane.events += chunk.count
        lane.bytes += chunk.size
        self.delivered += chunk.count
        if chunk.attempts > 1:
            self._recoveries.log(self._log, logging.WARNING, "retry succeeded, chunk %s", chunk.hex_id)
        self.buffer.remove(chunk)
        self.gate.succeeded()
        self._changed()

    def _failed(self, chunk: Chunk, lane: Lane, error: BaseException) -> None:
        now = self._clock.now()
        self.failures += 1
        lane.failures += 1
        chunk.error = described(error)
        if chunk.failed_since is None:
            chunk.failed_since = now
        hopeless = is_hopeless(error)
        if hopeless:
            self.gate.succeeded()  # the destination is there; it is the chunk that is wrong
            what = "no retry can help"
        else:
            self.gate.failed(chunk, now)
            what = f"next try in {max(chunk.due - now, 0):.1f} s"
        if parts := hopeless or self.policy.gives_up(chunk, now):
            chunk.due = now
            self._parted.add(chunk)
            what = what if hopeless else "given up"
        else:
            self.buffer.back(chunk)
        message = "failed to flush the buffer: chunk %s, attempt %d, %s: %r"
        log = self._burials if parts else self._errors
        log.log(self._log, logging.WARNING, message, chunk.hex_id, chunk.attempts, what, error)

    def _next_parted(self, lane: Lane, now: float) -> Coroutine[Any, Any, None] | None:
        """Take a chunk for the secondary, or for the backup where that is all that is left."""
        if self.secondary is None and self._bury_at > now:
            return None
        while (chunk := self._parted.pop(now)) is not None:
            if self._only_backup_is_left(chunk):
                if self._bury_at > now:
                    chunk.due = self._bury_at
                    self._parted.add(chunk)
                    continue
                lane.chunk = chunk
                return self._to_backup(chunk)
            if self.secondary_gate.admit(now) == CLOSED:
                self._parted.put_first(chunk)
                return None
            assert self.secondary is not None
            lane.chunk = chunk
            chunk.window = self.secondary_gate.window
            return self._to_secondary(self.secondary, chunk, lane)
        return None

    def _only_backup_is_left(self, chunk: Chunk) -> bool:
        return self.secondary is None or chunk.secondary_attempts < 0

    async def _to_backup(self, chunk: Chunk) -> None:
        """Bring a chunk to <label @DLQ>, or to the backup, and forget it; when that fails, try again later."""
        letters = self.letters
        try:
            taken = letters is not None and await letters.send(chunk, self._notes(chunk), self._clock.wall_ns())
        except asyncio.CancelledError:
            self.buffer.back(chunk)
            raise
        if taken:
            self.buffer.remove(chunk, self._given_up(chunk))
        elif not self._bury(chunk):
            chunk.due = self._bury_at
            self._parted.add(chunk)
        self._changed()

    async def _to_secondary(self, secondary: Output, chunk: Chunk, lane: Lane) -> None:
        chunk.secondary_attempts += 1
        try:
            await secondary.write(chunk, lane.spare or lane)
        except asyncio.CancelledError as error:
            if cancelled_from_outside():
                self.buffer.back(chunk)
                raise
            self._secondary_failed(chunk, error)
        except Exception as error:  # noqa: BLE001 - the outcome of a delivery, whatever it was
            self._secondary_failed(chunk, error)
        else:
            self.delivered += chunk.count
            self.by_secondary += chunk.count
            message = "chunk %s was taken by the secondary"
            self._burials.log(self._log, logging.WARNING, message, chunk.hex_id)
            self.buffer.remove(chunk)
            self.secondary_gate.succeeded()
            self._changed()

    def _secondary_failed(self, chunk: Chunk, error: BaseException) -> None:
        now = self._clock.now()
        if chunk.failed_since is None:
            chunk.failed_since = now
        self.failures += 1
        chunk.error = f"secondary: {described(error)}"
        message = "the secondary failed to take chunk %s, attempt %d: %r"
        self._burials.log(self._log, logging.WARNING, message, chunk.hex_id, chunk.secondary_attempts, error)
        self.secondary_gate.failed(chunk, now, chunk.secondary_attempts)
        if is_hopeless(error) or self.policy.secondary_gives_up(chunk, now):
            chunk.secondary_attempts = -1  # only the backup is left
            chunk.due = now
        self._parted.add(chunk)
        self._changed()

    def _bury(self, chunk: Chunk) -> bool:
        """Write a chunk to the backup and forget it; False when it cannot be written now."""
        if self.backup is None:
            self._burials.log(
                self._log, logging.WARNING, "chunk %s is thrown away (disable_chunk_backup)", chunk.hex_id
            )
            self.thrown_away += chunk.count
        else:
            try:
                path = self.backup.write(chunk, self._notes(chunk), now=self._clock.wall_ns() / 1e9)
            except (OSError, ValueError) as error:
                self._errors.log(self._log, logging.ERROR, "chunk %s cannot be backed up: %r", chunk.hex_id, error)
                self._bury_at = self._clock.now() + max(self.policy.wait(1), 1.0)
                return False
            self._burials.log(self._log, logging.WARNING, "bad chunk %s is moved to %s", chunk.hex_id, path)
            self.backed_up += chunk.count
        self.buffer.remove(chunk, self._given_up(chunk))
        return True

    @staticmethod
    def _given_up(chunk: Chunk) -> BufferOverflow:
        return BufferOverflow(f"chunk {chunk.hex_id} was given up", kind="undelivered")

    def _notes(self, chunk: Chunk) -> dict[str, Any]:
        """Why a chunk is given up, for its letter."""
        now = self._clock.now()
        ago = now - chunk.failed_since if chunk.failed_since is not None else 0.0
        return {
            "type": self.output.type_,
            "reason": "given up",
            "error": chunk.error,
            "attempts": chunk.attempts,
            "secondary_attempts": abs(chunk.secondary_attempts),
            "failed_since": self._clock.wall_ns() / 1e9 - ago,
            "packed": not overrides(self.output, Output, "format") or self.output.formatted_to_msgpack,
        }

    def _note_slow(self, started: float) -> None:
        elapsed = self._clock.now() - started
        self.flush_time += elapsed
        self.longest = max(self.longest, elapsed)
        if elapsed > self.output.slow_flush_log_threshold:
            self.slow += 1
            message = "a flush took %.1f s, longer than slow_flush_log_threshold"
            self._errors.log(self._log, logging.WARNING, message, elapsed)


def described(error: BaseException, limit: int = 1000) -> str:
    """An error in a line."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]}..."


def is_hopeless(error: BaseException) -> bool:
    """Whether trying a chunk again cannot help."""
    if isinstance(error, Error):
        return not error.retryable
    return isinstance(error, _HOPELESS) and not isinstance(error, OSError)


def delays_commit(output: Output) -> bool:
    """Whether an output delivers by try_write."""
    if not overrides(output, Output, "try_write"):
        return False
    return output.prefers_delayed_commit or not overrides(output, Output, "write")
