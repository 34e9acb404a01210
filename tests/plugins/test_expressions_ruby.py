"""The Ruby subset: what Ruby itself makes of it (tests/golden/expressions/cases.rb), what is refused, and any text."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zone_rig import local_zone

from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_time import Moment
from headrace.plugins.expressions.ruby_values import Type, interpolated
from headrace.plugins.expressions.variables import Program

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "expressions" / "ruby.json").read_text("utf-8"))
NOW = 1_700_000_000_123_456_789


@pytest.fixture(autouse=True)
def zone():
    with local_zone("Asia/Kolkata"):
        yield


def value_of(text, record=GOLDEN["record"], tag="a.b.c"):
    program = Program(hostname="host", worker_id=0, now=lambda: NOW)
    run = program.function([f"new = {program.ruby(text).code}"])

    def failed(_tag, _time, _record, error):
        raise error

    ((_, found),) = run(tag, [(NOW, record)], failed)
    return found


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return interpolated(value)
    if isinstance(value, dict):
        return {interpolated(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return interpolated(value) if isinstance(value, (Moment, Type)) else value


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: row["expression"])
def test_it_makes_what_ruby_makes(row):
    if "error" in row:
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one differs; the record goes to @ERROR
            value_of(row["expression"])
    else:
        found = plain(value_of(row["expression"]))
        assert found == row["value"]
        assert type(found) is type(row["value"])


def test_the_record_is_not_changed():
    before = json.dumps(GOLDEN["record"])
    for row in GOLDEN["rows"]:
        if "error" not in row:
            value_of(row["expression"])
    assert json.dumps(GOLDEN["record"]) == before


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tag", "a.b.c"),
        ("tag_parts[-1]", "c"),
        ("tag_prefix[1]", "a.b"),
        ("tag_suffix[1]", "b.c"),
        ("tag_parts[9]", None),
        ("hostname + worker_id.to_s", "host0"),
        ("time.to_i", 1_700_000_000),
        ("time.nsec", 123_456_789),
        ("Time.now.utc.iso8601(9)", "2023-11-14T22:13:20.123456789Z"),
        ("Socket.gethostname", "host"),
        ("ENV['HEADRACE_NOT_SET'] || ENV.fetch('HEADRACE_NOT_SET', 'x')", "x"),
        ("require 'json'; 1", 1),
        ("# nothing but\n1", 1),
        ("", None),
        (
            '[1..2, {"t" => Time.at(0).utc}, /x/, "ab".match(/a/), 1.class]',
            ["1..2", {"t": "1970-01-01 00:00:00 UTC"}, "x", "a", "Integer"],
        ),
    ],
)
def test_variables(text, found):
    assert value_of(text) == found


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ('system("ls")', "system is not supported", 0),
        ("`ls`", "unexpected", 0),
        ("%x(ls)", "unexpected", 0),
        ('File.read("/etc/passwd")', "File.read is not supported", 0),
        ('IO.popen("ls")', "IO.popen", 0),
        ('Kernel.exec("ls")', "exec is not supported", 0),
        ('eval("1")', "eval is not supported", 0),
        ("instance_eval { 1 }", "unexpected", None),
        ('record["s"].send(:upcase)', '"send" is not supported', None),
        ('record["s"].instance_variable_get("@x")', "is not supported", None),
        ("record.class.const_get(:File)", "is not supported", None),
        ("Object.new", "Object.new is not supported", None),
        ("ObjectSpace", "constant ObjectSpace", None),
        ("$stdout", "unexpected", 0),
        ("@log", "unexpected", 0),
        ("-> { 1 }", "unexpected", 0),
        ("def x; end", '"def" is not supported', None),
        ("while true; end", '"while" is not supported', None),
        ("loop { 1 }", '"loop" is not supported', None),
        ('record["a"] = 1', "cannot be changed", None),
        ('record.delete("a")', 'has no method "delete"', None),
        ('record["s"] << "x"', None, None),
        ('record["s"].gsub!("a", "b")', '"gsub!" is not supported', None),
        ("nope", 'unknown name "nope"', 0),
        ('record["s"].upcas', '"upcas" is not supported', None),
        ('record["s"', "] is missing", None),
        ('"abc', "without an end", None),
        ("1 +", "has no end", None),
        ("require 'net/http'", "may not be required", None),
        ('require "open3"', "may not be required", None),
        ("tag = 1", "cannot be set", None),
        ("x = 1; [1].map { |y| x = y }", "from outside", None),
        ("/(?~a+)/", "plain text only", None),
        ("(" * 200, "too deeply", None),
        ("1" * 100, "too long", None),
        ("a" * 9000, "too long", None),
    ],
)
def test_what_is_refused(text, message, at):
    if message is None:
        with pytest.raises(Exception, match="changes its left side"):
            value_of(text)
        return
    with pytest.raises(Refused) as caught:
        value_of(text)
    assert message in caught.value.message
    assert at is None or caught.value.at == at


def test_dates_are_refused_with_what_to_write():
    with pytest.raises(Refused) as caught:
        value_of("DateTime.parse(time.to_s).iso8601(3)")
    assert "write Time in its place" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ['"a" * 2000000', '("a" * 1000000) * 1000000', "9 ** 99999", "2 ** 600", "1 << 100000", '"x".ljust(99999999)', '"%99999999d" % 1', "(1..99999999).to_a",
     '("a" * 1000000).gsub("a", "b" * 1000000)'],
)  # fmt: skip
def test_much_of_little_is_an_error(text):
    with pytest.raises(Exception):  # noqa: B017, PT011
        value_of(text)


PIECES = st.sampled_from(
    [
        "record",
        "tag",
        '"s"',
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "|",
        ".",
        "&.",
        "&&",
        "||",
        "!",
        "==",
        "=~",
        "/x/",
        "1",
        "2.5",
        "+",
        "-",
        "*",
        "**",
        "%",
        "?",
        ":",
        ";",
        ",",
        "=>",
        "nil",
        "true",
        "if",
        "else",
        "end",
        "case",
        "when",
        "do",
        "upcase",
        "map",
        "split(',')",
        "each",
        ":sym",
        "'a'",
        "#{",
        "$1",
        "x",
        "=",
        "Time",
        "JSON",
        "ENV",
        ".to_s",
        ".first",
        "rescue",
        "unless",
        "\n",
        "\\",
        "@",
        "`",
        "<",
        ">",
        "~",
        "^",
        "__class__",
        "import",
        "os",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=20) | st.lists(PIECES, max_size=10).map("".join))
def test_any_text_is_an_expression_or_refused(text):
    program = Program(hostname="host", worker_id=0, now=lambda: NOW)
    try:
        piece = program.ruby(text)
    except Refused:
        return
    run = program.function([f"new = {piece.code}"])
    run("a.b", [(NOW, {"s": "x", "a": 1})], lambda *_: None)
