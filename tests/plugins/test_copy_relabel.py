"""Outputs copy and relabel: every store has its own errors, and events do not go round."""

import asyncio
import logging

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch, derived_id
from headrace.pipeline.plugin import Output
from headrace.plugins.out_copy import CopyOutput
from headrace.testing.pipelines import Kit, settle


class Store(Output):
    """Takes, fails or waits as a test says; changes what it took when it is told to."""

    name = "store"

    def __init__(self):
        self.records = []
        self.ids = []
        self.error = None
        self.future = None

    def process(self, tag, batch):
        if self.error is not None:
            raise self.error
        self.records += [record for _, record in batch.events()]
        self.ids.append(batch.id)
        return self.future


def conf(*stores, lines=""):
    sections = "\n".join(f"<store {argument}>\n@type store\n</store>" for argument in stores)
    return f"<match **>\n@type copy\n{lines}\n{sections}\n</match>"


async def start(*stores, lines=""):
    kit = await Kit(conf(*stores, lines=lines), plugins=[Store]).start()
    return kit, [kit.of(Store, number) for number in range(len(stores))]


async def test_every_store_gets_the_same_records():
    kit, (first, second) = await start("", "")
    record = {"a": {"b": 1}}
    await kit.emit("t", record)
    assert first.records[0] is second.records[0] is record
    await kit.stop()


@pytest.mark.parametrize(
    ("lines", "outer", "inner"),
    [
        ("copy_mode shallow", False, True),
        ("deep_copy true", False, True),
        ("copy_mode deep", False, False),
        ("copy_mode marshal", False, False),
    ],
)
async def test_copies(lines, outer, inner):
    kit, (first, second) = await start("", "", lines=lines)
    record = {"a": {"b": 1}, 2: 1 << 80, "bad": "\udcff"}
    batch = Batch.of([(1, record)])
    batch.id = b"name"
    kit.pipeline.router.emit("t", batch)
    assert first.records == second.records == [record]
    assert (first.records[0] is second.records[0]) is outer
    assert (first.records[0]["a"] is second.records[0]["a"]) is inner
    assert first.ids == [b"name"]
    assert second.ids == [derived_id(b"name", b"copy 1")]
    await kit.stop()


async def test_a_store_that_fails_keeps_no_other_from_its_events():
    kit, (first, second, third) = await start("", "ignore_error", "")
    first.error = BufferOverflow("full")
    second.error = RuntimeError("ignored")
    with pytest.raises(BufferOverflow):
        kit.offer("t", {"a": 1})
    assert third.records == [{"a": 1}]
    await kit.stop()


async def test_an_ignored_error_is_logged_and_counted(caplog):
    caplog.set_level(logging.ERROR)
    kit, (first, second) = await start("ignore_error", "")
    first.error = RuntimeError("broken")
    await kit.emit("t", {"a": 1})
    assert second.records == [{"a": 1}]
    assert "ignore emit error" in caplog.text
    assert list(kit.of(CopyOutput).stats()["ignored"].values()) == [1, 0]
    await kit.stop()


async def test_stores_that_have_not_answered_hold_no_other_up_and_are_waited_for():
    kit, (first, second, third) = await start("", "", "")
    first.future, second.future = asyncio.Future(), asyncio.Future()
    waiting = asyncio.ensure_future(kit.offer("t", {"a": 1}))
    await settle()
    assert third.records == [{"a": 1}]
    second.future.set_result(None)
    await settle()
    assert not waiting.done()
    first.future.set_exception(BufferOverflow("full"))
    await settle()
    with pytest.raises(BufferOverflow):
        await waiting
    await kit.stop()


async def test_a_fallback_gets_what_the_store_before_refused():
    kit, (first, second, third) = await start("ignore_error", "ignore_if_prev_success ignore_error", "")
    await kit.emit("t", {"n": 1})
    assert (len(first.records), len(second.records), len(third.records)) == (1, 0, 1)
    first.error = RuntimeError("down")
    await kit.emit("t", {"n": 2})
    assert (len(first.records), len(second.records), len(third.records)) == (1, 1, 2)
    await kit.stop()


@pytest.mark.parametrize("fails", [True, False])
async def test_a_fallback_waits_for_the_answer_of_the_store_before(fails):
    kit, (first, second, third) = await start("ignore_error", "ignore_if_prev_success", "")
    first.future = asyncio.Future()
    waiting = asyncio.ensure_future(kit.offer("t", {"n": 1}))
    await settle()
    assert not second.records
    if fails:
        first.future.set_exception(BufferOverflow("full"))
    else:
        first.future.set_result(None)
    await waiting
    assert len(second.records) == fails
    assert len(third.records) == 1
    await kit.stop()


async def test_a_dead_branch_does_not_delay_the_other():
    """One store is a black hole with a full retry queue, the other delivers within its interval."""
    text = """
    <match **>
      @type copy
      <store>
        @type null
        never_flush true
        <buffer>
          flush_interval 1s
        </buffer>
      </store>
      <store>
        @type script
        <buffer>
          flush_interval 1s
        </buffer>
      </store>
    </match>
    """
    kit = await Kit(text).start()
    for number in range(20):
        await kit.emit("t", {"n": number})
        await kit.clock.elapse(1.05)
        assert kit.script.got[-1] == {"n": number}
    await kit.stop()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (conf("ignore_if_prev_success"), "no meaning in the first <store>"),
        (conf("ignore_errors"), 'cannot be told "ignore_errors"'),
        ("<match **>\n@type copy\n</match>", "a <store> section is required"),
        ("<match **>\n@type copy\n<store>\n</store>\n</match>", "needs an @type"),
        ("<match **>\n@type relabel\n</match>", '"@label" is required'),
        ("<match **>\n@type relabel\n@label @NO\n</match>", 'label "@NO" is not defined'),
        ("<match **>\n@type relabel\n@label @ROOT\n</match>", "round for ever"),
    ],
)
def test_what_is_refused(text, message):
    kit = Kit(text, plugins=[Store])
    assert any(message in error for error in kit.errors), kit.errors


def test_ignoring_every_error_is_doubtful():
    assert "lost" in str(Kit(conf("ignore_error", "ignore_error"), plugins=[Store]).problems.warnings[0])


async def test_relabel():
    text = """
    <match **>
      @type relabel
      @label @L
    </match>
    <label @L>
      <match **>
        @type store
      </match>
    </label>
    """
    kit = await Kit(text, plugins=[Store]).start()
    await kit.emit("t", {"a": 1})
    assert kit.of(Store).records == [{"a": 1}]
    await kit.stop()


def circle(pattern="**", inner="", back="@A"):
    return f"""
    <match {pattern}>
      @type copy
      <store>
        @type relabel
        @label @A
      </store>
      <store>
        @type store
      </store>
    </match>
    <match **>
      @type store
    </match>
    <label @A>
      <match **>
        @type relabel
        @label @B
      </match>
    </label>
    <label @B>
      {inner}
      <match {pattern}>
        @type relabel
        @label {back}
      </match>
      <match **>
        @type store
      </match>
    </label>
    """


@pytest.mark.parametrize("pattern", ["**", "a.b", "x a.b"])
def test_labels_in_a_circle_are_refused(pattern):
    for back in ("@A", "@ROOT"):
        kit = Kit(circle(pattern, back=back), plugins=[Store])
        assert len(kit.errors) == 1, kit.errors
        assert "round for ever" in kit.errors[0]
        assert "relabel" not in kit.errors[0]


def test_a_filter_may_end_a_circle():
    kit = Kit(
        circle(inner="<filter **>\n@type grep\n<exclude>\nkey a\npattern b\n</exclude>\n</filter>"), plugins=[Store]
    )
    assert not kit.errors
    assert any("round for ever" in str(warning) for warning in kit.problems.warnings)


async def test_events_that_go_round_are_told_of(caplog):
    kit = Kit(circle(inner="<filter **>\n@type stdout\n</filter>"), plugins=[Store])
    await kit.start()
    with caplog.at_level(logging.WARNING), pytest.raises(RecursionError):
        await kit.emit("t", {"a": 1})
    assert "emit transaction failed" in caplog.text
    await kit.stop()
