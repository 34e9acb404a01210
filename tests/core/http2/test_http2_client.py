"""The client's side of HTTP/2 without sockets; h2 is the server."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes

from headrace.core.http2 import frames as h2
from headrace.core.http2.client import CHATTER, ClientConnection, Headers
from headrace.core.http2.frames import Fault
from headrace.core.http2.hpack import encode_fields

ASK = encode_fields([(b":method", b"POST"), (b":path", b"/x"), (b":scheme", b"http"), (b":authority", b"a")])
OK = [(":status", "200"), ("content-type", "application/grpc")]


class Pair:
    """A client and a server that hand bytes to each other."""

    def __init__(self, **settings: int) -> None:
        self.client = ClientConnection(16_384)
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.server.initiate_connection()
        if settings:
            self.server.update_settings({SettingCodes[name.upper()]: value for name, value in settings.items()})
        self.heard: list = []

    def up(self, data: bytes) -> list:
        events = self.server.receive_data(data)
        self.heard += events
        for event in events:
            if isinstance(event, DataReceived):
                self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        return events

    def down(self) -> list:
        events = self.client.receive(self.server.data_to_send())
        self.up(self.client.take_replies())
        return events

    def body(self) -> bytes:
        return b"".join(event.data for event in self.heard if isinstance(event, DataReceived))


def test_exchanges_one_after_the_other():
    pair = Pair()
    for number in (1, 3, 5):
        assert [type(event) for event in pair.up(pair.client.begin(ASK, end=True)) if number > 1] in (
            [],
            [RequestReceived, StreamEnded],
        )
        assert pair.client.number == number
        assert not pair.client.usable
        pair.server.send_headers(number, OK)
        pair.server.send_data(number, b"hello")
        pair.server.send_headers(number, [("grpc-status", "0")], end_stream=True)
        head, piece, trailers = pair.down()
        assert (head.fields[0], head.end, piece) == ((b":status", b"200"), False, b"hello")
        assert (trailers.fields, trailers.end) == ([(b"grpc-status", b"0")], True)
        assert pair.client.answered
        assert pair.client.usable


def test_the_body_keeps_to_the_windows():
    pair = Pair(initial_window_size=10)
    pair.up(pair.client.begin(ASK, end=False))
    pair.down()
    assert pair.client.room == 10
    body, at, rounds = b"x" * 35, 0, 0
    while at < len(body):
        piece = body[at : at + pair.client.room]
        at += len(piece)
        pair.up(pair.client.data(piece, end=at == len(body)))
        pair.down()
        rounds += 1
    assert pair.body() == body
    assert isinstance(pair.heard[-1], StreamEnded)
    assert rounds == 4
    pair.server.send_headers(1, OK, end_stream=True)
    pair.down()
    pair.client.begin(ASK, end=False)
    assert pair.client.room == 10  # what the server has set holds for the next one too


def test_a_large_body_goes_in_frames():
    pair = Pair()
    pair.up(pair.client.begin(ASK, end=False))
    pair.down()
    pair.up(pair.client.data(b"y" * 40_000, end=True))
    assert [len(event.data) for event in pair.heard if isinstance(event, DataReceived)] == [16_384, 16_384, 7_232]


def test_an_answer_before_the_end_of_the_request():
    pair = Pair()
    pair.up(pair.client.begin(ASK, end=False))
    pair.server.send_headers(1, OK, end_stream=True)
    pair.server.reset_stream(1, 0)
    (head,) = pair.down()
    assert head.end
    assert pair.client.answered


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (h2.reset_frame(1, 7), "upstream rejected request with error 7"),
        (h2.goaway_frame(0, 2), "upstream sent goaway with error 2"),
        (h2.frame(h2.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), "upstream sent PUSH_PROMISE frame"),
        (h2.frame(h2.HEADERS, 4, 1, b"\xbf"), "upstream sent invalid http2 header block: Invalid table index 63"),
        (h2.frame(h2.HEADERS, 4, 1, b"\0\x7f\xff\xff\xff\xff\xff\x7f"), "upstream sent invalid http2 header block"),
        (h2.frame(h2.HEADERS, 4, 1, b"\x88" * 16_000), "upstream sent too big header"),
        (h2.frame(h2.HEADERS, 4, 7, b"\x88"), "upstream sent frame for unknown stream 7"),
        (h2.frame(h2.CONTINUATION, 4, 1, b"\x88"), "upstream sent unexpected CONTINUATION frame"),
        (h2.frame(h2.HEADERS, 0, 1, b"\x88") + h2.frame(h2.PING, 0, 0, b"x" * 8), "unexpected http2 frame: 6"),
        (h2.window_frame(0, 0), "window update frame with no increment"),
        (h2.window_frame(1, h2.MAX_WINDOW), "too large window update"),
        (h2.settings_frame({h2.SET_FRAME_SIZE: 1}), "invalid frame size: 1"),
        (h2.frame(h2.SETTINGS, 0, 0, b"x"), "settings frame with invalid length: 1"),
        (h2.frame(h2.PING, 0, 0, b"x"), "ping frame with invalid length: 1"),
        (h2.frame(h2.PING, 0, 0, b"x" * 8) * (CHATTER + 1), "too many settings or ping frames"),
        (h2.frame(h2.HEADERS, 5, 1, b"\x88") + h2.frame(h2.DATA, 0, 1, b"x"), "frame for closed stream 1"),
        (h2.frame(h2.HEADERS, 5, 1, b"\x88") + h2.reset_frame(1, 8), "upstream rejected request with error 8"),
        (h2.frame(h2.HEADERS, 5, 1, b"\x88") + h2.reset_frame(1, 0) * 2, "frame for closed stream 1"),
    ],
)
def test_what_ends_an_exchange(wire, message):
    client = ClientConnection(16_384)
    client.begin(ASK, end=True)
    with pytest.raises(Fault) as caught:
        client.receive(wire)
    assert message in caught.value.message


def test_a_connection_that_says_goodbye_is_used_to_the_end_of_its_exchange():
    client = ClientConnection(16_384)
    client.begin(ASK, end=True)
    (head,) = client.receive(h2.goaway_frame(1, 0) + h2.frame(h2.HEADERS, 5, 1, b"\x88"))
    assert isinstance(head, Headers)
    assert client.answered
    assert not client.usable


def test_a_part_of_a_frame_keeps_a_connection_out_of_the_pool():
    client = ClientConnection(16_384)
    client.begin(ASK, end=True)
    client.receive(h2.frame(h2.HEADERS, 5, 1, b"\x88") + b"\0\0")
    assert not client.usable
