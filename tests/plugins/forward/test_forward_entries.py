"""Entries of messages: counted whatever the sender says, looked at, expanded within bounds."""

import contextlib
import gzip
import struct
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.event import Batch, EventTime, entry_ends, pack_event, pack_value, unpack_events
from headrace.plugins.forward import entries
from headrace.plugins.forward.entries import Refused, count, expand, is_usual, look

NOW = 1_800_000_000_000_000_005
T = 1_700_000_000_123_456_789


def stream(number=10):
    return b"".join(pack_event(T + index, {"n": index, "m": "x" * index}) for index in range(number))


@pytest.mark.parametrize("claimed", [0, 10, 9, 11, 1_000_000, (1 << 32) - 1, 1 << 32, -1])
def test_a_wrong_size_changes_no_count(claimed):
    assert count(stream(), claimed) == 10
    assert count(b"", claimed) == 0


@pytest.mark.parametrize(
    "data", [stream()[:-1], stream() + b"\xc1", stream() + b"\x92", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("claimed", [0, 10, 11])
def test_a_stream_that_is_not_whole_is_refused(data, claimed):
    with pytest.raises(Refused):
        count(data, claimed)


def test_a_large_stream_is_counted_entry_by_entry():
    data = stream(100) * 150
    assert len(data) > entries.LARGE
    for claimed in (0, 15_000, 7):
        assert count(data, claimed) == 15_000


def test_a_large_record_of_text_is_welcome_and_one_of_many_values_is_not():
    text = pack_event(T, {"m": "x" * 2_000_000}) + pack_event(T, {"list": ["y" * 50] * 20_000})
    assert count(text, 2) == 2
    for record in (
        {"list": [[]] * 1_000_000},
        {str(number): None for number in range(1_000_000)},
        {"a": [{"b": [0] * 30}] * 50_000},
    ):
        data = stream() + pack_event(T, record)
        with pytest.raises(Refused, match="holds more than 131072 values"):
            count(data, 11)
        with pytest.raises(Refused, match="values"):
            look(data, NOW)


def test_a_record_between_two_sizes_passes():
    assert count(pack_event(T, {"list": [[]] * 500_000}), 1) == 1


def entry(time, record):
    return pack_value([time, record])


def test_looking_mends_times_and_leaves_out_what_is_no_event():
    good = [
        entry(EventTime(T), {"n": 1}),
        entry(1_700_000_000, {"n": 2}),
        b"\x92\xcf" + struct.pack(">Q", 1_700_000_000) + b"\x81\xa1n\x03",
        b"\x92\xc7\x08\x00" + struct.pack(">II", 1_700_000_000, 5) + b"\x81\xa1n\x04",
        entry(1_700_000_000.5, {"n": 5}),
    ]
    now = [
        entry(None, {"n": 6}),
        entry(0, {"n": 7}),
        entry(EventTime(0), {"n": 8}),
        entry(EventTime(77), {"n": 9}),
        entry(0.25, {"n": 10}),
    ]
    metadata = [entry([EventTime(T), {"meta": 1}], {"n": 11}), entry([], {"n": 12})]
    bad = [
        entry(T, None),
        entry("x", {}),
        entry(T, "x"),
        b"\x01",
        b"\x80",
        b"\x90",
        b"\x91\x01",
        b"\x92\x01\x81\x90\x01",
        entry(float("nan"), {}),
        b"\xc0",
    ]
    data, number, refused = look(b"".join([bad[0], *good, *bad, *now, *metadata, bad[-1]]), NOW)
    assert (number, refused) == (12, 12)
    second = 1_700_000_000 * 10**9
    times = [T, second, second, second + 5, second + 500_000_000, *[NOW] * 5, T, NOW]
    assert unpack_events(data) == [(time, {"n": index + 1}) for index, time in enumerate(times)]
    for one in good:
        assert one in data
    assert look(data, NOW) == (data, 12, 0)
    assert look(data, NOW)[0] is data


def test_a_pair_with_more_members_is_cut_to_two():
    data, number, refused = look(pack_value([EventTime(T), {"a": 1}, {"b": 2}]), NOW)
    assert (number, refused) == (1, 0)
    assert unpack_events(data) == [(T, {"a": 1})]


def test_what_is_no_event_costs_its_neighbours_nothing_later_either():
    data = pack_event(T, {"a": 1}) + pack_value(["x", 5]) + b"\x92\x01\x81\x90\x01" + pack_event(T, {"b": 2})
    assert is_usual(data)
    batch = Batch.from_packed(data, count(data, 4))
    assert batch.count == 4
    assert batch.events() == [(T, {"a": 1}), (T, {"b": 2})]
    assert batch.count == 2
    assert unpack_events(batch.packed()) == batch.events()


@given(st.lists(st.binary(min_size=1, max_size=8), max_size=8))
def test_looking_at_anything_gives_events_or_a_refusal(pieces):
    data = b"".join(pieces)
    try:
        made, number, refused = look(data, NOW)
    except Refused:
        return
    assert len(unpack_events(made)) == number
    assert number + refused == len(entry_ends(data))


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("name", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_all_members_are_expanded(name, compress, members):
    data = stream(3000)
    assert expand(name, compress(data) * members) == data * members


def test_empty_and_unknown_and_damaged():
    assert expand("gzip", b"") == expand("zstd", b"") == b""
    for name, data in (
        ("gzip", gzip.compress(stream())[:-5]),
        ("gzip", gzip.compress(stream()) + b"xx"),
        ("gzip", b"no gzip"),
        ("gzip", zlib.compress(stream())),
        ("zstd", b"no zstd"),
        ("lz4", stream()),
    ):
        with pytest.raises(Refused):
            expand(name, data)


@pytest.mark.parametrize(("name", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_expansion_is_bounded(name, compress):
    bomb = compress(bytes(100 << 20))
    with pytest.raises(Refused, match="more than 200 times its size"):
        expand(name, bomb)
    with pytest.raises(Refused, match="more than 1048576 bytes"):
        expand(name, bomb, 1 << 20)
    small = compress(bytes(4 << 20))
    assert len(expand(name, small)) == 4 << 20  # short enough, whatever its ratio
    nested = expand(name, compress(bomb))  # undone once; what is inside is no stream of events
    assert not is_usual(nested)
    with contextlib.suppress(Refused):
        assert look(nested, NOW)[1] == 0


def test_a_zstd_window_is_bounded():
    wide = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True, write_content_size=False)
    ).compressobj()
    data = wide.compress(stream()) + wide.flush()
    with pytest.raises(Refused, match="damaged"):
        expand("zstd", data)


def test_a_cut_zstd_frame_is_refused():
    data = zstandard.compress(stream(1000))
    for cut in (data[:-10], data[:20], data[:3]):
        with pytest.raises(Refused):
            count(expand("zstd", cut), 1000)
