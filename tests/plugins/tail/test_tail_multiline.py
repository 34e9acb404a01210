"""Texts of several lines: the parser, and in_tail with it."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tail_rig import Gate, Rig, write

from headrace.errors import ConfError
from headrace.plugins.parser_multiline import MATCH_LIMIT, Assembler
from headrace.testing.contracts import check_parser, make

JAVA = r"""
<parse>
  @type multiline
  format_firstline /^\d+-\d+-\d+/
  format1 /^(?<time>\d+-\d+-\d+ \d+:\d+:\d+) \[(?<thread>.*?)\] (?<level>[^\s]+)(?<message>.*)/
</parse>
"""
RAILS = r"""
@type multiline
format_firstline /^Started/
format1 /Started (?<method>[^ ]+) "(?<path>[^"]+)" for (?<host>[^ ]+) at (?<time>[^ ]+ [^ ]+ [^ ]+)\n/
format2 /Processing by (?<controller>[^\u0023]+)\u0023(?<controller_method>[^ ]+) as (?<format>[^ ]+?)\n/
format3 /(  Parameters: (?<parameters>[^ ]+)\n)?/
format4 /  Rendered (?<template>[^ ]+) within (?<layout>.+) \([\d\.]+ms\)\n/
format5 /Completed (?<code>[^ ]+) [^ ]+ in (?<runtime>[\d\.]+)ms \(Views: (?<view_runtime>[\d\.]+)ms \| ActiveRecord: (?<ar_runtime>[\d\.]+)ms\)/
"""


def test_the_log_of_rails():
    parser = make("parser", RAILS)
    text = b"""Started GET "/users/123/" for 127.0.0.1 at 2013-06-14 12:00:11 +0900
Processing by UsersController#show as HTML
  Parameters: {"user_id"=>"123"}
  Rendered users/show.html.erb within layouts/application (0.3ms)
Completed 200 OK in 4ms (Views: 3.2ms | ActiveRecord: 0.0ms)"""
    ((time, record),) = parser.parse(text)
    assert time == 1371178811 * 10**9
    assert record["parameters"] == '{"user_id"=>"123"}'
    assert (record["controller"], record["code"], record["ar_runtime"]) == ("UsersController", "200", "0.0")
    assert parser.has_firstline()
    assert parser.firstline(text.split(b"\n")[0])
    assert not parser.firstline(b"x")
    check_parser(parser)


def test_what_follows_a_match_is_matched_again():
    parser = make("parser", "@type multiline\nformat1 /^(?<a>\\d)$/")
    assert [record for _time, record in parser.parse(b"1\n2\nx")] == [{"a": "1"}, {"a": "2"}, None]
    parser = make("parser", "@type multiline\nunmatched_lines true\nformat1 /^(?<a>\\d)$/")
    assert [record for _time, record in parser.parse(b"1\nx")] == [{"a": "1"}, {"unmatched_line": "x"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format1 /(?<a>.)/\nformat3 /x/", "Jump of format index found. format2 is missing."),
        ("format1 /x/", "No named captures"),
        ("", "No named captures"),
        ("format1 (?<a>.)", "format should be Regexp, need //, in format1"),
        ("format1 /(?<a>.)/\nformat_firstline x", "need //, in format_firstline"),
        ("format1 /(?<a>/", "Invalid regexp in format1"),
        ("format21 /(?<a>.)/", "format21"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(ConfError) as caught:
        make("parser", f"@type multiline\n{text}")
    assert message in str(caught.value)


LINES = [b"A1", b"B2", b"A2", b"B3", b"B4", b"A5"]


@given(st.lists(st.sampled_from([b"A", b"b", b"c"]), max_size=30), st.lists(st.integers(1, 5), min_size=1))
def test_texts_are_the_same_however_lines_come(lines, sizes):
    whole = Assembler(lambda line: line == b"A", lambda _: False)
    expected, _start = whole.feed(lines)
    piecewise = Assembler(lambda line: line == b"A", lambda _: False)
    got, at, turn = [], 0, 0
    while at < len(lines):
        some = lines[at : at + sizes[turn % len(sizes)]]
        before = piecewise.holds
        texts, start = piecewise.feed(some)
        got += texts
        assert -1 <= start <= len(some)
        if start == -1:
            assert before
        elif start < len(some):
            assert some[start] == b"A"
        assert piecewise.holds == (start < len(some))
        at += len(some)
        turn += 1
    assert got == expected
    assert whole.strays == piecewise.strays
    assert (whole.take(), whole.holds) == (piecewise.take(), piecewise.holds)


def test_without_a_first_line_a_text_ends_where_it_matches():
    assembler = Assembler(None, lambda text: text.endswith(b"end"))
    assert assembler.feed([b"a", b"end", b"b"]) == ([b"a\nend"], 2)
    assert assembler.feed([b"c"]) == ([], -1)
    assert assembler.feed([b"end"]) == ([b"b\nc\nend"], 1)
    long = Assembler(None, lambda _: False)
    texts, _start = long.feed([b"x" * 1000] * 200)
    assert long.cut == len(texts) == 200_000 // MATCH_LIMIT


FIRST = "2013-3-03 14:27:33 [main] ERROR Main - Exception"
TRACE = ["javax.management.RuntimeErrorException: null", "    at Main.main(Main.java:16) ~[bin/:na]"]
MESSAGE = " Main - Exception\n" + "\n".join(TRACE)


def messages(rig):
    return [record.get("message", record) for _tag, record in rig.events]


async def test_f34_the_last_text_is_flushed_after_a_while(tmp_path):
    rig = Rig(tmp_path, "multiline_flush_interval 5s", parse=JAVA)
    write(rig.log)
    await rig.start()
    write(rig.log, FIRST, *TRACE)
    await rig.elapse(4)
    assert rig.events == []
    assert rig.positions() == {"x.log": 0}, "a position stands before what is not emitted"
    await rig.elapse(2)
    assert messages(rig) == [MESSAGE]
    assert rig.positions() == {"x.log": rig.log.stat().st_size}
    await rig.stop()


async def test_f34_a_killed_one_is_read_again_and_a_stopped_one_flushes(tmp_path):
    rig = Rig(tmp_path, parse=JAVA)
    write(rig.log)
    await rig.start()
    write(rig.log, FIRST.replace("Exception", "Start"), FIRST, TRACE[0])
    await rig.elapse()
    assert messages(rig) == [" Main - Start"]
    assert rig.positions() == {"x.log": len(FIRST) - 4 + 1}
    await rig.kill()
    write(rig.log, TRACE[1])
    await rig.start()
    assert len(rig.events) == 1
    await rig.stop()
    assert messages(rig) == [" Main - Start", MESSAGE]
    await rig.start()
    assert len(rig.events) == 2
    await rig.stop()


async def test_a_text_of_a_rotated_file_is_flushed_when_it_is_let_go(tmp_path):
    rig = Rig(tmp_path, "rotate_wait 1", parse=JAVA)
    write(rig.log)
    await rig.start()
    write(rig.log, FIRST, *TRACE)
    await rig.elapse()
    os.rename(rig.log, tmp_path / "x.1")
    write(rig.log, FIRST)
    await rig.elapse(3)
    assert messages(rig) == [MESSAGE]
    await rig.stop()
    assert messages(rig) == [MESSAGE, " Main - Exception"]


async def test_lines_before_the_first_one(tmp_path, caplog):
    rig = Rig(tmp_path, "read_from_head true", parse=JAVA)
    write(rig.log, "stray", FIRST, FIRST)
    await rig.start()
    assert messages(rig) == [" Main - Exception"]
    assert rig.stats["unmatched"] == 1
    assert any("before first line" in record.message for record in caplog.records)
    await rig.stop()
    rig = Rig(tmp_path, "read_from_head true\nemit_unmatched_lines true", parse=JAVA, pos=False)
    await rig.start()
    assert messages(rig) == [{"unmatched_line": "stray"}, " Main - Exception"]
    await rig.stop()


async def test_without_a_first_line_in_a_file(tmp_path):
    parse = "<parse>\n@type multiline\nformat1 /^begin (?<a>[^\\n]*)\\n/\nformat2 /^end/\n</parse>"
    rig = Rig(tmp_path, "read_from_head true", parse=parse)
    write(rig.log, "begin 1", "x", "begin 2", "end", "begin 3")
    await rig.start()
    assert [record for _tag, record in rig.events] == [{"a": "2"}]
    assert rig.positions() == {"x.log": 22}
    write(rig.log, "end")
    await rig.elapse()
    assert [record for _tag, record in rig.events] == [{"a": "2"}, {"a": "3"}]
    await rig.stop()


async def test_a_refused_text_is_offered_again_after_the_flush(tmp_path):
    rig = Rig(tmp_path, "multiline_flush_interval 1s", parse=JAVA, output="gate", plugins=[Gate])
    rig.now = lambda: [(tag, record) for tag, _time, record in rig.kit.of(Gate).events]
    write(rig.log)
    await rig.start(prepare=lambda kit: setattr(kit.of(Gate), "room", 0))
    write(rig.log, FIRST, *TRACE)
    await rig.elapse(5)
    assert rig.positions() == {"x.log": 0}
    rig.kit.of(Gate).room = 9
    await rig.elapse(5)
    assert messages(rig) == [MESSAGE]
    assert rig.positions() == {"x.log": rig.log.stat().st_size}
    await rig.stop()
