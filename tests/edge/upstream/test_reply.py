"""Readers of answers: the outcome does not depend on how bytes are cut, and nothing makes them raise but BadReply."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.edge.upstream.cgi import CgiReader
from headrace.edge.upstream.fastcgi import FastcgiReader
from headrace.edge.upstream.memcached import MemcachedReader
from headrace.edge.upstream.reply import BadReply, HttpReader

REPLIES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
    b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nhello until the end",
    b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    b"no HTTP at all",
    b"HTTP/9 what",
    b"",
]


def outcome(reader, pieces: list[bytes]) -> tuple:
    body, error = b"", None
    try:
        for piece in pieces:
            body += b"".join(reader.feed(piece))
            if reader.done:
                break
        else:
            reader.eof()
    except BadReply as failure:
        error = failure.message
    status = None if reader.head is None else reader.head.status
    return status, body, error, reader.done, reader.length, reader.trailers


@pytest.mark.parametrize("reply", REPLIES)
def test_every_split_is_the_same(reply):
    whole = outcome(HttpReader(b"GET", 4096), [reply] if reply else [])
    for at in range(1, len(reply)):
        found = outcome(HttpReader(b"GET", 4096), [reply[:at], reply[at:]])
        assert found == whole, at
    assert outcome(HttpReader(b"GET", 4096), [reply[i : i + 1] for i in range(len(reply))]) == whole


@pytest.mark.parametrize(
    "make",
    [
        lambda: HttpReader(b"GET", 512),
        lambda: CgiReader(b"GET", 512),
        lambda: FastcgiReader(b"GET", 512),
        lambda: MemcachedReader(b"k", 0, 512),
    ],
)
@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [
                    b"HTTP/1.1 200 OK\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n", b"3\r\nabc\r\n",
                    b"0\r\n\r\n", b"Status: 404 X\r\n", b"\1\6\0\1\0\4\0\0a:b\n", b"\1\6\0\1\0\0\0\0", b"\1\3\0\1\0\0\0\0",
                    b"VALUE k 0 3\r\n", b"abc\r\nEND\r\n", b"END\r\n", b"x" * 600,
                ]
            ),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_any_bytes_end_in_an_answer_or_a_bad_reply(make, pieces):
    outcome(make(), [piece for piece in pieces if piece])
