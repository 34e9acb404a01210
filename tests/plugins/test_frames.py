"""Bytes of a stream to messages: however they are cut, the same messages; and never more memory than is allowed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins.network.frames import Counted, Delimited, FrameError


def fed(frames, pieces):
    return [message for piece in pieces if piece for message in frames.feed(piece)]


def cut(data, at):
    edges = [0, *sorted({min(edge, len(data)) for edge in at}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.binary(max_size=12)), st.sampled_from([b"\n", b"\r\n", b"abab"]), st.lists(st.integers(0, 99)))
def test_delimited_however_it_is_cut(messages, delimiter, at):
    data = b"".join(message + delimiter for message in messages) + b"rest"
    *wanted, _rest = data.split(delimiter)
    assert fed(Delimited(delimiter, 100), cut(data, at)) == wanted


@given(
    st.lists(st.binary(max_size=12).filter(lambda m: b"ab" not in m and not m.endswith(b"a"))),
    st.lists(st.integers(0, 99)),
)
def test_delimited_leaves_out_what_is_too_long(messages, at):
    frames = Delimited(b"ab", 5)
    data = b"".join(message + b"ab" for message in messages)
    assert fed(frames, cut(data, at)) == [message for message in messages if len(message) <= 5]
    assert frames.dropped == sum(len(message) > 5 for message in messages)
    assert frames.pending <= 7


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.sampled_from([b"", b"\n", b" \r\n"]))), st.lists(st.integers(0, 200))
)
def test_counted_however_it_is_cut(messages, at):
    frames = Counted(20)
    data = b"".join(b"%d %b%b" % (len(message), message, after) for message, after in messages)
    assert fed(frames, cut(data, at)) == [message for message, _ in messages if len(message) <= 20]
    assert frames.dropped == sum(len(message) > 20 for message, _ in messages)
    assert frames.pending <= 24


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_whatever_comes_is_bounded(data, at):
    for frames in (Delimited(b"\n", 8), Counted(8)):
        try:
            assert all(len(message) <= 8 for message in fed(frames, cut(data, at)))
        except FrameError:
            continue
        assert frames.pending <= 20


@pytest.mark.parametrize("data", [b"x", b"<6>a b", b"12a ", b"-1 ", b"12345678901"])
def test_what_is_no_count(data):
    with pytest.raises(FrameError):
        Counted(100).feed(data)


def test_what_comes_before_a_fault_is_taken():
    frames = Counted(100)
    assert list(frames.feed(b"2 ab bad")) == [b"ab"]
    with pytest.raises(FrameError):
        frames.feed(b" more")


def test_bytes_that_never_end_cost_no_memory_and_no_time():
    frames = Delimited(b"\r\n", 1000)
    for _ in range(10_000):
        assert list(frames.feed(b"x" * 1000)) == []
        assert frames.pending <= 1001
    assert frames.dropped == 1
    assert list(frames.feed(b"\r\nnext\r\n")) == [b"next"]
    counted = Counted(1 << 20)
    assert list(counted.feed(b"900000 ")) == []
    for _ in range(899_999 // 10):
        assert list(counted.feed(b"y" * 10)) == []
    assert [len(message) for message in counted.feed(b"z" * 10)] == [900_000]
