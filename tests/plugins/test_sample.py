"""Source sample: how many events in which time, and what they are."""

import asyncio
from itertools import pairwise

import pytest

from headrace.plugins.in_sample import GIVE_WAY, IDLE_TURN, LARGEST, SMALLEST, TICK, SampleInput
from headrace.testing.pipelines import Direct, Kit

TEXT = """
<source>
  @type {type}
  tag t
  {lines}
</source>
<match **>
  @type direct
</match>
"""


def kit(*lines, type_="sample"):
    return Kit(TEXT.format(type=type_, lines="\n  ".join(lines)))


async def run(seconds, *lines, type_="sample"):
    made = await kit(*lines, type_=type_).start()
    await made.clock.elapse(seconds)
    await made.stop()
    return made


async def test_one_event_a_second_by_default():
    made = await run(2.5)
    events = made.of(Direct).events
    assert [record for _, _, record in events] == [{"message": "sample"}] * 3
    times = [time for _, time, _ in events]
    assert [later - sooner for sooner, later in pairwise(times)] == [10**9] * 2


@pytest.mark.parametrize("rate", [1, 3, 100, 250, 5000, 99_999])
async def test_the_rate_is_exact(rate):
    made = await run(1.999999, f"rate {rate}")
    late = 2 * rate - len(made.of(Direct).events)
    assert 0 <= late <= rate * TICK  # what the last tick has not emitted yet


async def test_size_multiplies():
    made = await run(0.95, "rate 10", "size 3")
    assert len(made.of(Direct).events) == 30


async def test_an_array_is_cycled_across_batches_and_counted():
    made = await run(0.1, "rate 50", 'sample [{"a":1},{"b":2},{"c":3}]', "auto_increment_key id")
    records = [record for _, _, record in made.of(Direct).events]
    assert records[:4] == [{"a": 1, "id": 0}, {"b": 2, "id": 1}, {"c": 3, "id": 2}, {"a": 1, "id": 3}]
    assert [record["id"] for record in records] == list(range(len(records)))


async def test_the_old_names():
    made = await run(0.1, 'dummy {"x":"y"}', type_="dummy")
    assert [record for _, _, record in made.of(Direct).events] == [{"x": "y"}]


@pytest.mark.parametrize(("reuse", "same"), [("true", True), ("false", False)])
async def test_reuse_record(reuse, same):
    made = await run(1.5, f"reuse_record {reuse}")
    (_, _, first), (_, _, second) = made.of(Direct).events
    assert (first is second) is same


async def test_a_loop_that_was_held_up_makes_up_for_one_second_only():
    made = await kit("rate 100").start()
    await made.clock.elapse(0.995)
    made.clock._time += 10.0  # nothing ran meanwhile
    await made.clock.elapse(0.0001)
    assert len(made.of(Direct).events) == 200
    assert made.of(SampleInput).stats()["skipped"] == pytest.approx(900, abs=1)
    await made.stop()


class Costly(Direct):
    """Each event takes `cost` seconds of the loop."""

    name = "costly"
    cost = 0.0

    def process(self, tag, batch):
        self.context.clock._time += self.cost * batch.count
        self.batches = [*getattr(self, "batches", []), batch.count]


@pytest.mark.parametrize(("cost", "least", "most"), [(0.0, LARGEST, LARGEST), (1e-5, SMALLEST, 31), (1e-3, 16, 16)])
async def test_batches_are_as_large_as_a_slice_allows(cost, least, most):
    made = await Kit(
        TEXT.format(type="sample", lines="rate 9999").replace("direct", "costly"), plugins=[Costly]
    ).start()
    made.of(Costly).cost = cost
    await made.clock.elapse(1.0)
    sizes = [count for count in made.of(Costly).batches if count != 1]
    full = sizes[4:] if cost else sizes
    assert max(full) <= most
    assert max(full) >= min(least, 99)
    await made.stop()


async def test_whoever_delivers_gets_the_loop_for_several_times_as_long():
    made = await kit("rate 1").start()
    source, turns = made.of(SampleInput), 0

    async def deliver(seconds):
        nonlocal turns
        while True:
            made.clock._time += seconds
            turns += 1
            await asyncio.sleep(0)

    for seconds, least, most in ((1e-4, GIVE_WAY * 10, GIVE_WAY * 10 + 2), (IDLE_TURN / 2, 1, 2)):
        turns = 0
        busy = asyncio.create_task(deliver(seconds))
        await source._give_way(1e-3)
        busy.cancel()
        assert least - 1 <= turns <= most
    await made.stop()


async def test_packed_and_unpacked_forms_agree():
    made = await kit('sample [{"a":1},{"b":"x"}]').start()
    batch = made.of(SampleInput)._batch(5)
    assert batch.is_packed
    assert type(batch).from_packed(batch.packed()).events() == list(batch.events())
    await made.stop()


async def test_an_output_that_fails_does_not_end_the_source():
    made = await kit("rate 1").start()
    made.of(Direct).error = RuntimeError("no")
    await made.clock.elapse(2.5)
    made.of(Direct).error = None
    await made.clock.elapse(1)
    assert len(made.of(Direct).events) == 1
    assert made.of(SampleInput).stats() == {"emitted": 1, "refused": 3, "skipped": 0}
    await made.stop()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sample 3", "element 0 of sample, 3, is not a hash"),
        ('sample [{"a":1},2]', "element 1 of sample, 2, is not a hash"),
        ('sample "{"', "invalid JSON"),
        ("rate 0", '"rate" must be at least 1'),
        ("size 0", '"size" must be at least 1'),
    ],
)
def test_what_is_refused(line, message):
    assert any(message in error for error in kit(line).errors), kit(line).errors


def test_suspend_has_no_effect_and_says_so():
    made = kit("suspend true")
    assert not made.errors
    assert "suspend" in str(made.problems.warnings[0])
