"""<label @DLQ>: what nobody takes comes there with its reason, and an error inside it is final."""

from __future__ import annotations

from typing import ClassVar

import pytest

from headrace.errors import Error
from headrace.testing.pipelines import Direct, Kit, Script, TransientError

CONF = """
<filter even.**>
  @type drop_odd
</filter>
<match **>
  @type script
  @id out
  <buffer tag>
    flush_mode immediate
    retry_wait 1
    retry_max_times 2
    retry_randomize false
  </buffer>
</match>
<label @DLQ>
  <match **>
    @type direct
    @id letters
  </match>
</label>
"""


class Text(Script):
    name: ClassVar[str] = "text"

    def format(self, tag, time, record) -> bytes:
        return b"line %d\n" % record["n"]


@pytest.fixture
def letters(tmp_path):
    return f"<system>\nroot_dir {tmp_path}\n</system>\n"


async def started(text: str, **options) -> Kit:
    return await Kit(text, plugins=[Text], **options).start()


async def test_a_chunk_that_is_given_up_comes_with_its_reason(letters, tmp_path):
    kit = await started(letters + CONF)
    kit.script.then = TransientError("away")
    await kit.emit("t.x", {"n": 1}, {"n": 2}, time=5)
    await kit.clock.elapse(30)
    got = kit.of(Direct).events
    assert [(tag, time, record["n"]) for tag, time, record in got] == [("t.x", 5, 1), ("t.x", 5, 2)]
    facts = got[0][2]["dead_letter"]
    assert facts["reason"] == "given up"
    assert facts["error"] == "TransientError: away"
    assert facts["attempts"] == 3
    assert (facts["plugin"], facts["type"], facts["label"]) == ("out", "script", "@ROOT")
    assert len(facts["chunk"]) == 32
    figures = kit.stats()
    assert figures["dropped"]["sent_to_dlq"] == 2
    assert figures["dropped"]["backed_up"] == 0
    assert figures["unaccounted"] == 0
    assert not list(tmp_path.rglob("*.log"))
    await kit.stop()


async def test_what_the_label_refuses_is_kept_in_the_store(letters, tmp_path):
    kit = await started(letters + CONF)
    kit.script.then = Error("never")
    kit.of(Direct).error = RuntimeError("no")
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(5)
    assert kit.stats()["dropped"]["backed_up"] == 1
    assert kit.stats()["dropped"]["sent_to_dlq"] == 0
    assert len(list(tmp_path.rglob("*.log"))) == 1
    await kit.stop()


async def test_a_record_that_is_refused_comes_with_its_reason(letters):
    kit = await started(letters + CONF)
    await kit.emit("even.x", {"m": 1}, {"n": 2})
    ((tag, _time, record),) = kit.of(Direct).events
    assert (tag, record["m"]) == ("even.x", 1)
    assert record["dead_letter"] == {"reason": "refused", "error": "KeyError: 'n'", "attempts": 1, "label": "@ROOT"}
    assert kit.pipeline.stats()["error_events_sent_to_dlq"] == 1
    await kit.stop()


async def test_error_events_go_to_error_first_and_what_fails_there_to_dlq(letters):
    kit = await started(
        letters + CONF + "<label @ERROR>\n<filter **>\n@type drop_odd\n</filter>\n"
        "<match **>\n@type null\n</match>\n</label>"
    )
    await kit.emit("even.x", {"m": 1})
    ((_tag, _time, record),) = kit.of(Direct).events
    assert record["dead_letter"]["label"] == "@ERROR"
    await kit.stop()


async def test_an_error_inside_the_label_is_final(letters, tmp_path):
    inside = "<label @DLQ>\n<filter **>\n@type drop_odd\n</filter>"
    kit = await started(letters + CONF.replace("<label @DLQ>", inside))
    await kit.emit("even.x", {"m": 1})
    assert kit.of(Direct).events == []
    assert kit.pipeline.stats()["error_events"] == 2
    assert kit.pipeline.stats()["error_events_kept"] == 1
    await kit.stop()


async def test_a_letter_does_not_go_round(letters, tmp_path):
    round_about = CONF.replace("@type direct\n    @id letters", "@type relabel\n    @label @ROOT")
    kit = await started(letters + round_about)
    kit.script.then = Error("never")
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(30)
    dropped = kit.stats()["dropped"]
    assert (dropped["sent_to_dlq"], dropped["backed_up"]) == (1, 1)
    assert len(kit.script.tries) == 2
    await kit.stop()


async def test_formatted_chunks_come_as_lines(letters):
    kit = await started(letters + CONF.replace("@type script", "@type text"))
    kit.of(Text).then = Error("never")
    await kit.emit("t", {"n": 1}, {"n": 2})
    await kit.clock.elapse(5)
    assert [record["message"] for _tag, _time, record in kit.of(Direct).events] == ["line 1", "line 2"]
    await kit.stop()


async def test_outputs_inside_the_label_keep_what_they_give_up(letters, tmp_path):
    inside = CONF.replace(
        "@type direct\n    @id letters",
        "@type script\n    @id letters\n    <buffer tag>\n    flush_mode immediate\n    </buffer>",
    )
    kit = await started(letters + inside)
    kit.of(Script, 0).then = kit.of(Script, 1).then = Error("never")
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(5)
    assert kit.stats(1)["dropped"]["sent_to_dlq"] == 1
    assert kit.stats(0)["dropped"]["backed_up"] == 1
    await kit.stop()
