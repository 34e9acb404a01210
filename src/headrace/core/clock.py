"""The only source of time: monotonic and wall time, precise sleeps, and a coarse wheel of deadlines.

Most deadlines never fire: a request arms one, is answered, and moves it. So moving one is a write of one
field; the wheel looks at the field when the old moment comes and files the object again if it was moved.
An object that has a deadline derives from `Timed` (no timer handle, no closure); `Deadline` is a `Timed`
that calls a function. A bucket far away is wide, and is dealt out into narrower ones when it comes near,
so that ten thousand idle connections share a few buckets. A deadline fires at most one tick (10 ms) late,
and never early.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace.core.failure import timed_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TICK = 0.01
NEVER = math.inf
_FUZZ = 1e-4  # of a tick: 0.1 + 0.2 must meet 0.3


class Timed:
    """Something with one deadline. `due`: when, by the clock (seconds); `tick`: its bucket, 0 when in none.

    Both fields belong to the clock. Use `Clock.schedule`, `Clock.suspend` and `Clock.cancel`.
    """

    __slots__ = ("due", "tick")

    def __init__(self) -> None:
        self.due = NEVER
        self.tick = 0

    def expired(self) -> None:
        """The deadline has come. Called once for each time it was scheduled and not moved or cancelled."""
        raise NotImplementedError


class Deadline(Timed):
    """A call at a moment to come; made by `Clock.deadline`."""

    __slots__ = ("_args", "_callback", "_clock")

    def __init__(self, clock: Clock, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.due = NEVER
        self.tick = 0
        self._clock = clock
        self._callback = callback
        self._args = args

    @property
    def active(self) -> bool:
        """Whether the call is still to come."""
        return self.due != NEVER

    def expired(self) -> None:
        """Make the call."""
        self._callback(*self._args)

    def cancel(self) -> None:
        """Do not call. A cancelled deadline may be rescheduled."""
        self._clock.cancel(self)

    def reschedule(self, seconds: float) -> None:
        """Call in `seconds` from now instead. Moving a deadline to a later moment costs next to nothing."""
        self._clock.schedule(self, seconds)


class Wheel:
    """Buckets of `Timed` by tick. No I/O: the clock says what time it is.

    report: gets an exception that a deadline raised; the other deadlines fire all the same.
    """

    __slots__ = ("_buckets", "_due", "_report", "_scale", "_ticks")

    def __init__(self, tick: float, report: Callable[[Exception, Timed], None]) -> None:
        self._scale = 1.0 / tick
        self._report = report
        self._buckets: dict[int, set[Timed]] = {}
        self._ticks: list[int] = []
        self._due: deque[Timed] = deque()

    def schedule(self, timed: Timed, due: float, now: float) -> bool:
        """Set the deadline. True when the wheel must be looked at sooner than before."""
        timed.due = due
        tick = timed.tick
        if tick:
            if due * self._scale >= tick:
                return False
            self._take_out(timed)
        tick = max(math.ceil(due * self._scale - _FUZZ), 1)
        distance = tick - int(now * self._scale)
        if distance >= 2048:
            tick &= ~255
        elif distance >= 128:
            tick &= ~15
        timed.tick = tick
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.add(timed)
            return False
        self._buckets[tick] = {timed}
        heapq.heappush(self._ticks, tick)
        return self._ticks[0] == tick

    def cancel(self, timed: Timed) -> None:
        """Forget the deadline and the object."""
        timed.due = NEVER
        if timed.tick:
            self._take_out(timed)

    def _take_out(self, timed: Timed) -> None:
        bucket = self._buckets.get(timed.tick)
        if bucket is not None:
            bucket.discard(timed)
        timed.tick = 0

    def next_due(self) -> float | None:
        """The moment at which `expire` has something to do (seconds), None when there is none."""
        if self._due:
            return 0.0
        return self._ticks[0] / self._scale if self._ticks else None

    def expire(self, now: float) -> None:
        """Fire what is due, in the order of the deadlines."""
        limit = math.floor(now * self._scale + _FUZZ)
        slack = now + 2 * _FUZZ / self._scale
        ripe: list[Timed] = []
        while self._ticks and self._ticks[0] <= limit:
            for timed in self._buckets.pop(heapq.heappop(self._ticks)):
                timed.tick = 0
                if timed.due <= slack:
                    ripe.append(timed)
                elif timed.due != NEVER:
                    self.schedule(timed, timed.due, now)
        ripe.sort(key=_due)
        # Kept in the wheel while they fire: what a KeyboardInterrupt leaves behind fires the next time.
        waiting = self._due
        waiting.extend(ripe)
        while waiting:
            timed = waiting.popleft()
            if timed.tick or timed.due > slack:
                continue  # moved or cancelled by one that fired before it
            timed.due = NEVER
            try:
                timed.expired()
            except Exception as error:  # noqa: BLE001 - one owner's fault must not stop another's deadline
                self._report(error, timed)


def _due(timed: Timed) -> float:
    return timed.due


class Clock:
    """Time of one loop.

    now: monotonic seconds. wall_ns: nanoseconds since 1970, for timestamps only.
    """

    __slots__ = ("_handle", "_loop", "_wake_at", "_wheel", "now", "wall_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now: Callable[[], float] = time.monotonic
        self.wall_ns: Callable[[], int] = time.time_ns
        self._loop = loop
        self._wheel = Wheel(TICK, self._report)
        self._handle: asyncio.TimerHandle | None = None
        self._wake_at = NEVER

    def schedule(self, timed: Timed, seconds: float) -> None:
        """Let `timed.expired()` be called in `seconds`; an earlier deadline of the same object is replaced."""
        now = self.now()
        if self._wheel.schedule(timed, now + seconds, now):
            self._arm()

    def suspend(self, timed: Timed) -> None:
        """Switch the deadline off for a while: the cheapest way when it will be scheduled again soon."""
        timed.due = NEVER

    def cancel(self, timed: Timed) -> None:
        """Switch the deadline off for good: the clock keeps no reference to the object."""
        self._wheel.cancel(timed)

    def deadline(self, seconds: float, callback: Callable[..., object], *args: Any) -> Deadline:
        """Call `callback(*args)` in `seconds`, at most 10 ms late."""
        deadline = Deadline(self, callback, args)
        self.schedule(deadline, seconds)
        return deadline

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds`, as exactly as the loop can (a millisecond on uvloop)."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None, message: str = "timed out") -> TimeLimit:
        """`async with clock.timeout(2.0):` raises errors.Timeout when the body takes longer. None: no limit."""
        return TimeLimit(self, seconds, message)

    def _arm(self) -> None:
        due = self._wheel.next_due()
        if due is None or due >= self._wake_at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._wake_at = due
        # A millisecond more: loops round to milliseconds, and a wake-up too early is one for nothing.
        self._handle = self._loop.call_later(max(due - self.now(), 0.0) + 0.001, self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._wake_at = NEVER
        try:
            self._wheel.expire(self.now())
        finally:
            self._arm()

    def _report(self, error: Exception, timed: Timed) -> None:
        self._loop.call_exception_handler({"message": f"deadline of {timed!r} failed", "exception": error})


class Waiter(Timed):
    """A future with a deadline: what a wait for a socket waits on. `call`: the system call, for the text."""

    __slots__ = ("_call", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: str) -> None:
        self.due = NEVER
        self.tick = 0
        self._call = call
        self.future: asyncio.Future[None] = loop.create_future()

    def wake(self, error: BaseException | None = None) -> None:
        """End the wait, with the error when there is one."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)

    def expired(self) -> None:
        """End the wait with errors.Timeout."""
        self.wake(timed_out(self._call))


class TimeLimit(Timed):
    """The context manager of `Clock.timeout`; the same rules as asyncio.timeout, with errors.Timeout."""

    __slots__ = ("_cancelling", "_clock", "_message", "_seconds", "_task", "fired")

    def __init__(self, clock: Clock, seconds: float | None, message: str) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds
        self._message = message
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self.fired = False

    def expired(self) -> None:
        """End the body."""
        self.fired = True
        if self._task is not None:
            self._task.cancel()

    async def __aenter__(self) -> TimeLimit:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a timeout needs a task")
        self._cancelling = self._task.cancelling()
        if self._seconds is not None:
            self._clock.schedule(self, self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clock.cancel(self)
        task, self._task = self._task, None
        # When somebody else cancelled the task too, their wish comes first.
        if (
            self.fired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise errors.Timeout(self._message) from error
