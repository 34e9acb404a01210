"""The wheel: never early, in order, cheap to move; virtual time behaves like real time."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import errors
from headrace.core.clock import NEVER, TICK, Clock, Timed, Wheel
from headrace.testing.clock import FakeClock, settle


class Note(Timed):
    __slots__ = ("log", "name")

    def __init__(self, name, log):
        super().__init__()
        self.name = name
        self.log = log

    def expired(self):
        self.log.append(self.name)


def wheel():
    failures = []
    return Wheel(TICK, lambda error, _timed: failures.append(error)), failures


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=30))
def test_each_fires_once_never_early_and_at_most_a_tick_late(moves):
    turning, _ = wheel()
    log: list[int] = []
    notes = [Note(i, log) for i in range(len(moves))]
    for note, (first, _) in zip(notes, moves, strict=True):
        turning.schedule(note, 1000 + first, 1000.0)
    for note, (_, second) in zip(notes, moves, strict=True):
        turning.schedule(note, 1000 + second, 1000.0)
    due = {note.name: 1000 + second for note, (_, second) in zip(notes, moves, strict=True)}
    fired: dict[int, float] = {}
    now = 1000.0
    while (at := turning.next_due()) is not None:
        now = max(now, at)
        log.clear()
        turning.expire(now)
        for name in log:
            assert name not in fired
            fired[name] = now
    assert set(fired) == set(due)
    for name, when in fired.items():
        assert due[name] - 1e-5 <= when <= due[name] + TICK + 1e-5


def test_moving_to_a_later_moment_touches_no_bucket():
    turning, _ = wheel()
    note = Note("a", [])
    turning.schedule(note, 1005.0, 1000.0)
    tick = note.tick
    for step in range(1000):
        assert not turning.schedule(note, 1006.0 + step, 1000.0)
        assert note.tick == tick
    turning.expire(1005.1)
    assert note.log == []
    assert note.tick > tick  # filed again, by the moment it was moved to


def test_moving_to_an_earlier_moment_takes_effect():
    turning, _ = wheel()
    note = Note("a", [])
    turning.schedule(note, 1060.0, 1000.0)
    assert turning.schedule(note, 1000.5, 1000.0)
    turning.expire(1000.51)
    assert note.log == ["a"]
    turning.expire(1100.0)
    assert note.log == ["a"]


def test_ten_thousand_far_deadlines_share_a_few_buckets():
    turning, _ = wheel()
    notes = [Note(i, []) for i in range(10_000)]
    for note in notes:
        turning.schedule(note, 1060.0 + note.name / 1000, 1000.0)
    assert len({note.tick for note in notes}) < 10


def test_a_cancelled_object_is_forgotten():
    turning, _ = wheel()
    note = Note("a", [])
    turning.schedule(note, 1001.0, 1000.0)
    turning.cancel(note)
    assert (note.due, note.tick) == (NEVER, 0)
    turning.expire(1002.0)
    assert note.log == []


def test_one_that_fires_may_cancel_and_move_the_others():
    turning, _ = wheel()
    log: list[str] = []
    second, third = Note("second", log), Note("third", log)

    class First(Note):
        def expired(self):
            super().expired()
            turning.cancel(second)
            turning.schedule(third, 1005.0, 1001.0)

    for offset, note in enumerate((First("first", log), second, third)):
        turning.schedule(note, 1000.5 + offset / 1000, 1000.0)
    turning.expire(1001.0)
    assert log == ["first"]
    turning.expire(1006.0)
    assert log == ["first", "third"]


def test_an_exception_does_not_stop_the_others_and_an_interrupt_loses_none():
    turning, failures = wheel()
    log: list[str] = []

    class Bad(Note):
        def expired(self):
            raise ValueError(self.name)

    class Interrupt(Note):
        def expired(self):
            raise KeyboardInterrupt

    for note in (Bad("bad", log), Interrupt("stop", log), Note("good", log)):
        turning.schedule(note, 1000.5, 1000.0)
    with pytest.raises(KeyboardInterrupt):
        turning.expire(1001.0)
    assert turning.next_due() == 0.0 or log == ["good"]
    turning.expire(1001.0)
    assert log == ["good"]
    assert len(failures) == 1


def test_deadlines_of_virtual_time_fire_in_their_own_moment():
    clock = FakeClock(start=50.0)
    seen = []
    clock.deadline(2.0, lambda: seen.append(("b", clock.now())))
    clock.deadline(1.0, lambda: seen.append(("a", clock.now())))
    moved = clock.deadline(1.5, lambda: seen.append(("moved", clock.now())))
    gone = clock.deadline(1.2, lambda: seen.append(("gone", clock.now())))
    clock.advance(1.0)
    moved.reschedule(5.0)
    gone.cancel()
    assert not gone.active
    clock.advance(10.0)
    assert [name for name, _ in seen] == ["a", "b", "moved"]
    assert [when for _, when in seen] == pytest.approx([51.0, 52.0, 56.0])
    assert clock.now() == 61.0


def test_wall_time_moves_with_virtual_time():
    clock = FakeClock(wall=1_000)
    clock.advance(2.5)
    assert clock.wall_ns() == 1_000 + 2_500_000_000


def test_advance_raises_what_a_deadline_raised():
    clock = FakeClock()
    clock.deadline(1.0, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clock.advance(2.0)


async def test_sleep_and_timeout_in_virtual_time():
    clock = FakeClock()
    order = []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        order.append(seconds)

    async def limited():
        with pytest.raises(errors.Timeout):
            async with clock.timeout(2.0):
                await clock.sleep(100.0)
        order.append("late")

    tasks = [asyncio.ensure_future(task) for task in (sleeper(3.0), limited(), sleeper(1.0))]
    await clock.elapse(5.0)
    assert order == [1.0, "late", 3.0]
    await asyncio.gather(*tasks)


async def test_a_timeout_that_is_not_reached_and_one_without_limit_do_nothing():
    clock = FakeClock()
    async with clock.timeout(2.0):
        await asyncio.sleep(0)
    async with clock.timeout(None):
        await asyncio.sleep(0)
    clock.advance(10.0)
    await settle()


async def test_a_cancel_from_outside_stays_a_cancel():
    clock = FakeClock()

    async def limited():
        async with clock.timeout(2.0):
            await clock.sleep(100.0)

    task = asyncio.ensure_future(limited())
    await settle()
    task.cancel()
    clock.advance(3.0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_real_time_fires_and_an_earlier_deadline_wakes_the_loop_earlier():
    clock = Clock(asyncio.get_running_loop())
    fired = asyncio.Event()
    order = []
    before = clock.now()
    clock.deadline(60.0, order.append, "far")
    clock.deadline(0.05, lambda: (order.append("near"), fired.set()))
    clock.deadline(0.02, order.append, "nearer")
    await asyncio.wait_for(fired.wait(), 30)
    assert clock.now() - before >= 0.05  # never early; how late it is depends on the machine
    assert order == ["nearer", "near"]
    await clock.sleep(0.0)
