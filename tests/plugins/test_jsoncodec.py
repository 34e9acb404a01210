"""JSON: what is exact, what is replaced or rejected, and that one bad record stops nobody (F23)."""

import json
import math

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.event import EventTime
from headrace.plugins.jsoncodec import REJECT, UnencodableError, decode, encode, may_be_huge
from headrace.testing.pipelines import Direct, Kit

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(texts, values))
def test_what_json_can_say_comes_back(record):
    for policy in ("replace", "reject"):
        text = encode(record, policy)
        assert b"\n" not in text
        assert decode(text) == record == json.loads(text)


@given(st.dictionaries(texts | st.integers() | st.binary(), values | st.floats() | st.binary()))
def test_what_it_cannot_say_is_still_json(record):
    json.loads(encode(record), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 << 64, b"18446744073709551616"),
        (-(1 << 63) - 1, b"-9223372036854775809"),
        (EventTime(1_700_000_000_123_456_789), b"1700000000.123456789"),
        (EventTime(-1), b"-0.000000001"),
        (msgpack.Timestamp(1, 5), b"1.000000005"),
        ((1, 2), b"[1,2]"),
    ],
)
@pytest.mark.parametrize("policy", ["replace", "reject"])
def test_exact(value, text, policy):
    assert encode({"v": value}, policy) == b'{"v":' + text + b"}"


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
@pytest.mark.parametrize("before", [0, 90, 900])
def test_an_integer_past_64_bits_is_found_wherever_it_stands(value, before):
    for shift in range(37):  # every remainder by the distances of the samples
        text = b'{"text":"%s","v":%d,"rest":"%s"}' % (b"x" * (before + shift), value, b"y" * 30)
        assert may_be_huge(text)
        assert decode(text)["v"] == value


@pytest.mark.parametrize("pad", [0, 900])
def test_times_and_counts_are_not_taken_for_one(pad):
    for shift in range(37):
        text = b'{"text":"%s","v":[9223372036854775807,1796074222123,"2026-11-30T21:30:22.123456789Z"]}'
        text %= b"x" * (pad + shift)
        assert not may_be_huge(text)
        assert decode(text)["v"][0] == (1 << 63) - 1


def test_keys():
    record = {1: 1, 1 << 70: 2, None: 3, False: 4, b"k": 5, 1.5: 6}
    assert json.loads(encode(record)) == {"1": 1, str(1 << 70): 2, "null": 3, "false": 4, "k": 5, "1.5": 6}


@pytest.mark.parametrize(
    ("value", "replaced"),
    [
        (math.nan, None),
        (-math.inf, None),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("a\udce2\udc82b", "a\ufffdb"),  # a character that is cut short is one replacement
        ("\ud800", "\ufffd"),
        (msgpack.ExtType(5, b"\x00\x01"), "AAE="),
        ([{"deep": math.nan}], [{"deep": None}]),
    ],
)
def test_policies(value, replaced):
    assert json.loads(encode({"v": value, "n": None})) == {"v": replaced, "n": None}
    with pytest.raises(UnencodableError):
        encode({"v": value}, REJECT)
    with pytest.raises(UnencodableError):
        encode({"x": [value]}, REJECT)


def test_a_key_that_is_not_utf8():
    assert encode({"\udcff": 1}) == '{"\ufffd":1}'.encode()
    with pytest.raises(UnencodableError):
        encode({"\udcff": 1}, REJECT)


def test_what_no_policy_mends():
    deep = {}
    for _ in range(300):
        deep = {"a": deep}
    for value in (deep, {"a": object()}, {"a": 10**5000}):
        with pytest.raises(UnencodableError):
            encode(value)


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b'{"a":1}x', b"nul", b"[" * 100_000])
def test_what_is_no_json(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the reader's words differ
        decode(text)


def test_reading_keeps_everything():
    assert decode(b'{"a":123456789012345678901,"b":-9223372036854775809}') == {
        "a": 123456789012345678901,
        "b": -9223372036854775809,
    }
    assert decode(b'{"a":"\xff"}') == {"a": "\udcff"}
    assert decode(b'{"a":"\\ud800 \xff"}') == {"a": "\ufffd \udcff"}


@pytest.mark.parametrize(("policy", "delivered"), [("replace", 4), ("reject", 2)])
async def test_one_bad_record_stops_nobody(prefix, policy, delivered):
    text = f"""
    <match **>
      @type file
      path {prefix}/out
      append true
      <format>
        @type json
        invalid_values {policy}
      </format>
      <buffer []>
        @type memory
        flush_interval 1s
        flush_thread_count 1
      </buffer>
    </match>
    <label @ERROR>
      <match **>
        @type direct
      </match>
    </label>
    """
    kit = await Kit(text).start()
    await kit.emit("t", {"m": "ok1"})
    await kit.emit("t", {"m": b"\xff\xfe"}, {"m": math.nan})
    await kit.emit("t", {"m": "ok2"})
    await kit.clock.elapse(2)
    lines = [json.loads(line) for line in (prefix / "out.log").read_bytes().splitlines()]
    assert len(lines) == delivered
    assert lines[-1] == {"m": "ok2"}
    if policy == "replace":
        assert lines[1:3] == [{"m": "\ufffd\ufffd"}, {"m": None}]
    assert len(kit.of(Direct).events) == 4 - delivered
    await kit.stop()
