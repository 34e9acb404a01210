"""The spellings of values (docs.fluentd.org, Config File Syntax, "Supported Data Types for Values")."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.conf import values
from headrace.conf.ruby_regexp import compile_ruby


@pytest.mark.parametrize(
    ("convert", "literal", "expected"),
    [
        (values.as_size, "512", 512),
        (values.as_size, "64k", 64 << 10),
        (values.as_size, "8M", 8 << 20),
        (values.as_size, "1g", 1 << 30),
        (values.as_size, "2t", 2 << 40),
        (values.as_size, "10MB", 10 << 20),
        (values.as_size, "-1", -1),
        (values.as_time, "10s", 10.0),
        (values.as_time, "5m", 300.0),
        (values.as_time, "1h", 3600.0),
        (values.as_time, "2d", 172800.0),
        (values.as_time, "0.1", 0.1),
        (values.as_time, "0.5s", 0.5),
        (values.as_time, " 3 ", 3.0),
        (values.as_integer, "-1_000", -1000),
        (values.as_number, "1e3", 1000.0),
        (values.as_boolean, "yes", True),
        (values.as_boolean, "", True),
        (values.as_boolean, "# comment", True),
        (values.as_boolean, "no", False),
        (values.as_boolean, True, True),
        (values.as_string, {"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (values.as_enum(["gzip", "text"]), ":gzip", "gzip"),
        (values.as_array(values.as_string), "a, b ,c,,", ["a", "b", "c"]),
        (values.as_array(values.as_string), "", []),
        (values.as_array(values.as_integer), '["1", 2]', [1, 2]),
        (values.as_array(values.as_time), ["1s", 2], [1.0, 2.0]),
        (values.as_hash(values.as_any), "k:v, url:http://x:1", {"k": "v", "url": "http://x:1"}),
        (values.as_hash(values.as_any), '{"k": {"n": null}}', {"k": {"n": None}}),
        (values.as_hash(values.as_integer), {"k": "7"}, {"k": 7}),
        (values.as_hash(values.as_any), "", {}),
    ],
)
def test_spelling(convert, literal, expected) -> None:
    got = convert(literal)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("convert", "literal", "sentence"),
    [
        (values.as_size, "1.5m", "a size such as"),
        (values.as_size, "10x", "a size such as"),
        (values.as_size, "٣", "a size such as"),
        (values.as_time, "100ms", "milliseconds are written as a fraction"),
        (values.as_time, "10 m", "a time such as"),
        (values.as_time, "1m30s", "a time such as"),
        (values.as_time, "1e999", "a time such as"),
        (values.as_integer, "", "there is no value"),
        (values.as_integer, "10s", "an integer is needed"),
        (values.as_integer, "9" * 5000, "5000 characters"),
        (values.as_integer, ["1"], "an integer is needed"),
        (values.as_number, "abc", "a number is needed"),
        (values.as_number, "1e999", "out of range"),
        (values.as_boolean, "True", "true, yes, false or no"),
        (values.as_enum(["gzip", "text"]), "zip", "one of gzip, text is needed"),
        (values.as_array(values.as_string), {"a": 1}, "an array is needed"),
        (values.as_array(values.as_integer), "1,x", "an integer is needed"),
        (values.as_array(values.as_string), "[1, NaN]", "NaN is not JSON"),
        (values.as_hash(values.as_any), "a:1,b", "neither"),
        (values.as_hash(values.as_any), "{bad}", "invalid JSON"),
        (values.as_hash(values.as_any), ["a"], "a hash is needed"),
        (values.as_regexp, "/a", "ends with /"),
        (values.as_regexp, "/a/q", "ends with /"),
        (values.as_regexp, "/(/", "invalid pattern"),
    ],
)
def test_refusal_says_what_is_needed(convert, literal, sentence) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        convert(literal)


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        (r"/^(?<host>[^ ]*) (?<code>\d+)$/", "h 200", {"host": "h", "code": "200"}),
        (r"/(?'a'x)\k<a>/", "xx", {"a": "x"}),
        (r"/\A(?<h>\h+)\z/", "c0fe", {"h": "c0fe"}),
        (r"/^(?<w>[[:alpha:]_-]+)\//i", "aB_-/", {"w": "aB_-"}),
        (r"/a.(?<b>b)/m", "a\nb", {"b": "b"}),
        (r"/^two(?<r>\R)?/", "one\ntwo\r\n", {"r": "\r\n"}),
        (r"/(?<x>a(?i:b))/", "aB", {"x": "aB"}),
        (r"/(?<x>[\h\]\[]+)\Z/", "a]\n", {"x": "a]"}),
        (r"/ (?<x> \d ) # digit/x", "5", {"x": "5"}),
        (r"(?<bare>/x/)", "/x/", {"bare": "/x/"}),
        (r"/(?<n>a++)b/", "aab", {"n": "aa"}),
        (r"/(?<=x)(?<!y)(?<n>z)/", "xz", {"n": "z"}),
    ],
)
def test_ruby_pattern(pattern: str, text: str, groups: dict[str, str]) -> None:
    match = values.as_regexp(pattern).search(text)
    assert match is not None
    assert match.groupdict() == groups


def test_ruby_digits_are_ascii() -> None:
    assert compile_ruby(r"^\d$").search("٣") is None


@pytest.mark.parametrize("pattern", [r"\p{Nope}", r"(?~a+)", "[[:nope:]]", "[a", "a(?k)b", r"[\R]", r"(?<n", "\\"])
def test_pattern_that_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|class"):
        compile_ruby(pattern)


@given(st.text(st.sampled_from("()[]{}<>?!=:*+^$|\\.kKhHzZRGpgimx-&,#/'01a\n "), max_size=25))
def test_any_pattern_compiles_or_is_a_value_error(pattern: str) -> None:
    with contextlib.suppress(ValueError):
        values.as_regexp(pattern)
