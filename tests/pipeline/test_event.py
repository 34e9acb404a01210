"""Packing loses nothing; unpacking refuses what is malformed."""

from __future__ import annotations

import contextlib
import math

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.event import (
    NS,
    Batch,
    EventTime,
    count_packed,
    event_time,
    pack_event,
    pack_value,
    unpack_events,
    unpack_value,
)

keys = st.one_of(st.text(max_size=8), st.integers(-(1 << 63), (1 << 64) - 1), st.binary(max_size=4))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.binary(max_size=20),
    st.builds(EventTime, st.integers(0, (1 << 32) * NS - 1)),
    st.builds(msgpack.ExtType, st.integers(1, 127), st.binary(max_size=24)),
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
records = st.dictionaries(keys, values, max_size=5)
times = st.integers(-(1 << 62), 1 << 63)


def same(one: object, other: object) -> bool:
    if isinstance(one, EventTime) or isinstance(other, EventTime):
        return type(one) is type(other) and one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(st.lists(st.tuples(times, records), max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_batch_survives_packing(events):
    packed = Batch.of(events).packed()
    again = unpack_events(packed)
    assert [time for time, _record in again] == [time for time, _record in events]
    assert all(type(time) is int for time, _record in again)
    assert same([record for _time, record in again], [record for _time, record in events])
    assert Batch.of(again).packed() == packed
    assert count_packed(packed) == len(events)


@given(st.lists(st.tuples(times, records), min_size=1, max_size=3), st.data())
@settings(max_examples=30, deadline=None)
def test_a_stream_that_is_cut_is_refused(events, data):
    packed = Batch.of(events).packed()
    ends = {0}
    for count in range(1, len(events) + 1):
        ends.add(len(Batch.of(events[:count]).packed()))
    size = data.draw(st.integers(0, len(packed)).filter(lambda size: size not in ends))
    with pytest.raises(ValueError, match=r"."):
        unpack_events(packed[:size])
    with pytest.raises(ValueError, match=r"."):
        count_packed(packed[:size])


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_garbage_raises_value_error_only(data):
    for read in (unpack_events, count_packed, unpack_value):
        with contextlib.suppress(ValueError):
            read(data)


def test_event_time_on_the_wire():
    wire = bytes.fromhex("92d7006553f100075bcd1581a16101")
    assert unpack_events(wire) == [(1700000000_123456789, {"a": 1})]
    assert pack_event(1700000000_123456789, {"a": 1}) == wire
    assert unpack_events(b"\x92" + msgpack.packb(1700000000) + b"\x80") == [(1700000000 * NS, {})]


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (5, 5 * NS),
        (1.5, 1_500_000_000),
        (-1.5, -1_500_000_000),
        (EventTime(7), 7),
        (msgpack.Timestamp(3, 4), 3 * NS + 4),
        (msgpack.ExtType(0, bytes.fromhex("00000001ffffffff")), NS + 0xFFFFFFFF),
    ],
)
def test_times_of_the_wire(value, time):
    assert event_time(value) == time


@pytest.mark.parametrize("value", [None, True, "5", math.nan, math.inf, [], msgpack.ExtType(0, b"1")])
def test_times_that_are_none(value):
    with pytest.raises(ValueError, match="event time"):
        event_time(value)


def test_depth_and_announced_size_are_bounded():
    with pytest.raises(ValueError, match=r"."):
        unpack_value(b"\x91" * 5000 + b"\x01")
    with pytest.raises(ValueError, match="exceeds"):
        unpack_value(b"\xdd\x7f\xff\xff\xff")


def test_what_cannot_be_packed_raises():
    for value in (object(), {1: {2: object()}}):
        with pytest.raises(TypeError):
            pack_value(value)


def test_values_of_other_types_are_packed_as_what_they_are():
    class Name(str):
        __slots__ = ()

    assert unpack_value(pack_value({Name("a"): (1, 2)})) == {"a": [1, 2]}


def test_a_packed_batch_is_decoded_only_when_asked():
    batch = Batch.from_packed(Batch.of([(1, {"a": 1}), (2, {"b": 2})]).packed())
    assert (batch.count, batch.is_packed, batch.is_unpacked) == (2, True, False)
    assert list(batch.events()) == [(1, {"a": 1}), (2, {"b": 2})]
    with pytest.raises(ValueError, match="pair"):
        Batch.from_packed(b"\x93\x01\x80\x01")
    with pytest.raises(ValueError, match="map"):
        Batch.from_packed(b"\x92\x01\x01")


@pytest.mark.parametrize("claimed", [0, 1, 3, 4, 1000])
def test_events_are_the_same_whatever_count_is_claimed(claimed):
    moment = 1_700_000_000_123_456_789
    events = [(moment, {"a": 1}), (5 * NS, {b"k": EventTime(moment)}), (moment, {})]
    packed = Batch.of(events).packed()
    assert unpack_events(packed, claimed) == events
    assert unpack_events(b"\x92\xce\0\0\0\x05\x80" * 3, claimed) == [(5 * NS, {})] * 3
    with pytest.raises(ValueError, match="cut short"):
        unpack_events(packed[:-1], claimed)
    with pytest.raises(ValueError, match="map"):
        unpack_events(b"\x92\x01\x02" * 3, claimed)
    with pytest.raises(ValueError, match="bool"):
        unpack_events(b"\x92\xc3\x80" * 3, claimed)
