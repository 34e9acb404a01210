"""Labels, filters, @ERROR, @FLUENT_LOG and the cache of routes."""

from __future__ import annotations

import pytest

from headrace.errors import BufferOverflow, Unrecoverable
from headrace.pipeline.event import Batch, derived_id
from headrace.pipeline.logevents import BURST, INTERVAL
from headrace.pipeline.plugin import Filter, Output
from headrace.pipeline.router import CACHE_SIZE
from headrace.testing.pipelines import Direct, Kit, Script


class Relabel(Output):
    """Sends everything to a label."""

    name = "to_label"

    def provision(self, context):
        self._router = context.label("@OTHER")

    def process(self, tag, batch):
        return self._router.emit(tag, batch)


async def test_the_first_match_wins_and_filters_before_it_count():
    kit = await Kit("""
<match a>
  @type direct
</match>
<filter b c>
  @type drop_odd
</filter>
<match b>
  @type direct
</match>
<filter **>
  @type drop_odd
</filter>
<match **>
  @type direct
</match>
""").start()
    for tag in "abc":
        await kit.emit(tag, {"n": 1}, {"n": 2})
    assert [record["n"] for _tag, _time, record in kit.of(Direct, 0).events] == [1, 2]
    assert [record["n"] for _tag, _time, record in kit.of(Direct, 1).events] == [2]
    assert [tag for tag, _time, record in kit.of(Direct, 2).events] == ["c"]
    await kit.stop()


async def test_tags_without_a_match_are_counted_and_rarely_logged(caplog):
    kit = await Kit("<match a>\n@type direct\n</match>").start()
    for number in range(1000):
        await kit.emit(f"b{number}", {"n": 1})
    assert kit.pipeline.router.unmatched == 1000
    assert sum("no patterns matched" in line for line in caplog.messages) < 5
    await kit.stop()


async def test_the_cache_of_routes_is_bounded_and_right():
    kit = await Kit("<match a.**>\n@type direct\n</match>\n<match **>\n@type direct\n</match>").start()
    router = kit.pipeline.router
    for number in range(5 * CACHE_SIZE):
        router.emit(f"{'ab'[number % 2]}.{number}", Batch.one(0, {"n": number}))
        assert len(router._hot) + len(router._cold) <= 2 * CACHE_SIZE
    assert len(kit.of(Direct, 0).events) == len(kit.of(Direct, 1).events) == 5 * CACHE_SIZE / 2
    await kit.stop()


ERROR = """
<filter f.**>
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


async def test_rejected_records_go_to_error():
    kit = await Kit(ERROR).start()
    await kit.emit("f.x", {"n": 2}, {"bad": 1}, {"n": 4})
    error, plain = kit.of(Direct, 0), kit.of(Direct, 1)
    assert [record for _tag, _time, record in error.events] == [{"bad": 1}]
    assert [record["n"] for _tag, _time, record in plain.events] == [2, 4]
    await kit.stop()


async def test_an_output_that_fails_sends_its_batch_to_error_and_error_is_final(caplog):
    kit = await Kit(ERROR).start()
    error, plain = kit.of(Direct, 0), kit.of(Direct, 1)
    plain.error = RuntimeError("broken")
    await kit.emit("t", {"n": 1}, {"n": 2})
    assert len(error.events) == 2
    error.error = RuntimeError("broken too")
    await kit.emit("t", {"n": 3})
    assert kit.pipeline.stats()["error_events_lost"] == 1
    assert sum("final" in line for line in caplog.messages) == 1
    await kit.stop()


async def test_without_error_label_the_source_hears_of_it():
    kit = await Kit("<match **>\n@type direct\n</match>").start()
    kit.of(Direct).error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        await kit.emit("t", {"n": 1})
    await kit.stop()


async def test_back_pressure_is_no_event():
    kit = await Kit(ERROR).start()
    kit.of(Direct, 1).error = BufferOverflow("full")
    with pytest.raises(BufferOverflow):
        await kit.emit("t", {"n": 1})
    assert kit.of(Direct, 0).events == []
    await kit.stop()


async def test_a_rejected_record_without_error_label_is_dumped_at_a_bounded_rate(caplog):
    kit = await Kit("<filter **>\n@type drop_odd\n</filter>\n<match **>\n@type direct\n</match>").start()
    for _ in range(1000):
        await kit.emit("t", {"bad": "x" * 10_000})
    lines = [line for line in caplog.messages if "dump an error event" in line]
    assert 1 <= len(lines) < 6
    assert max(map(len, lines)) < 3000
    assert kit.pipeline.stats()["error_events"] == 1000
    await kit.stop()


async def test_an_error_label_that_leads_back_to_the_failing_label_ends():
    kit = await Kit(
        """
<match **>
  @type to_label
</match>
<label @OTHER>
  <match **>
    @type direct
  </match>
</label>
<label @ERROR>
  <match **>
    @type to_label
  </match>
</label>
""",
        plugins=[Relabel],
    ).start()
    kit.of(Direct).error = RuntimeError("broken")
    await kit.emit("t", {"n": 1})
    assert kit.pipeline.stats()["error_events_lost"] == 1
    await kit.stop()


async def test_tags_of_any_bytes_are_routed():
    kit = await Kit("<match a.**>\n@type direct\n</match>\n<match **>\n@type direct\n</match>").start()
    await kit.emit(bytes.fromhex("6693a7").decode("utf-8", "surrogateescape"), {"n": 1})
    await kit.emit("a.b", {"n": 2})
    assert len(kit.of(Direct, 0).events) == len(kit.of(Direct, 1).events) == 1
    await kit.stop()


async def test_log_events():
    kit = await Kit("""
<match **>
  @type direct
</match>
<label @FLUENT_LOG>
  <match fluent.{warn,error}>
    @type direct
  </match>
</label>
""").start()
    log, plain = kit.of(Direct, 0), kit.of(Direct, 1)
    log.log.warning("water %s", "high")
    assert [(tag, record["message"]) for tag, _time, record in log.events] == [("fluent.warn", "water high")]
    log.log.info("not wanted")
    assert plain.events == []
    log.error = RuntimeError("broken")
    plain.log.error("no loop")
    await kit.stop()
    plain.log.error("stopped")
    assert len(log.events) == 1


@pytest.mark.parametrize("pattern", ["**", "fluent.**", "{a,fluent}.*"])
async def test_without_the_label_the_top_level_takes_log_events(pattern):
    kit = await Kit(f"<match {pattern}>\n@type direct\n</match>", log_events=True).start()
    kit.of(Direct).log.warning("hello")
    assert [(tag, record["message"]) for tag, _time, record in kit.of(Direct).events] == [("fluent.warn", "hello")]
    await kit.stop()


async def test_tags_that_nothing_takes_make_no_events():
    kit = await Kit("<match fluent.warn>\n@type direct\n</match>", log_events=True).start()
    kit.of(Direct).log.error("hello")
    kit.of(Direct).log.warning("hello")
    assert len(kit.of(Direct).events) == 1
    assert kit.pipeline.router.unmatched == 0
    await kit.stop()


async def test_the_lines_about_an_output_that_fails_do_not_multiply():
    text = "<match **>\n@type script\n<buffer>\nflush_mode immediate\nchunk_limit_records 1\n</buffer>\n</match>"
    kit = await Kit(text, plugins=[Script], log_events=True).start()
    kit.script.then = Unrecoverable("never")
    await kit.emit("a", {"n": 1})
    await kit.clock.elapse(600)
    tries = len(kit.script.tries)
    assert 1 < tries <= 1 + BURST + 600 / INTERVAL + 1
    await kit.clock.elapse(600)
    assert len(kit.script.tries) - tries <= 600 / INTERVAL + 1
    kit.script.then = None
    await kit.stop()


async def test_log_events_wait_for_room_in_bounded_number():
    text = (
        "<match **>\n@type script\n<buffer>\nflush_interval 1000\ntotal_limit_size 300\noverflow_action block\n"
        "</buffer>\n</match>"
    )
    kit = await Kit(text, plugins=[Script], log_events=True).start()
    for number in range(60):
        kit.pipeline.context.log.getChild(f"p{number}").warning("w")
    await kit.work()
    assert kit.pipeline.stats()["log_events_lost"] > 0
    await kit.stop()


class Holding(Filter):
    """Keeps a batch back until the next one comes."""

    name = "holding"
    stateful = True

    def filter_batch(self, tag, batch):
        return batch


class Idle(Output):
    """Keeps the ids of batches."""

    name = "idle"

    def process(self, tag, batch):
        vars(self).setdefault("ids", []).append(batch.id)


async def test_what_a_stateful_filter_lets_through_has_no_id():
    text = """
<match **>
@type copy
<store>
@type relabel
@label @HOLD
</store>
<store>
@type idle
</store>
</match>
<label @HOLD>
<filter **>
@type holding
</filter>
<match **>
@type idle
</match>
</label>
"""
    kit = await Kit(text, plugins=[Holding, Idle]).start()
    batch = Batch.of([(1, {"n": 1})])
    batch.id = b"name"
    kit.pipeline.router.emit("t", batch)
    ids = sorted(plugin.ids[0] or b"" for plugin in kit.pipeline.plugins if isinstance(plugin, Idle))
    assert ids == [b"", derived_id(b"name", b"copy 1")]
    assert batch.id == b"name"
    await kit.stop()


async def test_who_comes_first_on_the_way_of_a_tag_looks_into_its_events_or_not(tmp_path):
    """A filter, and a buffer whose chunks are text or depend on a field; not one that keeps what came."""
    kit = Kit(f"""
        <filter filtered>
          @type grep
        </filter>
        <match filtered direct>
          @type null
        </match>
        <match text>
          @type file
          path {tmp_path}/text
        </match>
        <match packed>
          @type null
          <buffer tag>
            @type memory
          </buffer>
        </match>
        <match field>
          @type null
          <buffer name>
            @type memory
          </buffer>
        </match>
    """)
    await kit.start()
    looks = kit.pipeline.router.looks_into
    found = {tag: looks(tag) for tag in ("filtered", "direct", "text", "packed", "field", "nobody")}
    assert found == dict.fromkeys(found, False) | {"filtered": True, "text": True, "field": True}
    await kit.stop()
