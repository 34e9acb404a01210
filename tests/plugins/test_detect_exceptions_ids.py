"""detect_exceptions: what the sender said about a batch goes on with it, where that is true of what goes on."""

from __future__ import annotations

import pytest

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Output
from headrace.plugins.registry import lookup
from headrace.testing.pipelines import Kit

CONF = """
<match raw.**>
  @type detect_exceptions
  remove_tag_prefix raw
  languages python
</match>
<match **>
  @type named
</match>
"""
TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "    boom()", "ValueError: boom"]


class Named(Output):
    name = "named"

    def __init__(self):
        self.batches = []

    def process(self, tag, batch):
        self.batches.append((batch.id, batch.ack, batch.count))


async def given(*texts: list[str]):
    kit = await Kit(CONF, plugins=[Named]).start()
    for number, lines in enumerate(texts):
        batch = Batch.of([(1, {"message": line}) for line in lines])
        batch.id, batch.ack = bytes([number]) * 16, 2
        kit.pipeline.router.emit("raw.a", batch)
    named = kit.of(Named)
    await kit.stop()
    return named.batches


async def test_a_whole_batch_keeps_its_name_and_what_it_waits_for():
    first, second = await given(["a", "b"], [*TRACE, "c"])
    assert (first[1:], second[1:]) == ((2, 2), (2, 2))
    assert first[0] is not None
    assert first[0] != second[0]
    assert await given(["a", "b"], [*TRACE, "c"]) == [first, second]


async def test_what_came_with_several_batches_has_no_name():
    batches = await given(["a", *TRACE[:2]], [*TRACE[2:], "b"])
    assert [name for name, _ack, _count in batches] == [None] * len(batches)


@pytest.mark.parametrize(("value", "warnings"), [("false", 1), ("true", 0)])
def test_calc_num_records_false_is_told_of(value, warnings, tmp_path):
    text = f"<match **>\n@type stdout\n<buffer tag>\n@type file_single\npath {tmp_path}\ncalc_num_records {value}\n</buffer>\n</match>"
    problems = Problems()
    build_pipeline(parse(text, "t.conf", env={}, hostname="h", worker_id="0"), lookup=lookup, problems=problems)
    found = [str(one) for one in problems.warnings if "calc_num_records" in str(one)]
    assert len(found) == warnings
    assert all("t.conf:6" in one for one in found)
