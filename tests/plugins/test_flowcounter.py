"""flowcounter_simple, output and filter: the lines in the log."""

import logging

import pytest

from headrace.pipeline.event import pack_value
from headrace.testing.clock import FakeClock
from headrace.testing.pipelines import Direct, Kit

WHOLE_MINUTE = 1_699_999_980_000_000_000


def lines(caplog):
    return [text for text in caplog.messages if text.startswith("plugin:")]


@pytest.fixture(autouse=True)
def at_info(caplog):
    caplog.set_level(logging.INFO)


async def start(parameters=""):
    text = f"<match **>\n@type flowcounter_simple\n{parameters}\n</match>"
    return await Kit(text, clock=FakeClock(wall=WHOLE_MINUTE)).start()


async def test_a_line_for_each_second_with_events(caplog):
    kit = await start("unit second")
    await kit.emit("t", {"a": 1}, {"a": 2})
    await kit.clock.elapse(1)
    await kit.clock.elapse(3)
    await kit.emit("t", {"a": 1})
    await kit.clock.elapse(1)
    tail = "\tindicator:num\tunit:second"
    assert lines(caplog) == [f"plugin:out_flowcounter_simple\tcount:{count}{tail}" for count in (2, 1)]
    await kit.stop()


async def test_bytes_are_those_of_the_records_and_a_comment_is_added(caplog):
    kit = await start("indicator byte\ncomment here")
    await kit.emit("t", {"hello": "world"}, {})
    await kit.clock.elapse(1)
    size = len(pack_value({"hello": "world"})) + 1
    assert lines(caplog) == [f"plugin:out_flowcounter_simple\tcount:{size}\tindicator:byte\tunit:second\tcomment:here"]
    await kit.stop()


async def test_minutes_and_the_rest_at_the_end(caplog):
    kit = await start("unit minute")
    for _ in range(70):
        await kit.emit("t", {"a": 1})
        await kit.clock.elapse(1)
    await kit.stop()
    tail = "\tindicator:num\tunit:minute"
    assert lines(caplog) == [f"plugin:out_flowcounter_simple\tcount:{count}{tail}" for count in (60, 10)]


async def test_the_filter_counts_and_passes(caplog):
    kit = await Kit(
        "<filter **>\n@type flowcounter_simple\n</filter>\n<match **>\n@type direct\n</match>",
        clock=FakeClock(wall=WHOLE_MINUTE),
    ).start()
    await kit.emit("t", {"a": 1}, {"a": 2})
    await kit.clock.elapse(1)
    await kit.stop()
    assert len(kit.of(Direct).events) == 2
    assert len(lines(caplog)) == 1


def test_what_is_refused():
    kit = Kit("<match **>\n@type flowcounter_simple\nunit week\nindicator size\n</match>")
    assert len(kit.errors) == 2
