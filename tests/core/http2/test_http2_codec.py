"""HTTP/2 without sockets: the cut into frames, heads in both directions."""

from __future__ import annotations

import contextlib

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.http1.settings import ServerSettings
from headrace.core.http2 import frames as h2
from headrace.core.http2.frames import Fault, FrameReader
from headrace.core.http2.heads import HeadDecoder, answer_block, request_head
from headrace.core.http2.hpack import encode_fields
from headrace.errors import HttpError

SETTINGS = ServerSettings()
GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/a?b"), (b":authority", b"example.com")]


@given(
    st.lists(st.tuples(st.integers(6, 9), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40))), st.data()
)
def test_frames_are_the_same_however_they_come(made, data):
    wire = b"".join(h2.frame(*one) for one in made)
    reader, found = FrameReader(), []
    while wire:
        cut = data.draw(st.integers(1, len(wire)))
        reader.feed(wire[:cut])
        wire = wire[cut:]
        while (one := reader.next()) is not None:
            found.append(one)
    assert found == made
    assert reader.begun is None


def test_a_large_frame_is_refused_by_its_header():
    reader = FrameReader()
    reader.feed(h2.frame(h2.HEADERS, 0, 1, b"x" * (h2.FRAME_SIZE + 1))[:9])
    with pytest.raises(Fault) as caught:
        reader.next()
    assert caught.value.code == h2.FRAME_SIZE_ERROR


@pytest.mark.parametrize("padding", [b"", b"\0", b"\3\0\0\0"])
@pytest.mark.parametrize("cut", [1, 9, 10, 5000, 100_000])
def test_a_large_data_frame_is_taken_in_pieces(padding, cut):
    body = bytes(range(256)) * 200
    flags = h2.END_STREAM | (h2.PADDED if padding else 0)
    wire = h2.frame(h2.DATA, flags, 5, padding[:1] + body + padding[1:]) + h2.frame(h2.PING, 0, 0, b"x" * 8)
    reader, found = FrameReader(), []
    for at in range(0, len(wire), cut):
        reader.feed(wire[at : at + cut])
        while (one := reader.next()) is not None:
            found.append(one)
    assert found.pop() == (h2.PING, 0, 0, b"x" * 8)
    assert {one[0] for one in found} == {h2.DATA}
    assert [one[1] & h2.END_STREAM for one in found] == [0] * (len(found) - 1) + [1]
    assert b"".join(h2.unpadded(one[1], one[3]) for one in found) == body
    assert sum(len(one[3]) for one in found) == len(body) + len(padding)
    assert len(found) < 20
    assert reader.begun is None


def test_a_request_becomes_the_head_that_http1_has():
    head = request_head([*GET, (b"cookie", b"a=1"), (b"x-y", b" z "), (b"cookie", b"b=2"), (b"x_y", b"1")], SETTINGS)
    assert (head.method, head.target, head.version, head.host) == (b"GET", b"/a?b", 20, b"example.com")
    assert head.headers() == [(b"host", b"example.com"), (b"cookie", b"a=1; b=2"), (b"x-y", b"z")]
    assert head.request_line == b"GET /a?b HTTP/2.0"
    assert request_head([*GET, (b"host", b"example.com")], SETTINGS).host == b"example.com"


@pytest.mark.parametrize(
    "fields",
    [
        GET[1:],
        GET[:1] + GET[2:],
        GET[:2] + GET[3:],
        GET[:3],
        [*GET[:3], (b":authority", b"")],
        [*GET, (b":path", b"/")],
        [*GET, (b":status", b"200")],
        [*GET[:3], (b"a", b"b"), GET[3]],
        [*GET, (b"host", b"other")],
        [*GET, (b"X-Upper", b"1")],
        [*GET, (b"a b", b"1")],
        [*GET, (b"a:b", b"1")],
        [*GET, (b"", b"1")],
        [*GET, (b"a", b"1\r\nb: 2")],
        [*GET, (b"a", b"\0")],
        [*GET, (b"connection", b"close")],
        [*GET, (b"transfer-encoding", b"chunked")],
        [*GET, (b"content-length", b"1"), (b"content-length", b"2")],
        [*GET, (b"content-length", b"+1")],
        [(b":method", b"get"), *GET[1:]],
        [*GET[:2], (b":path", b"x"), GET[3]],
        [*GET[:2], (b":path", b"/ x"), GET[3]],
        [*GET[:2], (b":path", b"/../x"), GET[3]],
        [*GET[:2], (b":path", b"/%00"), GET[3]],
    ],
)
def test_malformed_requests(fields):
    with pytest.raises(HttpError) as caught:
        request_head(fields, SETTINGS)
    assert caught.value.status == 400


def test_heads_are_limited_when_they_are_decoded():
    decoder = HeadDecoder.of(ServerSettings(large_headers=(2, 600)).rules)
    encoder = Encoder()
    assert decoder.decode(encoder.encode([*GET, (b"x", b"y" * 600)]))[-1] == (b"x", b"y" * 600)
    for fields in ([(b"x", b"y" * 601)], [(b"x", b"y" * 599)] * 3, [(b"a", b"")] * 1300):
        with pytest.raises(Fault) as caught:
            HeadDecoder.of(ServerSettings(large_headers=(2, 600)).rules).decode(Encoder().encode(fields))
        assert caught.value.code == h2.ENHANCE_YOUR_CALM


def test_a_compressed_bomb_is_not_unpacked():
    """A block of a few kilobytes that stands for many megabytes."""
    bomb = Encoder().encode([(b"x", b"y" * 3900)]) + b"\xbe" * 16_000
    with pytest.raises(Fault) as caught:
        HeadDecoder.of(SETTINGS.rules).decode(bomb)
    assert caught.value.code == h2.ENHANCE_YOUR_CALM


@given(st.binary(max_size=200))
def test_any_block_is_decoded_or_a_fault(block):
    """Nothing else is raised."""
    with contextlib.suppress(Fault, HttpError):
        request_head(HeadDecoder.of(SETTINGS.rules).decode(block), SETTINGS)


TEXT = st.text("abcdefghijklmnop-", min_size=1, max_size=20).map(str.encode)


@given(st.lists(st.tuples(TEXT, st.binary(max_size=300))))
def test_a_decoder_reads_what_we_encode(fields):
    assert [tuple(field) for field in Decoder(1 << 20).decode(encode_fields(fields), raw=True)] == fields


def test_the_head_of_an_answer():
    head = (
        b"HTTP/1.1 404 Not Found\r\nServer: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nX-A: b: c\r\n\r\n"
    )
    fields = [tuple(field) for field in Decoder().decode(answer_block(head), raw=True)]
    assert fields == [(b":status", b"404"), (b"server", b"x"), (b"x-a", b"b: c")]


def test_frames_that_h2_makes_are_read():
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(name.decode(), value.decode()) for name, value in GET], end_stream=True)
    wire = client.data_to_send()
    assert wire.startswith(h2.PREFACE)
    reader = FrameReader()
    reader.feed(wire[len(h2.PREFACE) :])
    kinds = []
    while (one := reader.next()) is not None:
        kinds.append(one[0])
    assert kinds == [h2.SETTINGS, h2.HEADERS]
