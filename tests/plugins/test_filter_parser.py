"""Filter parser, and the bound of patterns that take for ever."""

import time

import pytest

from headrace.plugins import guard as guards
from headrace.plugins.ruby_text import scrub
from headrace.testing.contracts import check_filter, make
from headrace.testing.pipelines import Direct, Kit

ERRORS = "<label @ERROR>\n<match **>\n@type direct\n@id errors\n</match>\n</label>"
JSON = "<parse>\n@type json\n</parse>"
WORD = "<parse>\n@type regexp\nexpression /^(?<w>\\w+)$/\n</parse>"


async def run(lines, *records, time=5):
    text = f"<filter **>\n@type parser\n{lines}\n</filter>\n<match **>\n@type direct\n@id main\n</match>\n{ERRORS}"
    kit = await Kit(text).start()
    await kit.emit("t", *records, time=time)
    await kit.stop()
    return at(kit, "main"), [record for _, record in at(kit, "errors")]


def at(kit, name):
    (sink,) = [one for one in kit.pipeline.plugins if isinstance(one, Direct) and one.plugin_id == name]
    return [(moment, record) for _, moment, record in sink.events]


@pytest.mark.parametrize(
    ("lines", "record", "kept", "errors"),
    [
        ("", {"m": '{"a":1}', "x": 2}, [{"a": 1}], []),
        ("reserve_data true", {"m": '{"a":1}', "x": 2}, [{"m": '{"a":1}', "x": 2, "a": 1}], []),
        ("reserve_data true\nremove_key_name_field true", {"m": '{"a":1}', "x": 2}, [{"x": 2, "a": 1}], []),
        ("inject_key_prefix p.", {"m": '{"a":1}'}, [{"p.a": 1}], []),
        ("hash_value_field h", {"m": '{"a":1}'}, [{"h": {"a": 1}}], []),
        (
            "hash_value_field h\ninject_key_prefix p.\nreserve_data true",
            {"m": '{"a":1}'},
            [{"m": '{"a":1}', "h": {"p.a": 1}}],
            [],
        ),
        ("", {"m": "no"}, [], [{"m": "no"}]),
        ("reserve_data true", {"m": "no"}, [{"m": "no"}], [{"m": "no"}]),
        ("emit_invalid_record_to_error false", {"m": "no"}, [], []),
        ("emit_invalid_record_to_error false\nreserve_data true", {"x": 1}, [{"x": 1}], []),
        ("", {"x": 1}, [], [{"x": 1}]),
        ("", {"m": '[{"a":1},{"b":2}]'}, [{"a": 1}, {"b": 2}], []),
        ("", {"m": '{"a":1,"time":"never"}'}, [], [{"m": '{"a":1,"time":"never"}'}]),
    ],
)
async def test_what_becomes_of_a_record(lines, record, kept, errors):
    found, refused = await run(f"key_name m\n{lines}\n{JSON}", record)
    assert [one for _, one in found] == kept
    assert refused == errors


async def test_the_time_is_the_parsers_or_the_events():
    assert (await run(f"key_name m\n{JSON}", {"m": '{"time":7}'}))[0] == [(7 * 10**9, {})]
    assert (await run(f"key_name m\nreserve_time true\n{JSON}", {"m": '{"time":7}'}))[0] == [(5, {})]


async def test_a_nested_field_is_removed_from_a_copy():
    record = {"a": {"m": "word", "n": [1]}}
    found, _ = await run(f"key_name $.a.m\nreserve_data true\nremove_key_name_field true\n{WORD}", record)
    assert found[0][1] == {"a": {"n": [1]}, "w": "word"}
    assert record == {"a": {"m": "word", "n": [1]}}


async def test_bytes_that_are_not_utf8():
    parse = "<parse>\n@type regexp\nexpression /^(?<w>.+)$/\n</parse>"
    broken = b"a\xffb".decode("utf-8", "surrogateescape")
    assert (await run(f"key_name m\n{parse}", {"m": broken}))[0][0][1] == {"w": broken}
    assert (await run(f"key_name m\nreplace_invalid_sequence true\n{parse}", {"m": broken}))[0][0][1] == {"w": "a?b"}
    assert scrub(b"\xe3\x81x\xff\xfe", "?") == b"?x??"


@pytest.mark.parametrize("lines", [f"key_name m\nreserve_data true\n{WORD}", f"key_name bytes\n{JSON}"])
async def test_contract(lines):
    await check_filter(f"<filter **>\n@type parser\n{lines}\n</filter>")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (JSON, '"key_name" is required'),
        ("key_name m", "<parse> section is required"),
        (f"key_name $.\n{JSON}", "names no key"),
    ],
)
def test_what_is_refused(lines, message):
    kit = Kit(f"<filter **>\n@type parser\n{lines}\n</filter>\n<match **>\n@type direct\n</match>")
    assert any(message in error for error in kit.errors), kit.errors


EVIL = b"a" * 40 + b"!"


@pytest.mark.parametrize("pattern", [r"^(?<x>(?:a|aa)+)$", r"^(?<x>(?:[[:alpha:]]|aa)+)$"])
@pytest.mark.parametrize("limit", ["timeout 0.1s", ""])
def test_a_pattern_that_takes_for_ever_is_given_up(pattern, limit, monkeypatch, caplog):
    monkeypatch.setattr(guards, "INTERVAL", 0.05)
    guards.guard.disarm()
    parser = make("parser", f"@type regexp\nexpression /{pattern}/\n{limit}")
    before = time.process_time()
    for _ in range(12):
        assert parser.parse(EVIL) == [(None, None)]
    assert time.process_time() - before < 60
    assert len([line for line in caplog.messages if "timed out" in line]) == 10
    assert parser.parse(b"aaaa")[0][1] == {"x": "aaaa"}


def test_many_lines_are_read_as_one_by_one(monkeypatch):
    monkeypatch.setattr(guards, "INTERVAL", 0.05)
    guards.guard.disarm()
    parser = make("parser", "@type regexp\nexpression /^(?<x>(?:a|aa)+)$|^(?<time>\\d+)$/\ntime_format %m")
    missed = []

    def failed(line, error):
        missed.append((line, error is None))
        return (1, {"instead": True}) if line == b"?" else None

    events = parser.parse_lines([b"aa", EVIL, b"?", b"99", b"aaa"], failed)
    assert [record for _, record in events] == [{"x": "aa"}, {"instead": True}, {"x": "aaa"}]
    assert missed == [(EVIL, True), (b"?", True), (b"99", False)]
