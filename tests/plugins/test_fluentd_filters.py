"""Filters against what Fluentd's own, and those of its ecosystem, make of records (tests/golden/filters/cases.rb)."""

import json
from pathlib import Path

import pytest
from zone_rig import local_zone

from headrace.pipeline.context import Settings
from headrace.testing.pipelines import Direct, Kit

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "filters" / "fluentd.json").read_text("utf-8"))
TIME = 1_700_000_000_123_456_789


@pytest.fixture(autouse=True)
def zone():
    with local_zone("Asia/Kolkata"):
        yield


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row['kind']} {row['text']}")
async def test_it_makes_what_fluentd_makes(row):
    text = f"<filter **>\n@type {row['kind']}\n{row['text']}\n</filter>\n<match **>\n@type direct\n@id main\n</match>\n"
    text += "<label @ERROR>\n<match **>\n@type direct\n@id errors\n</match>\n</label>"
    kit = await Kit(text, settings=Settings(hostname="host")).start()
    for record in GOLDEN["records"]:
        await kit.emit("a.b.c", record, time=TIME)
    await kit.stop()
    sinks = {one.plugin_id: one.events for one in kit.pipeline.plugins if isinstance(one, Direct)}
    assert [record for _, _, record in sinks["main"]] == [record for _, record in row["events"]]
    wanted = [seconds * 10**9 + nanoseconds for (seconds, nanoseconds), _ in row["events"]]
    assert [at for _, at, _ in sinks["main"]] == wanted
    assert [record for _, _, record in sinks["errors"]] == row["errors"]
