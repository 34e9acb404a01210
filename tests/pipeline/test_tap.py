"""Live events: what is seen at which side, what is left out, and that nothing stays behind."""

from __future__ import annotations

import asyncio

import msgpack
import pytest

from headrace.errors import Error
from headrace.pipeline import tap as taps
from headrace.pipeline.event import Batch, unpack_events
from headrace.testing.pipelines import Kit, Script

CONF = """
<filter a.**>
  @type drop_odd
  @id even
</filter>
<match a.copy>
  @type copy
  <store>
    @type direct
    @id one
  </store>
  <store>
    @type script
    @id two
    <buffer tag>
      flush_mode immediate
    </buffer>
  </store>
</match>
<match a.**>
  @type direct
  @id plain
</match>
"""


def frames(data: bytes):
    stream = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape")
    stream.feed(data)
    return list(stream)


async def events(tap):
    """(component, side, tag, records) of what is ready."""
    found = frames(await tap.next())
    return [
        (name, side, tag, [record for entry in entries for _time, record in unpack_events(entry)])
        for name, side, tag, entries in (frame for frame in found if isinstance(frame, list))
    ]


@pytest.fixture
async def kit():
    made = await Kit(CONF).start()
    yield made
    await made.stop()


async def test_a_filter_is_seen_on_both_sides(kit):
    after = kit.pipeline.tap("even", None)
    before = kit.pipeline.tap("drop_*", "in")
    await kit.emit("a.b", {"n": 1}, {"n": 2})
    assert await events(after) == [("even", "out", "a.b", [{"n": 2}])]
    assert await events(before) == [("even", "in", "a.b", [{"n": 1}, {"n": 2}])]
    after.close()
    before.close()


async def test_an_output_and_what_it_delivered(kit):
    given = kit.pipeline.tap("*", "in")
    delivered = kit.pipeline.tap("two", "out")
    await kit.emit("a.copy", {"n": 2})
    await kit.work()
    assert [row[0] for row in await events(given)] == ["even", "output_copy.1", "one", "two"]
    assert await events(delivered) == [("two", "out", "a.copy", [{"n": 2}])]
    given.close()
    delivered.close()


async def test_nothing_stays_behind_when_the_last_one_closes(kit):
    plugins = kit.pipeline.plugins
    await kit.emit("a.b", {"n": 2})  # counters of the class become the plugin's own
    await kit.emit("a.copy", {"n": 2})
    before = [dict(plugin.__dict__) for plugin in plugins]
    first, second = kit.pipeline.tap("*", None), kit.pipeline.tap("*", "out")
    assert [dict(plugin.__dict__) for plugin in plugins] != before
    first.close()
    await kit.emit("a.b", {"n": 2})
    assert ("even", "out", "a.b", [{"n": 2}]) in await events(second)
    second.close()
    assert [set(plugin.__dict__) for plugin in plugins] == [set(one) for one in before]
    for plugin, old in zip(plugins, before, strict=True):
        methods = {name: value for name, value in old.items() if callable(value)}
        assert all(plugin.__dict__[name] == value for name, value in methods.items())
    await kit.emit("a.b", {"n": 4})
    assert second.seen == 2  # by the filter and by the output behind it, before it closed


async def test_a_reader_that_takes_nothing_costs_a_bounded_memory_and_loses_counted_events(kit):
    tap = kit.pipeline.tap("plain", "in")
    batch = Batch.of([(1, {"n": 2, "text": "x" * 1000})] * 500)
    for _ in range(100):
        assert kit.pipeline.router.emit("a.b", batch) is None
        kit.clock.advance(1.0)
    assert tap.seen == 50_000
    data = await tap.next()
    assert len(data) <= taps.ROOM + 10_000
    assert tap.sent + tap.dropped == tap.seen
    assert 0 < tap.sent < 1100
    tap.close()


async def test_no_more_events_a_second_than_the_rate(kit):
    tap = kit.pipeline.tap("plain", "in")
    for _ in range(40):
        await kit.emit("a.b", *[{"n": 2}] * 100)
    assert (tap.sent, tap.dropped) == (taps.RATE, 3000)
    kit.clock.advance(0.5)
    await kit.emit("a.b", *[{"n": 2}] * 2000)
    assert tap.sent == taps.RATE * 1.5
    tap.close()


async def test_packed_batches_are_not_decoded(kit):
    tap = kit.pipeline.tap("output_copy.1", "in")
    batch = Batch.from_packed(Batch.of([(1, {"n": 2}), (2, {"n": 4})]).packed())
    hook = tap.points[0][0]
    hook.show("in", "t", batch)
    assert not batch.is_unpacked
    assert [row[3] for row in await events(tap)] == [[{"n": 2}, {"n": 4}]]
    tap.close()


async def test_counts_alone_copy_nothing(kit):
    tap = kit.pipeline.tap("plain", None, counts_only=True)
    await kit.emit("a.b", {"n": 2}, {"n": 4})
    (figures,) = frames(await asyncio.wait_for(tap.next(), 5))
    assert figures["points"] == [["plain", "in", 2, 1]]
    assert figures["dropped"] == 0
    tap.close()


async def test_a_glob_that_fits_nothing_names_what_there_is(kit):
    with pytest.raises(Error, match=r"there are: .*even.*plain"):
        kit.pipeline.tap("none", None)


async def test_taps_are_limited(kit):
    opened = [kit.pipeline.tap("plain", None) for _ in range(taps.TAPS)]
    with pytest.raises(Error, match="taps are open"):
        kit.pipeline.tap("plain", None)
    opened[0].close()
    kit.pipeline.tap("plain", None)


async def test_a_failed_delivery_is_not_shown_as_delivered(kit):
    tap = kit.pipeline.tap("two", "out")
    kit.of(Script).answers = [OSError("away")]
    await kit.emit("a.copy", {"n": 2})
    await kit.work()
    assert tap.seen == 0
    await kit.clock.elapse(5)
    assert tap.seen == 1
    tap.close()
