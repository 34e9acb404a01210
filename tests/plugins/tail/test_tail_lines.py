"""Bytes -> lines, at every split; encodings; quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins.in_tail.encodings import codec_of, converter, line_end
from headrace.plugins.in_tail.groups import Group, Quota
from headrace.plugins.in_tail.lines import LineSplitter
from headrace.plugins.in_tail.tailed import tag_of

pieces = st.lists(st.binary(max_size=12).map(lambda raw: raw.translate(bytes(b"ab\n"[c % 3] for c in range(256)))))


def read(data, splitter, sizes, most):
    """As a reader does: blocks of some sizes, the unused part of a block is read again."""
    at, lines, turns = 0, [], 0
    while at < len(data):
        block = data[at : at + sizes[turns % len(sizes)]]
        turns += 1
        got, used = splitter.feed(block, most)
        assert len(got) <= most
        assert 0 < used <= len(block)
        at += used
        lines += got
    return lines


@given(pieces.map(b"".join), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_lines_are_the_same_at_every_split(data, sizes, most):
    splitter = LineSplitter()
    lines = read(data, splitter, sizes, most)
    whole, _newline, rest = data.rpartition(b"\n")
    assert lines == (whole.split(b"\n") if _newline else [])
    assert splitter.held == len(rest)
    assert splitter.rest() == rest
    assert splitter.held == 0


@given(
    st.lists(st.text("aĊ\u0a0a\u0d0ab", max_size=6), min_size=1),
    st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_wide_line_ends_stand_at_their_multiples(texts, codec, sizes, most):
    data = "".join(text + "\n" for text in texts).encode(codec)
    lines = read(data, LineSplitter(line_end(codec)), sizes, most)
    assert [line.decode(codec) for line in lines] == texts


@given(
    st.lists(st.integers(0, 12), max_size=12), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4)
)
def test_long_lines_are_left_out_wherever_they_are_cut(lengths, sizes, most):
    texts = [bytes([97 + index % 26]) * length for index, length in enumerate(lengths)]
    splitter = LineSplitter(limit=6)
    lines = read(b"".join(text + b"\n" for text in texts), splitter, sizes, most)
    assert lines == [text for text in texts if len(text) + 1 <= 6]
    assert splitter.skipped == sum(len(text) + 1 > 6 for text in texts)
    assert splitter.held == 0


def test_a_line_that_goes_on_and_on_is_not_kept():
    splitter = LineSplitter(limit=10)
    for _ in range(100):
        assert splitter.feed(b"x" * 10, 5) == ([], 10)
    assert splitter.held == 1000
    assert splitter.rest() == b""


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("UTF-8", "utf-8"),
        ("Shift_JIS", "shift_jis"),
        ("EUC-JP", "euc_jp"),
        ("ASCII-8BIT", ""),
        ("UTF-16LE", "utf-16-le"),
        ("Windows-31J", "cp932"),
        ("ISO-8859-1", "iso8859-1"),
        ("cp1252", "cp1252"),
        ("US-ASCII", "ascii"),
    ],
)
def test_names_of_encodings_are_rubys(name, codec):
    assert codec_of(name) == codec


@pytest.mark.parametrize("name", ["invalid_encoding", "UTF-16", "rot13", "base64", "cp037"])
def test_what_is_no_encoding_of_lines_is_refused(name):
    with pytest.raises(ValueError, match=r"encoding|order of bytes|lines cannot"):
        codec_of(name)


def test_lines_are_converted_and_what_cannot_be_is_replaced():
    convert = converter("cp932", "utf-8")
    assert convert("あ".encode("cp932")).decode() == "あ"
    assert converter("shift_jis", "utf-8")(b"ok\xff!").decode().startswith("ok\ufffd")
    assert converter("utf-8", "ascii")("é".encode()) == b"?"
    assert converter("utf-8", "utf-8") is None


def test_tag_of_a_path():
    assert tag_of("/var//log/a.log") == "var.log.a.log"
    assert tag_of("a/b") == "a.b"


def test_quotas_count_by_period_and_share():
    group = Group(10, 5.0)
    group.paths |= {"a", "b"}
    quota = Quota(100, group)
    assert quota.limited
    assert quota.lines_left(0.0, 50) == 5
    assert quota.bytes_left(0.0, 64) == 64
    quota.count(64, 5)
    assert quota.lines_left(1.0, 50) == 0
    assert quota.wait(1.0) == 4.0
    assert quota.bytes_left(0.5, 64) == 36
    quota.count(36, 0)
    assert quota.bytes_left(0.9, 64) == 0
    assert quota.bytes_left(1.0, 64) == 64
    assert quota.lines_left(5.0, 50) == 5
    none = Quota(-1, Group(0, 5.0))
    assert none.lines_left(0.0, 9) == 0
    assert none.limited
    assert not Quota(-1, Group(-1, 5.0)).limited
