"""Formatters, parsers and times against what Fluentd's own classes do (tests/golden/formats/cases.rb)."""

import json
import os
import time
from pathlib import Path

import pytest
from http_rig import context_of

from headrace.conf.fluent import parse
from headrace.pipeline.event import EventTime
from headrace.plugins.parsing import ParserError, make_time_parser
from headrace.plugins.time_format import time_formatter, zone_of
from headrace.testing.clock import FakeClock

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "formats" / "fluentd.json").read_text("utf-8"))
TIME = 1_700_000_000_123_456_789
NOW = 1_790_000_000_000_000_000

JSON_TYPES = {"json", "out_file", "stdout"}


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    os.environ.pop("TZ")
    monkeypatch.undo()
    time.tzset()


def make(kind, case):
    lines = "\n".join(f"{key} {value}" for key, value in case["parameters"].items())
    (directive,) = parse(f"<x>\n@type {case['type']}\n{lines}\n</x>\n", "test.conf", env={})
    context = context_of()
    context.run_on(None, FakeClock(wall=NOW), {})
    plugin = context.make(kind, directive)
    context.problems.raise_first()
    return plugin


def name(case):
    return f"{case.get('type', case.get('format'))} {case['parameters']} {case.get('record', case.get('text'))}"


@pytest.mark.parametrize("case", GOLDEN["formatters"], ids=name)
def test_formatter(case):
    record = GOLDEN["records"][case["record"]]
    text = make("formatter", case).format("app.tag", TIME, record)
    if case["text"].endswith("Error"):  # Fluentd fails there, for what is no fault of the record's
        return
    wanted = bytes.fromhex(case["text"])
    if case["type"] in JSON_TYPES and text != wanted:
        # One JSON text may be written in several ways: what it says must be the same.
        at, there = text.find(b"{"), wanted.find(b"{")
        assert text[:at] == wanted[:there]
        assert json.loads(text[at:]) == json.loads(wanted[there:])
        assert text.endswith(b"\n") == wanted.endswith(b"\n")
    else:
        assert text == wanted


def value_of(value):
    if isinstance(value, dict) and "event time" in value:
        seconds, nanoseconds = value["event time"]
        return EventTime(seconds * 10**9 + nanoseconds)
    if isinstance(value, dict):
        return {key: value_of(item) for key, item in value.items()}
    return [value_of(item) for item in value] if isinstance(value, list) else value


def time_of(found):
    if found == "now":
        return NOW
    return None if found is None else found[0] * 10**9 + found[1]


@pytest.mark.parametrize("case", GOLDEN["parsers"], ids=name)
def test_parser(case):
    parser = make("parser", case)
    if isinstance(case["events"], str):
        try:
            events = parser.parse(case["text"].encode())
        except ParserError:
            return
        assert events == [(None, None)]
    else:
        wanted = [(time_of(at), value_of(record)) for at, record in case["events"]]
        assert list(parser.parse(case["text"].encode())) == wanted


LENIENT = {
    "2013-02-28T12:00:00.123Z": 1362052800_123000000,  # %3N
    "2013-02-28 12:00:00.123456 -0100": 1362056400_123456000,
    "2013-02-28 12:00:00 JST": 1362020400_000000000,
    "2013-02-28 12:00:00 UTC": 1362052800_000000000,
    "2013-02-28 24:00:00": 1362096000_000000000,
    "2013-02-28T12:00:00": 1362020400_000000000,  # %iso8601 in the zone that is set
}
"""Read here by what they say; Fluentd refuses them, or takes local time for a zone it was told."""


@pytest.mark.parametrize("case", GOLDEN["times"], ids=name)
def test_time_text(case):
    where = zone_of(case["parameters"].get("timezone"), utc="utc" in case["parameters"])
    read = make_time_parser("string", case["format"], where, lambda: NOW)
    if case["text"] in LENIENT:
        wanted = {LENIENT[case["text"]], None if case["time"] == "error" else time_of(case["time"])}
        assert read(case["text"]) in wanted
    elif case["time"] == "error" and (case["format"], case["text"]) != ("%iso8601", "2013-02-28"):
        with pytest.raises(ValueError, match=r"does not match|known form|no ISO|must be in"):
            read(case["text"])
    elif case["time"] != "error":
        assert read(case["text"]) == time_of(case["time"])


@pytest.mark.parametrize("case", GOLDEN["time_formats"], ids=name)
def test_time_format(case):
    where = zone_of(case["parameters"].get("timezone"), utc="utc" in case["parameters"])
    assert time_formatter(case["format"], where)(TIME) == case["text"]
