"""Packed streams read by columns: what the exact reader makes of them, or nothing."""

import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline import event as events_module
from headrace.pipeline.columns import read_columns
from headrace.pipeline.event import NS, Batch, EventTime, pack_event, unpack_events

SECOND = 1_700_000_000
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(),
    st.binary(max_size=20),
)
ODD = st.one_of(
    st.integers(1 << 64, 1 << 70),
    st.integers(0, 1 << 62).map(EventTime),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=9)),
    st.builds(msgpack.Timestamp, st.integers(0, 1 << 33), st.integers(0, NS - 1)),
    st.sampled_from(["\udcff", "a\udc80b"]),
)
KEYS = st.one_of(st.text(max_size=8), st.integers(-5, 300), st.binary(max_size=3), st.sampled_from([None, "\udcfe"]))


def records(leaves):
    value = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
    )
    return st.dictionaries(st.text(max_size=8), value, max_size=5)


def exact(data, count, monkeypatch):
    """What the exact reader says."""
    with monkeypatch.context() as patch:
        patch.setattr(events_module, "read_columns", lambda _data, _count: None)
        return unpack_events(data, count)


def text_of(events):
    """Types too: NaN is equal to nothing, 1 to True, an EventTime to an integer."""
    return repr([(type(time), time, record) for time, record in events])


TIMES = st.one_of(st.integers(0, (1 << 32) - 1).map(lambda second: second * NS), st.integers(0, (1 << 32) * NS - 1))


@pytest.fixture(scope="module")
def patcher():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(st.lists(st.tuples(TIMES, records(SCALARS)), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_ordinary_events_are_read_as_by_the_exact_reader(patcher, events):
    packed = b"".join([pack_event(*one) for one in events])
    wanted = exact(packed, len(events), patcher)
    found = unpack_events(packed, len(events))
    assert text_of(found) == text_of(wanted)
    columns = read_columns(packed, len(events))
    if columns is not None:
        assert text_of(zip(*columns, strict=True)) == text_of(wanted)


@given(st.lists(st.tuples(TIMES, records(SCALARS | ODD)), min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_unusual_values_are_left_to_the_exact_reader(patcher, events):
    packed = b"".join([pack_event(*one) for one in events])
    assert text_of(unpack_events(packed, len(events))) == text_of(exact(packed, len(events), patcher))


@given(st.binary(max_size=60), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_garbage_is_no_stream(data, count):
    for head in (b"", b"\x92\xce\0\0\0\1", b"\x92\xd7\0" + bytes(8)):
        columns = read_columns(head + data, count)
        assert columns is None or len(columns[0]) == len(columns[1]) == count


def entry(time: bytes, record: bytes = b"\x81\xa1a\x01") -> bytes:
    return b"\x92" + time + record


SECONDS = b"\xce" + struct.pack(">I", SECOND)
STAMP = b"\xd7\0" + struct.pack(">II", SECOND, 5)


@pytest.mark.parametrize(
    ("data", "count", "times"),
    [
        (entry(SECONDS) * 3, 3, [SECOND * NS] * 3),
        (entry(b"\x05") + entry(SECONDS), 2, [5 * NS, SECOND * NS]),
        (entry(STAMP) * 2, 2, [SECOND * NS + 5] * 2),
        (entry(b"\xd7\0" + b"\xff" * 8), 1, [0xFFFFFFFF * NS + 0xFFFFFFFF]),
        # 0xFF that is no timestamp: -1, a length, the nanoseconds of a stamp before the stamp of another.
        (entry(SECONDS, b"\x81\xa1a\xff") * 90, 90, [SECOND * NS] * 90),
        (entry(SECONDS, b"\x81\xa1a\x92\xff\xff") * 300, 300, [SECOND * NS] * 300),
        (entry(b"\xd7\0" + struct.pack(">II", SECOND, 0x00D7FF00)), 1, [SECOND * NS + 0x00D7FF00]),
    ],
)
def test_what_is_read(data, count, times):
    columns = read_columns(data, count)
    assert columns is not None
    assert columns[0] == times


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"", 1),
        (entry(SECONDS), 2),
        (entry(SECONDS) * 2, 1),
        (entry(SECONDS)[:-1], 1),
        (entry(SECONDS) + entry(STAMP), 2),
        (entry(STAMP) + entry(SECONDS), 2),
        (entry(STAMP) + entry(b"\xd7\x01" + bytes(8)), 2),
        (entry(STAMP) + entry(b"\xc7\x0c\x00" + bytes(12)), 2),
        (entry(b"\xcb" + bytes(8)), 1),
        (entry(b"\xc3"), 1),
        (entry(SECONDS, b"\x90"), 1),
        (entry(SECONDS, b"\x81\xa1a\xa1\xff"), 1),
        (entry(SECONDS, b"\x81\xa1\xff\x01"), 1),
        (entry(SECONDS, b"\x81\xa1a\xd4\x05\0"), 1),
        (entry(SECONDS, b"\x81\xa1a" + STAMP), 1),
        (entry(SECONDS, b"\x81\xa1a\xd6\xff\0\0\0\1"), 1),
        (entry(SECONDS, b"\x81\xa1a\xd7\xff" + bytes(8)), 1),
        (entry(SECONDS, b"\x81\xa1a\xc7\x0c\xff" + bytes(12)), 1),
        (entry(SECONDS, b"\x81\xd6\xff\0\0\0\1\x01"), 1),
        (entry(SECONDS, b"\x81\xa1a" + b"\x91" * 1100 + b"\x01"), 1),
        (entry(SECONDS, b"\x81\xa1a\xdd\x7f\xff\xff\xff"), 1),
        (entry(SECONDS, b"\xdf\x7f\xff\xff\xff"), 1),
    ],
)
def test_what_is_left_to_the_exact_reader(data, count):
    assert read_columns(data, count) is None


def test_the_columns_of_a_batch_are_its_events():
    events = [(SECOND * NS + n, {"n": n}) for n in range(3)]
    for batch in (Batch.of(events), Batch.from_packed(Batch.of(events).packed(), 3)):
        assert batch.columns() == ([time for time, _ in events], [record for _, record in events])
        assert batch.columns() is batch.columns()
        assert list(batch.events()) == events
        assert batch.with_ack(1).columns() is batch.columns()


def test_the_columns_leave_out_what_is_no_event():
    batch = Batch.from_packed(entry(SECONDS) + b"\x92\x01\x02" + entry(SECONDS), 3)
    assert batch.columns() == ([SECOND * NS] * 2, [{"a": 1}] * 2)
    assert batch.count == 2
