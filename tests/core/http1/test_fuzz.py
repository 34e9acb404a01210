"""Any bytes, cut anywhere: the same events, the same fault, and never an unexpected exception."""

from __future__ import annotations

import asyncio

from http1_rig import Handler, Rig, head_for, read_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_table import outcome

from headrace.core.http1.parse import ProtocolError, ResponseParser
from headrace.testing.clock import settle

WORDS = [
    b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.0\r\n", b"GET /\r\n", b"Host: a\r\n", b"Host: b\n", b"\r\n", b"\n", b"\r",
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"hello", b"5\r\n", b"0\r\n", b"0\r\n\r\n", b"5;x=y\r\nhello\r\n", b"A: b\r\n", b"A b\r\n", b": c\r\n", b" x\r\n",
    b"\x00", b"\xff", b"GET", b" ", b"/", b"HTTP/1.1", b"a_b: c\r\n", b"http://h/p", b"%2e%2e/", b"Expect: 100-continue\r\n",
]  # fmt: skip
GOOD = [
    b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n",
    b"GET /4 HTTP/1.1\nHost: a\nbad(header\n\n",
]
REPLIES = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.1 204 N\r\n", *WORDS,
]  # fmt: skip


@st.composite
def cut(draw, source):
    data = draw(source)
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def joined(words):
    return st.lists(st.one_of(st.sampled_from(words), st.binary(max_size=4)), max_size=14).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(cut(st.one_of(joined(WORDS), joined(GOOD), joined(GOOD + WORDS))))
def test_requests(pieces):
    assert outcome(pieces) == outcome([b"".join(pieces)])


@given(st.lists(st.sampled_from(GOOD), max_size=5))
def test_good_requests_are_whole(requests):
    events, error, between = outcome([b"".join(requests)])
    assert error is None
    assert between
    assert sum(isinstance(event, tuple) for event in events) == len(requests)


def reply(pieces, method):
    parser = ResponseParser(method)
    body = b""
    try:
        for piece in pieces:
            body += b"".join(event for event in parser.feed(piece) if isinstance(event, bytes))
        if not parser.done:
            parser.feed_eof()
    except ProtocolError as error:
        return "fault", error.kind
    assert parser.head
    return parser.head.raw, body, parser.leftover, parser.head.keep_alive


@settings(max_examples=400, deadline=None)
@given(cut(joined(REPLIES).map(lambda tail: b"HTTP/1.1 200 OK\r\n" + tail)), st.sampled_from([b"GET", b"HEAD"]))
def test_replies(pieces, method):
    whole = reply([b"".join(pieces)], method)
    assert reply(pieces, method) == whole


async def serve(pieces, mode):
    """Statuses that a connection answers, with a handler of one of several habits."""

    async def later(exchange):
        if mode == "whole":
            await exchange.read_body()
        elif mode == "pieces":
            while await exchange.next_chunk():
                pass
        exchange.respond(head_for(exchange, 200, 0))

    def handle(exchange):
        if mode == "ignore":
            exchange.respond(head_for(exchange, 200, 0))
            return None
        return later(exchange)

    rig = Rig(Handler(handle), max_body=16)
    for piece in pieces:
        rig.send(piece)
        await settle(3)
    rig.pair.far.shutdown_write()
    for _ in range(6):
        await settle()
    stats = rig.settings.stats
    assert rig.ended
    assert not rig.faults
    assert not rig.pair.loop.failures
    assert stats.requests == stats.answered == rig.conn.requests
    assert (stats.connections, rig.handler.closed_count) == (0, 1)
    methods = [piece.split(b" ")[0] for piece in b"".join(pieces).split(b"\n")]
    return [status for status in read_answers(rig.output, methods if b"HEAD" in methods else []) if status != "100"]


@settings(max_examples=100, deadline=None)
@given(cut(st.one_of(joined(WORDS), joined(GOOD + WORDS))), st.sampled_from(["whole", "pieces", "ignore", "async"]))
def test_connections(pieces, mode):
    answered = asyncio.run(serve(pieces, mode))
    if mode == "whole":
        assert answered == asyncio.run(serve([b"".join(pieces)], mode))
