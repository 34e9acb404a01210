"""`@label` in outputs and filters: where the events go that they emit, as in Fluentd; a warning where none are."""

import pytest

from headrace.pipeline.plugin import Output
from headrace.testing.pipelines import Kit

TARGET = """
<label @L>
  <match **>
    @type seen
  </match>
</label>
<match **>
  @type null
</match>
"""


class Seen(Output):
    name = "seen"

    def __init__(self):
        self.got = []

    def process(self, tag, batch):
        self.got += [(tag, record) for _, record in batch.events()]


@pytest.mark.parametrize(
    ("lines", "tag"),
    [
        ("@type rewrite_tag_filter\n<rule>\nkey message\npattern /a/\ntag new\n</rule>", "new"),
        ("@type record_modifier\ntag new", "new"),
        ("@type detect_exceptions\nremove_tag_prefix in\nlanguages java", "x"),
        ("@type copy\n<store>\n@type record_modifier\n@label @L\ntag new\n</store>", "new"),
    ],
)
async def test_what_an_output_emits_goes_to_its_label(lines, tag):
    label = "" if "copy" in lines else "@label @L\n"
    kit = await Kit(f"<match in.**>\n{label}{lines}\n</match>\n{TARGET}", plugins=[Seen]).start()
    await kit.emit("in.x", {"message": "a"})
    await kit.clock.elapse(5)
    assert [(found, record["message"]) for found, record in kit.of(Seen).got] == [(tag, "a")]
    await kit.stop()


def test_a_label_that_does_not_exist():
    kit = Kit(f"<match a>\n@type record_modifier\n@label @NO\ntag x\n</match>\n{TARGET}", plugins=[Seen])
    assert any('label "@NO" is not defined' in error for error in kit.errors)


@pytest.mark.parametrize(
    "text",
    [
        "<match a>\n@type null\n@label @L\n</match>\n",
        "<filter a>\n@type stdout\n@label @L\n</filter>\n",
    ],
)
def test_where_nothing_is_emitted_a_label_is_warned_of(text):
    kit = Kit(text + TARGET, plugins=[Seen])
    assert not kit.errors
    assert [warning.place.line for warning in kit.problems.warnings] == [3]
    assert "no effect" in str(kit.problems.warnings[0])
