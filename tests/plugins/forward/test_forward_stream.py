"""The forward codec without I/O: every message type, in every slicing, and what is refused."""

import gzip
import itertools
import json
import struct

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.event import Batch, EventTime, pack_event, pack_value, unpack_events
from headrace.plugins.forward.messages import (
    FORWARD,
    PACKED,
    SINGLE,
    VALUE,
    encode_forward,
    encode_packed,
    packed_pieces,
)
from headrace.plugins.forward.stream import ANNOUNCED_LIMIT, Decoder

T = 1_700_000_000_123_456_789
EVENTS = [(T, {"a": 1}), (T + 1, {"b": "x" * 300}), (T + 2, {"c": [1, {"d": None}]})]
STREAM = b"".join(pack_event(*event) for event in EVENTS)
EXT8 = b"\xc7\x08\x00" + struct.pack(">II", 1_700_000_000, 123_456_789)
FIX = b"\xd7\x00" + struct.pack(">II", 1_700_000_000, 123_456_789)
RECORD = b"\x81\xa1a\x01"

MESSAGES = {
    "packed": (encode_packed("t", STREAM, 3), PACKED, EVENTS),
    "packed, bin": (b"\x92\xa1t\xc5" + struct.pack(">H", len(STREAM)) + STREAM, PACKED, EVENTS),
    "packed, bin8 and a bin tag": (b"\x92\xc4\x01t\xc4" + bytes([14 + 2]) + b"\x92" + FIX + b"\x81\xa1a" + b"\xcc\x05", PACKED, [(T, {"a": 5})]),
    "packed, empty": (b"\x92\xa1t\xa0", PACKED, []),
    "packed, options nil": (b"\x93\xa1t\xdb" + struct.pack(">I", len(STREAM)) + STREAM + b"\xc0", PACKED, EVENTS),
    "forward": (pack_value(["t", [[EventTime(time), record] for time, record in EVENTS]]), FORWARD, EVENTS),
    "forward, options": (pack_value(["t", [[EventTime(time), record] for time, record in EVENTS], {"chunk": "c"}]), FORWARD, EVENTS),
    "forward, array32": (b"\x92\xa1t\xdd\x00\x00\x00\x03" + STREAM, FORWARD, EVENTS),
    "forward, empty": (b"\x92\xa1t\x90", FORWARD, []),
    "message": (b"\x93\xa1t" + FIX + RECORD, SINGLE, [(T, {"a": 1})]),
    "message, ext8": (b"\x93\xa1t" + EXT8 + RECORD, SINGLE, [(T, {"a": 1})]),
    "message, integer": (b"\x93\xa1t" + pack_value(1_700_000_000) + RECORD, SINGLE, [(1_700_000_000 * 10**9, {"a": 1})]),
    "message, float": (b"\x93\xa1t" + pack_value(1_700_000_000.5) + RECORD, SINGLE, [(1_700_000_000_500_000_000, {"a": 1})]),
    "message, options": (b"\x94\xa1t" + FIX + RECORD + pack_value({"chunk": "c", "size": 1}), SINGLE, [(T, {"a": 1})]),
    "message, long": (b"\x93\xa1t" + FIX + pack_value({"m": "y" * 10_000}), SINGLE, [(T, {"m": "y" * 10_000})]),
}  # fmt: skip
JSON = {
    "message": (b'["t", 1700000000, {"a": 1}]', SINGLE, [(1_700_000_000 * 10**9, {"a": 1})]),
    "message, options": (b'["t",1700000000.5,{"a":"\\"]["},{"chunk":"c"}]', SINGLE, [(1_700_000_000_500_000_000, {"a": '"]['})]),
    "forward": (b'["t",[[1,{"a":"\\\\"}],[2,{"b":{}}]]]', FORWARD, [(10**9, {"a": "\\"}), (2 * 10**9, {"b": {}})]),
}  # fmt: skip


def check(message, kind, events):
    assert (message.kind, message.tag, message.problem) == (kind, b"t", "")
    assert unpack_events(message.entries) == events


@pytest.mark.parametrize("name", MESSAGES)
def test_each_form_at_every_split(name):
    data, kind, events = MESSAGES[name]
    cuts = range(len(data) + 1) if len(data) < 1000 else [*range(1, 40), 4095, 4096, 4097, len(data) - 1]
    for cut in cuts:
        decoder = Decoder()
        found = decoder.feed(data[:cut]) + decoder.feed(data[cut:] + data)
        assert decoder.error is None
        assert len(found) == 2, cut
        for message in found:
            check(message, kind, events)
            assert message.size == len(data)


def test_all_forms_on_one_connection_byte_by_byte():
    decoder = Decoder()
    stream = b"\xc0".join(data for data, _, _ in MESSAGES.values())
    found = [message for byte in stream for message in decoder.feed(bytes([byte]))]
    assert decoder.pending == 0
    for message, (_, kind, events) in zip(found, MESSAGES.values(), strict=True):
        check(message, kind, events)


@pytest.mark.parametrize("gap", [b"", b"\n", b" \r\n\t"])
def test_json_byte_by_byte_and_whole(gap):
    stream = gap.join(data for data, _, _ in JSON.values())
    for size in (1, 2, 7, len(stream)):
        decoder = Decoder()
        found = []
        for at in range(0, len(stream), size):
            found += decoder.feed(stream[at : at + size])
        assert decoder.is_json
        for message, (_, kind, events) in zip(found, JSON.values(), strict=True):
            check(message, kind, events)
    assert found[1].option("chunk") == "c"


def test_event_times_keep_their_bytes():
    decoder = Decoder()
    (message,) = decoder.feed(bytes.fromhex("93a174d7006553f100075bcd1581a16101"))
    assert message.entries == bytes.fromhex("92d7006553f100075bcd1581a16101")
    assert unpack_events(message.entries) == [(1_700_000_000_123_456_789, {"a": 1})]


def test_options_in_both_kinds_of_strings():
    for options in (
        {"chunk": "abc", "size": 3, "compressed": "gzip"},
        {b"chunk": b"abc", b"size": 3, b"compressed": b"gzip"},
    ):
        (message,) = Decoder().feed(b"\x93\xa1t\xa0" + pack_value(options))
        assert (message.count, message.compression) == (3, "gzip")
        assert message.option("chunk") in ("abc", b"abc")


@pytest.mark.parametrize("size", [-1, 1 << 40, "3", None, 2.5])
def test_a_size_that_cannot_be_is_none(size):
    (message,) = Decoder().feed(b"\x93\xa1t\xa0" + pack_value({"size": size}))
    assert message.count == 0


@pytest.mark.parametrize(
    "value",
    [1, "x", {"a": 1}, [], ["t"], [1, 2, 3], ["t", 5], [["t"], [], {}], ["t", [], 7], ["t", 1, {}, 7], ["t", 1, {}, {}, 5]],
)  # fmt: skip
def test_a_message_without_sense_does_not_harm_the_next(value):
    decoder = Decoder()
    good = MESSAGES["packed"][0]
    bad, after = decoder.feed(pack_value(value) + good)
    assert bad.problem
    check(after, PACKED, EVENTS)
    assert decoder.error is None


def test_handshake_values_then_messages_of_the_same_read():
    decoder = Decoder()
    decoder.values = True
    decoder.push(pack_value(["PING", "h", "s", "d", "", ""]) + MESSAGES["packed"][0])
    ping = decoder.next()
    assert ping is not None
    assert ping.kind == VALUE
    assert ping.value == ["PING", "h", "s", "d", "", ""]
    decoder.values = False
    check(decoder.next(), PACKED, EVENTS)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x92\xa1t\xc6\x40\x00\x00\x00", "announces 1073741824 bytes"),
        (b"\x92\xa1t\xdb\xff\xff\xff\xff", "announces"),
        (b"\x92\xdb\x40\x00\x00\x00", "tag of 1073741824 bytes"),
        (b"\xc1", "malformed"),
        (b"\x92\xa1t" + b"\x91" * 100_000, "malformed"),
        (b"\x93\xa1t\x00" + b"\x81\xa1a" * 100_000, "malformed"),
        (b"\x91" * 100_000, "malformed"),
        (b"\x93\xa1t\xa0\xdf\x00\x0f\x42\x40" + b"\xa1a\x00" * 10_000, "exceeds max_map_len"),
        (b"\x93\xa1t\xa0\x81\xa1a\xda\xff\xff" + b"x" * 40_000, "options of more than"),
        (b"\x93\xda\x30\x00" + b"t" * 0x3000 + b"\x01\x80", "tag of 12288 bytes"),
        (b'["t",' + b"[" * 100_000, "nested deeper"),
        (b'{"a":1}x', "JSON array"),
        (b'["t",0,{' + b'"a":1,' * 300_000, "values"),
        (b'["t",0,{"a":"' + b"x" * (17 << 20), "bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_ends_a_connection(data, text):
    decoder = Decoder()
    for at in range(0, len(data), 65536):
        decoder.feed(data[at : at + 65536])
        if decoder.error is not None:
            break
    assert decoder.error is not None
    assert text in decoder.error.message
    assert decoder.feed(b"\x92\xa1t\xa0") == []


def test_a_message_that_grows_is_given_up_at_its_limit():
    decoder = Decoder(grown=1 << 20)
    decoder.feed(b"\x92\xa1t\xdd\xff\xff\xff\xff")
    sent = 0
    piece = pack_event(T, {"a": "x" * 100}) * 100
    while decoder.error is None:
        assert decoder.feed(piece) == []
        sent += len(piece)
        assert sent < 2 << 20
    assert "more than 1048576 bytes" in decoder.error.message


def test_a_long_message_in_small_pieces_is_read_once():
    body = pack_value(["t", [[EventTime(T), {"m": "z" * 50_000}]] * 20])
    decoder = Decoder()
    found = []
    for at in range(0, len(body), 3):
        found += decoder.feed(body[at : at + 3])
    (message,) = found
    assert message.count == 20
    assert len(decoder._parts) == 0


def test_packed_pieces_hold_the_entries_themselves():
    head, middle, tail = packed_pieces("a.b", STREAM, 3, chunk_id=b"0123456789abcdef", compressed="gzip")
    assert middle is STREAM
    value = msgpack.unpackb(head + middle + tail, unicode_errors="surrogateescape")
    assert value[2] == {"size": 3, "compressed": "gzip", "chunk": "MDEyMzQ1Njc4OWFiY2RlZg==\n"}
    with pytest.raises(ValueError, match="4 GiB"):
        packed_pieces("t", _Huge(), 1)


class _Huge(bytes):
    def __len__(self):
        return 1 << 32


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
events = st.lists(
    st.tuples(st.integers(10**9, 2**32 * 10**9 - 1), st.dictionaries(st.text(max_size=5), values, max_size=4)),
    max_size=5,
)


@given(
    st.lists(st.tuples(events, st.sampled_from(["packed", "forward", "single"])), max_size=6),
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_any_events_in_any_slicing(batches, sizes):
    stream = b""
    wanted = []
    for some, form in batches:
        if form == "packed":
            stream += encode_packed("t", Batch.of(some).packed(), len(some))
            wanted.append(some)
        elif form == "forward":
            stream += encode_forward("t", [(EventTime(time), record) for time, record in some], {"size": len(some)})
            wanted.append(some)
        else:
            for time, record in some:
                stream += pack_value(["t", EventTime(time), record])
                wanted.append([(time, record)])
    decoder = Decoder()
    found = []
    at = 0
    turns = itertools.cycle(sizes)
    while at < len(stream):
        size = next(turns)
        found += decoder.feed(stream[at : at + size])
        at += size
    assert [unpack_events(message.entries) for message in found] == wanted


@given(st.binary(max_size=200), st.integers(1, 20))
def test_no_bytes_raise(noise, size):
    decoder = Decoder()
    for at in range(0, len(noise), size):
        decoder.feed(noise[at : at + size])


@given(values, st.integers(1, 9))
def test_any_value_is_a_message_or_has_a_problem(value, size):
    decoder = Decoder()
    data = pack_value(value) + MESSAGES["message"][0]
    found = []
    for at in range(0, len(data), size):
        found += decoder.feed(data[at : at + size])
    if decoder.error is None:
        check(found[-1], SINGLE, [(T, {"a": 1})])


@given(st.text() | st.lists(values), st.integers(1, 9))
def test_any_json_is_cut_where_it_ends(value, size):
    data = (json.dumps(["t", 1, {"v": repr(value)}]) + "\n").encode() * 2
    decoder = Decoder()
    found = []
    for at in range(0, len(data), size):
        found += decoder.feed(data[at : at + size])
    assert [unpack_events(one.entries) for one in found] == [[(10**9, {"v": repr(value)})]] * 2


def test_limits_are_what_fluentd_sends():
    assert ANNOUNCED_LIMIT == 256 << 20
    for compressed in (gzip.compress(STREAM), zstandard.compress(STREAM)):
        (message,) = Decoder().feed(encode_packed("t", compressed, 3, compressed="gzip"))
        assert message.entries == compressed
