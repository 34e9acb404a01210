"""Reads files by turns, and brings what it reads into the buffers.

Rules:
- A turn is one block of one file: at most `read_lines_limit` lines, one batch. Then it is another file's turn, so a
  busy file costs a quiet one the time of a turn. How large a block is follows from how long the last ones took.
- Between slices of some milliseconds the others on the loop have their turn, for as long as the slice was.
- Nothing more is read of a file while a batch of it is under way (outlet.py).
- Not more than PARKED batches wait in memory: then no file is read until one of them is taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headrace.pipeline.event import Batch
from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_tail.outlet import LAST_DELAY, Outlet
from headrace.plugins.in_tail.tailed import WITNESS, Tailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.core.clock import Clock
    from headrace.pipeline.event import Event
    from headrace.plugins.in_tail.groups import Quota
    from headrace.plugins.in_tail.handles import Handles

SMALLEST: Final = 8 << 10
LARGEST: Final = 256 << 10
"""Bytes of a block."""
SLICE: Final = 0.002
"""Seconds after which others have the loop."""
TURNS: Final = 64
"""Turns after which others have the loop, however short they were."""
IDLE_TURN: Final = 30e-6
"""Seconds of a turn of the loop in which nobody else had anything to do."""
PARKED: Final = 32
PACE: Final = 0.01
"""Seconds after which a file is read again that grew while its end was reached: its lines come in batches."""


class Keeper(Protocol):
    """Who knows which files there are."""

    def at_end(self, tail: Tailed) -> None:
        """A file was read to its end, and all of it is in the buffers."""
        ...

    def unreadable(self, tail: Tailed, error: OSError) -> None:
        """A file cannot be opened or read."""
        ...

    def done(self, tail: Tailed) -> None:
        """All that was left of a file that is not read any more is in the buffers."""
        ...

    def taken(self, tail: Tailed) -> None:
        """`tail.offset` has moved."""
        ...


@dataclass(frozen=True)
class Work:
    """What is done with lines.

    emit: takes a batch for a tag. parse: texts of a file -> events. convert: a line into the encoding that
    records have, None for none; unit: bytes of a line end. lines_limit: lines of a batch at most.
    flush_interval: seconds until a multiline text counts as whole, None for never. named: a batch that is offered again
    after the wait for its delivery was too long must be known again.
    """

    emit: Callable[[str, Batch], Awaitable[None] | None]
    parse: Callable[[Tailed, Sequence[bytes]], list[Event]]
    lines_limit: int = 1000
    convert: Callable[[bytes], bytes] | None = None
    unit: int = 1
    flush_interval: float | None = None
    named: bool = False


class Reader:
    """Reads what is in the queue; see the module's text. keeper: set by whoever makes both."""

    keeper: Keeper

    def __init__(self, work: Work, handles: Handles, clock: Clock, log: logging.Logger) -> None:
        self._work = work
        self._handles = handles
        self._clock = clock
        self._log = log
        self._ready: deque[Tailed] = deque()
        self._stalled: deque[Tailed] = deque()
        """Files that have something new while too many batches wait."""
        self._wake = asyncio.Event()
        self._block = 64 << 10
        self._outlet = Outlet(work.emit, clock, log, settled=self._settle, later=self.later)
        self._stopped = False
        self.lines = 0
        self.bytes = 0
        self.throttled = 0
        self.truncated = 0
        self.suspected = 0
        self.turns = 0
        self._truncations = Throttle(now=clock.now)
        self._failures = Throttle(now=clock.now)

    def send_to(self, emit: Callable[[str, Batch], Awaitable[None] | None]) -> None:
        """Emit to another router from now on."""
        self._outlet.send_to(emit)

    def enqueue(self, tail: Tailed) -> None:
        """It is worth a look at this file, in its turn."""
        if tail.queued or tail.busy or tail.timer is not None or tail.held_back or tail.closed:
            return
        tail.queued = True
        self._ready.append(tail)
        self._wake.set()

    def later(self, tail: Tailed, seconds: float) -> None:
        """Not before some seconds."""
        if tail.timer is not None:
            tail.timer.cancel()
        tail.timer = self._clock.deadline(seconds, self._due, tail)

    def _due(self, tail: Tailed) -> None:
        tail.timer = None
        self.enqueue(tail)

    async def run(self) -> None:
        """Read for ever."""
        now = self._clock.now
        while True:
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
            began = now()
            for _ in range(TURNS):
                if not self._ready:
                    break
                tail = self._ready.popleft()
                tail.queued = False
                before = now()
                done = self.bytes
                self.turn(tail)
                after = now()
                self._adapt(self.bytes - done, after - before)
                if after - began > SLICE:
                    break
            await self._give_way(now() - began)

    async def _give_way(self, seconds: float) -> None:
        """Let the others have the loop, at least once, and for as long as we had it if they have that much to do."""
        now, sleep = self._clock.now, self._clock.sleep
        while True:
            began = now()
            await sleep(0)
            turn = now() - began
            seconds -= turn
            if seconds <= 0 or turn < IDLE_TURN:
                return

    def _adapt(self, size: int, seconds: float) -> None:
        """Choose the size of blocks so that one takes about a slice."""
        if size >= SMALLEST // 2 and seconds > 0:
            self._block = min(max(int(size / seconds * SLICE), SMALLEST), LARGEST)

    def turn(self, tail: Tailed) -> None:
        """One block of one file, or what is left of its last one."""
        if tail.closed or tail.held_back:
            return
        self.turns += 1
        try:
            if tail.pending is not None:
                self._outlet.emit(tail)
            elif tail.final:
                self.keeper.done(tail)
            elif self._outlet.parked >= PARKED:
                tail.queued = True
                self._stalled.append(tail)
            else:
                self._read(tail)
        except Exception as error:  # noqa: BLE001
            # One file's trouble stops no other's; it is tried again.
            self._failures.log(self._log, logging.ERROR, "unexpected error with %s: %r", tail.path, error)
            self.later(tail, LAST_DELAY)

    def _read(self, tail: Tailed) -> None:
        size, most = self._block, self._work.lines_limit
        quota = tail.quota
        if quota is not None:
            now = self._clock.now()
            size, most = quota.bytes_left(now, size), quota.lines_left(now, most)
            if not size or not most:
                self._hold_off(tail, quota, now)
                return
        try:
            fd = self._handles.get(tail)
            if tail.read and not tail.witness:
                tail.witness = os.pread(fd, min(tail.read, WITNESS), max(tail.read - WITNESS, 0))
                if len(tail.witness) < min(tail.read, WITNESS):
                    self._begin_anew(tail)
                    return
            witness = tail.witness
            data = os.pread(fd, size + len(witness), tail.read - len(witness))
        except OSError as error:
            self.keeper.unreadable(tail, error)
            return
        if witness:
            if not data.startswith(witness):
                self._begin_anew(tail)
                return
            data = data[len(witness) :]
        if not data:
            tail.ended = True
            self.keeper.at_end(tail)
            return
        before = tail.boundary
        lines, used = tail.splitter.feed(data, most)
        tail.advance(data, used)
        tail.ended = len(data) < size and used == len(data)
        self.lines += len(lines)
        self.bytes += used
        if quota is not None:
            quota.count(used, len(lines))
        if lines or tail.splitter.lost:
            self._take(tail, lines, before, returns=b"\r" in data)
        else:
            self._next(tail)

    def _hold_off(self, tail: Tailed, quota: Quota, now: float) -> None:
        """A file has had its share."""
        self.throttled += 1
        if tail.rotated_at is not None and quota.barred:
            tail.ended = True  # nobody waits for the end of what is never read
            self.keeper.at_end(tail)
        else:
            self.later(tail, quota.wait(now))

    def _take(self, tail: Tailed, lines: list[bytes], before: int, *, returns: bool) -> None:
        """Make events of lines. before: where the first of them began. returns: there are carriage returns."""
        work = self._work
        texts = lines if work.convert is None else [work.convert(line) for line in lines]
        assembler = tail.assembler
        if assembler is None:
            if returns or work.unit > 1 or (texts and texts[0].endswith(b"\r")):
                texts = [text.removesuffix(b"\r") for text in texts]
        else:
            texts, start = assembler.feed(texts)
            if not assembler.holds:
                tail.text_at = None
            elif start >= 0:
                # A line that was left out has no length here: then the text began with the block at the latest.
                size = sum(map(len, lines[start:])) + (len(lines) - start) * work.unit
                tail.text_at = before if tail.splitter.lost else tail.boundary - size
            self._plan_flush(tail)
        after = tail.boundary if tail.text_at is None else tail.text_at
        self._offer(tail, texts, after)

    def _plan_flush(self, tail: Tailed) -> None:
        interval, assembler = self._work.flush_interval, tail.assembler
        if interval is None or assembler is None or not assembler.by_firstline:
            return
        if tail.flush_timer is None:
            tail.flush_timer = self._clock.deadline(interval, self._flush_due, tail)
        else:
            tail.flush_timer.reschedule(interval)

    def _flush_due(self, tail: Tailed) -> None:
        if tail.closed or tail.assembler is None or not tail.assembler.holds:
            return
        if tail.pending is not None:
            self._plan_flush(tail)
        else:
            self.flush(tail)

    def flush(self, tail: Tailed, *, last: bool = False) -> None:
        """A multiline text is whole as it is. last: so is a line without an end."""
        assembler = tail.assembler
        texts: list[bytes] = []
        if last and (rest := tail.splitter.rest()):
            texts = [rest if self._work.convert is None else self._work.convert(rest)]
        if assembler is not None:
            whole, _start = assembler.feed(texts)
            texts = whole + ([assembler.take()] if assembler.holds else [])
        tail.text_at = None
        self._offer(tail, texts, tail.boundary)

    def finish(self, tail: Tailed) -> None:
        """Emit what is left of a file that is not read any more; then `keeper.done`."""
        tail.final = True
        if tail.pending is None:
            self.flush(tail, last=True)
        else:
            self.enqueue(tail)

    def _begin_anew(self, tail: Tailed) -> None:
        """The file was truncated, and maybe written again."""
        self.truncated += 1
        if not tail.ended or tail.splitter.held:
            self.suspected += 1
        message = "%s was truncated: it is read from its beginning (what was written just before may be lost)"
        self._truncations.log(self._log, logging.INFO, message, tail.path)
        assembler = tail.assembler
        texts = [assembler.take()] if assembler is not None and assembler.holds else []
        tail.restart()
        self._offer(tail, texts, 0)

    def _offer(self, tail: Tailed, texts: Sequence[bytes], after: int) -> None:
        events = self._work.parse(tail, texts) if texts else []
        if events:
            batch = Batch.of(events)
            if self._work.named:
                batch.id = os.urandom(16)
            self._outlet.put(tail, batch, after)
        else:
            self._settle(tail, after)

    def _settle(self, tail: Tailed, after: int) -> None:
        """Everything before an offset is in the buffers."""
        while self._stalled and self._outlet.parked < PARKED:
            self._ready.append(self._stalled.popleft())
            self._wake.set()
        if tail.closed:
            return
        if after != tail.offset:
            tail.offset = after
            self.keeper.taken(tail)
        self._next(tail)

    def _next(self, tail: Tailed) -> None:
        if tail.final:
            self.keeper.done(tail)
        elif self._stopped:
            return
        elif tail.ended:
            self.keeper.at_end(tail)
        else:
            self.enqueue(tail)

    def drop(self, tail: Tailed) -> None:
        """Forget a file."""
        tail.closed = True
        tail.cancel_timers()
        self._outlet.forget(tail)

    async def settle(self, seconds: float) -> None:
        """Take nothing new; wait until what was emitted is taken, then give it up (it is read again next time)."""
        self._stopped = True
        await self._outlet.all_taken(seconds)

    async def flush_all(self, tails: Sequence[Tailed], seconds: float) -> None:
        """At the end: multiline texts are whole as they are."""
        for tail in tails:
            if tail.assembler is not None and tail.assembler.holds and tail.pending is None:
                self.flush(tail)
        await self._outlet.all_taken(seconds)

    def stats(self) -> dict[str, int]:
        """Figures."""
        outlet = self._outlet
        return {
            "throttled_log_count": self.throttled,
            "turns": self.turns,
            "bytes": self.bytes,
            "lines": self.lines,
            "events": outlet.events,
            "refused": outlet.refused,
            "failed": outlet.failed,
            "waiting": outlet.parked,
            "truncated": self.truncated,
        }
