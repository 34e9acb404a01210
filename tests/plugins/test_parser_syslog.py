"""Parser syslog: both formats, both engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins.parsing import ParserError
from headrace.testing.contracts import check_parser, make

TIME = 1_709_121_600_000_000_000  # 2024-02-28T12:00:00Z
BOTH = pytest.mark.parametrize("engine", ["regexp", "string"])


def parser(*lines):
    return make("parser", "\n".join(["@type syslog", "utc true", *lines]))


def parse(text, *lines):
    ((time, record),) = parser(*lines).parse(text.encode("utf-8", "surrogateescape"))
    return time, record


def year_of(time):
    return 1970 + time // 31_556_952_000_000_000


@BOTH
@pytest.mark.parametrize("form", ["rfc3164", "auto"])
def test_rfc3164(engine, form):
    text = "<6>Feb 28 12:00:00 192.168.0.1 fluentd[11111]: [error] Syslog test"
    time, record = parse(text, f"parser_engine {engine}", "with_priority true", f"message_format {form}")
    assert record == {
        "pri": 6, "host": "192.168.0.1", "ident": "fluentd", "pid": "11111", "message": "[error] Syslog test",
    }  # fmt: skip
    assert time // 10**9 % 86400 == 12 * 3600


@BOTH
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Feb  5 17:32:18 h app: text\n", {"host": "h", "ident": "app", "message": "text"}),
        ("Feb  5 17:32:18 h app[1]: a: b", {"host": "h", "ident": "app", "pid": "1", "message": "a: b"}),
        ("Feb  5 17:32:18 h kernel: [1.0] x", {"host": "h", "ident": "kernel", "message": "[1.0] x"}),
        ("Feb  5 17:32:18 h häßlich: \udcff", {"host": "h", "ident": "häßlich", "message": "\udcff"}),
        ("Feb  5 17:32:18 h app text", {"host": "h", "ident": "app", "message": "text"}),
    ],
)
def test_rfc3164_forms(engine, text, expected):
    assert parse(text, f"parser_engine {engine}")[1] == expected


def test_where_the_engines_differ():
    text = "Aug 10 12:00:00 127.0.0.1 test foo:bar"
    assert parse(text)[1] == {"host": "127.0.0.1", "ident": "test", "message": "bar"}
    assert parse(text, "parser_type string")[1] == {"host": "127.0.0.1", "ident": "test", "message": "foo:bar"}
    text = "Aug 10 12:00:00 127.0.0.1 value1,value2"
    assert parse(text)[1] == {"host": "127.0.0.1", "ident": "value1,value2", "message": ""}
    assert parse(text, "parser_type string")[1] == {"host": "127.0.0.1", "message": "value1,value2"}


def test_without_a_colon():
    text = "Feb  5 17:32:18 10.0.0.99 Use the BFG!"
    assert parse(text, "parser_type string")[1] == {"host": "10.0.0.99", "ident": "Use", "message": "the BFG!"}
    record = parse(text, "parser_type string", "support_colonless_ident false")[1]
    assert record == {"host": "10.0.0.99", "message": "Use the BFG!"}
    record = parse("Feb  5 17:32:18 h app[7] up", "parser_type string")[1]
    assert record == {"host": "h", "ident": "app", "pid": "7", "message": "up"}


@BOTH
def test_fractions_of_a_second(engine):
    time, record = parse("Feb 28 12:00:00.456 h a: b", f"parser_engine {engine}", 'time_format "%b %d %H:%M:%S.%N"')
    assert time % 10**9 == 456_000_000
    assert record["message"] == "b"


@BOTH
def test_another_time_format_and_keep_time_key(engine):
    lines = (f"parser_engine {engine}", "time_format %Y-%m-%dT%H:%M:%SZ", "keep_time_key true")
    time, record = parse("2024-02-28T12:00:00Z h a: b", *lines)
    assert time == TIME
    assert record == {"host": "h", "ident": "a", "message": "b", "time": "2024-02-28T12:00:00Z"}


@pytest.mark.parametrize(("engine", "where"), [("regexp", 1), ("string", -1)])
def test_where_the_kept_time_stands_in_the_record(engine, where):
    """As in Fluentd: with regexp where it was in the line, with string at the end."""
    lines = (f"parser_engine {engine}", "keep_time_key true", "with_priority true", "message_format auto")
    for text in ("<6>Feb 28 12:00:00 h a: b", "<16>1 2024-02-28T12:00:00Z h a - - - b"):
        _time, record = parse(text, *lines)
        assert list(record)[where] == "time"


@BOTH
@pytest.mark.parametrize("form", ["rfc5424", "auto"])
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("- - - Hi, from\nFluentd!\n", {"pid": "-", "msgid": "-", "extradata": "-", "message": "Hi, from\nFluentd!"}),
        ("1 ID -", {"pid": "1", "msgid": "ID", "extradata": "-"}),
        (
            '1 ID [a@1 x="3"][b@1 y="4"] [Hi]!',
            {"pid": "1", "msgid": "ID", "extradata": '[a@1 x="3"][b@1 y="4"]', "message": "[Hi]!"},
        ),
        ('1 ID [a@1 x="3"]', {"pid": "1", "msgid": "ID", "extradata": '[a@1 x="3"]'}),
    ],
)
def test_rfc5424(engine, form, rest, expected):
    text = f"<16>1 2024-02-28T12:00:00.003Z 192.168.0.1 fluentd {rest}"
    time, record = parse(text, f"parser_engine {engine}", "with_priority true", f"message_format {form}")
    assert time == TIME + 3_000_000
    assert record == {"pri": 16, "host": "192.168.0.1", "ident": "fluentd", **expected}


@pytest.mark.parametrize("form", ["rfc5424", "auto"])
def test_an_empty_message_of_rfc5424(form):
    text = "<16>1 2024-02-28T12:00:00.003Z 192.168.0.1 fluentd 1 ID - "
    rest = ("with_priority true", f"message_format {form}")
    _, record = parse(text, "parser_engine string", *rest)
    assert (record["extradata"], record["message"]) == ("-", "")
    assert parse(text, "parser_engine regexp", *rest)[1] is None  # as in Fluentd


@BOTH
def test_rfc5424_without_fraction_and_without_priority(engine):
    text = "2024-02-28T21:00:00+09:00 h i p m - text"
    time, record = parse(text, f"parser_engine {engine}", "message_format rfc5424")
    assert time == TIME
    assert record["message"] == "text"


def test_escapes_in_structured_data():
    text = r'2024-02-28T12:00:00Z h i p m [a x="\"]"] text'
    assert parse(text, "message_format rfc5424")[1]["extradata"] == r'[a x="\"]"]'
    assert parse(text, "message_format rfc5424", "parser_type string")[1]["extradata"] == '[a x=""]"]'


@BOTH
@pytest.mark.parametrize("form", ["rfc3164", "rfc5424", "auto"])
@pytest.mark.parametrize(
    "text", ["", "<>Feb 28 12:00:00 h a: b", "<6>", "<6>1 ", "no priority at all here", "<6>Feb 28"]
)
def test_what_does_not_match(engine, form, text):
    assert parse(text, f"parser_engine {engine}", "with_priority true", f"message_format {form}") == (None, None)


@BOTH
def test_a_time_that_is_none(engine):
    with pytest.raises(ParserError, match="invalid time"):
        parse("<6>Fxb 28 12:00:00 h a: b", f"parser_engine {engine}", "with_priority true")


@BOTH
def test_types_and_nulls_apply(engine):
    record = parse("Feb  5 17:32:18 h app[12]: text", f"parser_engine {engine}", "types pid:integer")[1]
    assert record["pid"] == 12


@BOTH
@pytest.mark.parametrize("form", ["rfc3164", "rfc5424", "auto"])
def test_contract(engine, form):
    check_parser(parser(f"parser_engine {engine}", f"message_format {form}"))
    check_parser(parser(f"parser_engine {engine}", f"message_format {form}", "with_priority true"))


MADE = {
    (engine, form, pri): parser(f"parser_engine {engine}", f"message_format {form}", f"with_priority {pri}")
    for engine in ("regexp", "string")
    for form in ("rfc3164", "rfc5424", "auto")
    for pri in ("true", "false")
}
PARTS = st.sampled_from(
    ["<6>", "<16>1 ", "<", ">", "Feb 28 12:00:00 ", "Feb  1 12:00:00", "2024-02-28T12:00:00Z ", " ", "-", "[", "]", "] ",
     "\\", '"', ":", "host ", "app[1]: ", "\n", "\r\n", ".", "x", "\udcff", "ä"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=20).map("".join), st.sampled_from(sorted(MADE)))
def test_whatever_comes(text, key):
    try:
        ((time, record),) = MADE[key].parse(text.encode("utf-8", "surrogateescape"))
    except ParserError:
        return
    assert (time is None) == (record is None)
    if record is not None:
        assert "host" in record
        assert all(isinstance(value, str) or name == "pri" for name, value in record.items())


@BOTH
def test_long_texts_take_no_time(engine):
    for text in ("x" * 500_000, "a " * 250_000, "[" * 500_000, "<6>1 " + "a a a a [" * 50_000, ":" * 500_000):
        for form in ("rfc3164", "rfc5424", "auto"):
            try:
                list(MADE[engine, form, "false"].parse(text.encode()))
            except ParserError:
                continue
