"""Parsers and times beyond what Fluentd's own classes were asked for in test_fluentd_formats."""

import math
import struct
import time
from datetime import UTC

import pytest
from http_rig import context_of
from hypothesis import given
from hypothesis import strategies as st

from headrace.conf.fluent import parse
from headrace.pipeline.event import Batch, EventTime, pack_value, unpack_value
from headrace.plugins.parser_csv import lenient, strict
from headrace.plugins.parsing import ParserError
from headrace.plugins.time_format import numeric_formatter, time_formatter
from headrace.plugins.time_parse import any_form, decimal_ns, parse_float, parse_unixtime, strptime
from headrace.testing.clock import FakeClock
from headrace.testing.pipelines import Kit

NOW = 1_790_000_000_000_000_000


def problems(kind, text):
    context = context_of()
    (directive,) = parse(f"<x>\n{text}\n</x>\n", "test.conf", env={})
    plugin = context.make(kind, directive)
    return plugin, context


def parser(text):
    plugin, context = problems("parser", text)
    context.problems.raise_first()
    context.run_on(None, FakeClock(wall=NOW), {})
    return plugin


NANOSECONDS = st.integers(0, 4102444800 * 10**9)


@given(NANOSECONDS)
def test_times_come_back_to_the_nanosecond(moment):
    for format_ in ("%Y-%m-%dT%H:%M:%S.%N%z", "%s.%9N", "%d/%b/%Y:%H:%M:%S,%N %z", "%A %B %e %Y %I:%M:%S.%N %p %z"):
        assert strptime(format_, None)(time_formatter(format_, UTC)(moment)) == moment
    assert any_form(None)(time_formatter("%Y-%m-%d %H:%M:%S.%N %z", None)(moment)) == moment
    assert parse_float(numeric_formatter("float")(moment)) == moment
    assert parse_unixtime(numeric_formatter("unixtime")(moment)) == moment // 10**9 * 10**9


@given(st.integers(-(10**9), 4 * 10**9), st.integers(0, 10**9 - 1))
def test_decimals_are_read_digit_by_digit(seconds, fraction):
    expected = seconds * 10**9 + (-fraction if seconds < 0 else fraction)
    assert decimal_ns(f"{seconds}.{fraction:09d}") == expected


@pytest.mark.parametrize("value", [True, None, "", "x", [1], math.nan, math.inf, "1e400"])
def test_what_is_no_number(value):
    with pytest.raises(ValueError, match="number of seconds"):
        parse_float(value)
    with pytest.raises(ValueError, match="number of seconds"):
        parse_unixtime("x" if value == "1e400" else value)


@pytest.mark.parametrize(
    ("format_", "text", "wanted"),
    [
        ("%H:%M:%S", "01:02:03", "2026-09-21 01:02:03"),
        ("%b %d %H:%M:%S", "Feb  3 10:11:12", "2026-02-03 10:11:12"),
        ("%Y-%m-%d %H:%M:%S", "2016-12-31 23:59:60", "2017-01-01 00:00:00"),
        ("%Y-%m-%d %H:%M", "2016-12-31 24:00", "2017-01-01 00:00:00"),
        ("%Q", "1362020400123", "2013-02-28 03:00:00"),
        ("%y", "70", "1970-01-01 00:00:00"),
        ("%y", "68", "2068-01-01 00:00:00"),
        ("%Y %Z", "2013 PST", "2013-01-01 08:00:00"),
    ],
)
def test_fields_that_a_format_leaves_out(format_, text, wanted):
    assert time_formatter("%Y-%m-%d %H:%M:%S", UTC)(strptime(format_, UTC, lambda: NOW)(text)) == wanted


@pytest.mark.parametrize("format_", ["%K", "%Y %", "%Y-%&"])
def test_formats_that_do_not_exist(format_):
    with pytest.raises(ValueError, match="format"):
        strptime(format_, None)


@pytest.mark.parametrize("text", ["2013-02-32", "2013-13-01", "0000-01-01", "99999-01-01"])
def test_days_that_do_not_exist(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are datetime's
        strptime("%Y-%m-%d", UTC)(text)


def test_mixed_times():
    made = parser(
        "@type json\ntime_type mixed\ntime_format %iso8601\ntime_format_fallbacks unixtime, %d/%b/%Y\nutc true"
    )
    for text, wanted in [
        (b'"2013-02-28T03:00:00Z"', 1362020400),
        (b'"1362020400"', 1362020400),
        (b"1362020400", 1362020400),
        (b'"28/Feb/2013"', 1362009600),
    ]:
        assert made.parse(b'{"time":%b}' % text) == [(wanted * 10**9, {})]
    with pytest.raises(ParserError, match="neither"):
        made.parse(b'{"time":"x"}')


def test_a_time_that_is_none_is_an_error_of_its_own():
    with pytest.raises(ParserError, match="invalid time"):
        parser("@type json").parse(b'{"time":"x"}')


def test_events_without_a_time():
    assert parser("@type json").parse(b"{}") == [(NOW, {})]
    assert parser("@type json\nestimate_current_event false").parse(b"{}") == [(None, {})]
    assert parser("@type none\nestimate_current_event false").parse(b"\xff") == [(None, {"message": "\udcff"})]


def test_nothing_of_a_line_is_lost():
    line = b"a:\xff\xfe\tb:\xc3"
    ((_, record),) = parser("@type ltsv").parse(line)
    assert {key: value.encode("utf-8", "surrogateescape") for key, value in record.items()} == {
        "a": b"\xff\xfe",
        "b": b"\xc3",
    }


def test_msgpack():
    made = parser("@type msgpack\ntypes a:string")
    body = pack_value({"a": 1}) + pack_value([{"a": 2}, 3])
    assert made.parse(body) == [(NOW, {"a": "1"}), (NOW, {"a": "2"}), (None, None)]
    assert made.parse(body[:-3]) == [(None, None)]
    assert made.parse(b"\xc1") == [(None, None)]
    assert made.parse(b"") == []


def test_a_pattern_that_takes_for_ever_is_given_up(caplog):
    made = parser("@type regexp\nexpression /^(?<a>(x+x+)+y)$/\ntimeout 0.05s")
    before = time.process_time()
    assert made.parse(b"x" * 40) == [(None, None)]
    assert time.process_time() - before < 30
    assert "timed out" in caplog.text
    assert made.parse(b"xxy") == [(NOW, {"a": "xxy"})]


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5))
def test_csv_comes_back(values):
    for delimiter in (",", "||"):
        line = delimiter.join("" if value is None else '"' + value.replace('"', '""') + '"' for value in values)
        assert strict(line, delimiter) == values


@given(st.text(',"a\n\r'), st.sampled_from([",", "aa"]))
def test_csv_of_any_text_ends(text, delimiter):
    lenient(text, delimiter)
    try:
        strict(text, delimiter)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@type csv", '"keys" is required'),
        ("@type csv\nkeys a\ndelimiter ''", "cannot be empty"),
        ("@type tsv\nkeys []", "names no field"),
        ("@type regexp\nexpression /x/", "no named group"),
        ("@type json\ntypes a:int", 'cannot be of type "int"'),
        ("@type json\ntypes a:time:%K", "no directive"),
        ("@type json\ntime_format %K", "no directive"),
        ("@type json\ntime_type mixed", "needs time_format"),
        ("@type json\ntimezone JST", "unsupported timezone"),
        ("@type json\nutc true\nlocaltime true", "contradict"),
        ("@type json\njson_parser fast", "json_parser"),
    ],
)
def test_what_is_refused(text, message):
    _, context = problems("parser", text)
    assert any(message in str(error) for error in context.problems.errors), context.problems.errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@type csv", '"fields" is required'),
        ("@type csv\nfields []", "names no field"),
        ("@type tsv", '"keys" is required'),
        ("@type out_file\ndelimiter |", "is not SPACE, COMMA or TAB"),
        ("@type json\ninvalid_values drop", "invalid_values"),
        ("@type json\ntime_format %Y", 'unknown parameter "time_format"'),
    ],
)
def test_formatters_refuse(text, message):
    _, context = problems("formatter", text)
    assert any(message in str(error) for error in context.problems.errors), context.problems.errors


async def test_the_fraction_of_a_second_stays_on_the_whole_way(prefix):
    """F35: an EventTime and an integer time from the wire, through a buffer, to text."""
    record = pack_value({"at": EventTime(5)})
    stamp = bytes.fromhex("d7006553f100075bcd15")
    stream = b"\x92" + stamp + record + b"\x92" + b"\xce" + struct.pack(">I", 1_700_000_000) + record
    text = f"""
    <match **>
      @type file
      path {prefix}/out
      append true
      <format>
        @type out_file
        utc true
        time_format %Y-%m-%dT%H:%M:%S.%NZ %L
      </format>
      <buffer []>
        @type memory
      </buffer>
    </match>
    """
    kit = await Kit(text).start()
    batch = Batch.from_packed(stream)
    kit.pipeline.router.emit("t", batch)
    await kit.stop()
    first, second = (prefix / "out.log").read_text().splitlines()
    assert first == '2023-11-14T22:13:20.123456789Z 123\tt\t{"at":0.000000005}'
    assert second.startswith("2023-11-14T22:13:20.000000000Z 000\t")
    again = Batch.of(list(batch.events())).packed()
    assert again.startswith(b"\x92" + stamp + record)


def test_a_time_beyond_an_event_time_is_still_packed():
    ((_, record),) = parser("@type json\ntypes at:time:%Y %z").parse(b'{"at":"2200 +0000"}')
    assert unpack_value(pack_value(record))["at"].to_unix_nano() == record["at"] == 7258118400 * 10**9
