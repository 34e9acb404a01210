"""Filters that have to wait: order, errors, back-pressure, and no cost where nobody waits."""

import asyncio

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Filter
from headrace.testing.pipelines import Direct, Kit, TransientError, settle


class Ask(Filter):
    """Waits for `answers[n]` where there is one."""

    name = "ask"
    waits = True

    def __init__(self):
        self.answers = {}
        self.calls = []

    def filter_later(self, tag, batch):
        number = batch.events()[0][1]["n"]
        self.calls.append(number)
        answer = self.answers.get(number)
        if answer is None:
            return batch
        return self._later(batch, answer)

    async def _later(self, batch, answer):
        added = await answer
        return Batch.of([(time, {**record, "added": added}) for time, record in batch.events() if added != "drop"])


CONF = """
<filter **>
  @type ask
</filter>
<filter **>
  @type drop_odd
</filter>
<match **>
  @type direct
</match>
<label @ERROR>
  <match **>
    @type direct
  </match>
</label>
"""


@pytest.fixture
async def kit():
    kit = await Kit(CONF, plugins=[Ask]).start()
    yield kit
    await kit.stop()


def later():
    return asyncio.get_running_loop().create_future()


def outputs(kit):
    """Those of @ERROR and of the top level."""
    return kit.of(Direct, 0), kit.of(Direct, 1)


def numbers(direct):
    return [(tag, record["n"]) for tag, _, record in direct.events]


async def test_nobody_waits_where_nothing_is_to_be_asked(kit):
    assert kit.offer("a", {"n": 2}) is None
    assert numbers(outputs(kit)[1]) == [("a", 2)]


async def test_order_within_a_tag_and_none_between_tags(kit):
    ask, (_, direct) = kit.of(Ask), outputs(kit)
    first = ask.answers[0] = later()
    third = ask.answers[4] = later()
    waiting = [kit.offer("a", {"n": n}) for n in (0, 2, 4, 6)]
    assert None not in waiting
    assert kit.offer("b", {"n": 8}) is None
    await settle()
    assert numbers(direct) == [("b", 8)]
    assert not any(future.done() for future in waiting)
    third.set_result("x")
    await settle()
    assert numbers(direct) == [("b", 8)]
    first.set_result("y")
    await settle()
    assert numbers(direct) == [("b", 8), ("a", 0), ("a", 2), ("a", 4), ("a", 6)]
    assert all(future.done() and future.result() is None for future in waiting)
    assert direct.events[1][2]["added"] == "y"
    assert kit.offer("a", {"n": 10}) is None  # the line is gone


async def test_filters_behind_it_and_batches_that_are_dropped(kit):
    ask, (_, direct) = kit.of(Ask), outputs(kit)
    for number in (0, 1):
        ask.answers[number] = later()
    waiting = [kit.offer("a", {"n": n}) for n in (0, 1)]
    ask.answers[0].set_result("drop")
    ask.answers[1].set_result("x")
    await asyncio.gather(*waiting)
    assert direct.events == []


async def test_an_error_of_the_question_goes_to_the_error_label_and_holds_up_nobody(kit):
    ask, (errors, direct) = kit.of(Ask), outputs(kit)
    failing = ask.answers[0] = later()
    waiting = [kit.offer("a", {"n": 0}), kit.offer("a", {"n": 2})]
    failing.set_exception(ValueError("no"))
    await asyncio.gather(*waiting)
    assert numbers(errors) == [("a", 0)]
    assert numbers(direct) == [("a", 2)]


async def test_overflow_goes_back_to_whoever_emitted(kit):
    ask, (_, direct) = kit.of(Ask), outputs(kit)
    answer = ask.answers[0] = later()
    waiting = [kit.offer("a", {"n": 0}), kit.offer("a", {"n": 2})]
    direct.error = BufferOverflow("full")
    answer.set_result("x")
    for outcome in waiting:
        with pytest.raises(BufferOverflow):
            await outcome
    direct.error = TransientError("down")
    ask.answers[4] = later()
    outcome = kit.offer("a", {"n": 4})
    ask.answers[4].set_result("x")
    await outcome
    assert numbers(outputs(kit)[0]) == [("a", 4)]


async def test_the_name_of_a_batch_stays(kit):
    ask = kit.of(Ask)
    answer = ask.answers[0] = later()
    batch = Batch.one(1, {"n": 0})
    batch.id = b"name"
    seen = []
    outputs(kit)[1].process = lambda tag, batch: seen.append(batch.id)
    kit.pipeline.router._forget()
    waiting = kit.pipeline.router.emit("a", batch)
    answer.set_result("x")
    await waiting
    assert seen == [b"name"]
