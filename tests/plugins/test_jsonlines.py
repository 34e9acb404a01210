"""Many records as JSON in one go: byte for byte what each of them is alone."""

import math

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.event import EventTime
from headrace.plugins.jsoncodec import POLICIES, REJECT, UnencodableError, encode
from headrace.plugins.jsonlines import encode_lines

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(),
    st.sampled_from(["\udcff", b"\xff\n", 1 << 70, EventTime(5), msgpack.Timestamp(1, 2), msgpack.ExtType(5, b"x")]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=5)


def outcome(made):
    """The text, or the error of the first record that has none."""
    try:
        return made()
    except UnencodableError as error:
        return str(error)


@given(
    RECORDS, st.sampled_from(POLICIES), st.sampled_from([b"", b"\n", b"\r\n", b","]), st.booleans(), st.integers(1, 40)
)
@settings(max_examples=300, deadline=None)
def test_many_are_as_each_of_them(records, policy, end, one_head, times):
    records = records * times
    heads = [b"T\tt\t" if one_head else b"%d " % number for number in range(len(records))]
    each = list(zip(heads, records, strict=True))
    wanted = outcome(lambda: b"".join([head + encode(record, policy) + end for head, record in each]))
    assert outcome(lambda: encode_lines(records, b"T\tt\t" if one_head else heads, end, policy)) == wanted


def test_a_bad_record_among_many_is_replaced_or_rejected():
    records = [{"n": n} for n in range(100)]
    records[70] = {"n": math.nan, "s": "\udcff", "null": None}
    lines = encode_lines(records).splitlines()
    assert lines[69:72] == [b'{"n":69}', '{"n":null,"s":"�","null":null}'.encode(), b'{"n":71}']
    with pytest.raises(UnencodableError):
        encode_lines(records, policy=REJECT)
    records[70] = {"null": None}
    assert encode_lines(records, policy=REJECT).splitlines()[70] == b'{"null":null}'
