"""redis2_pass: what Redis is asked, and where its replies end."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edge.upstream.redis2 import ReplyScan
from headrace.edge.upstream.reply import BadReply
from headrace.errors import ConfError

REPLIES = st.deferred(
    lambda: st.one_of(
        st.sampled_from([b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n\r\n"]),
        st.binary(max_size=20).map(lambda text: b"$%d\r\n%b\r\n" % (len(text), text)),
        st.lists(REPLIES, max_size=3).map(lambda items: b"*%d\r\n%b" % (len(items), b"".join(items))),
    )
)


@given(st.lists(REPLIES, min_size=1, max_size=4), st.binary(max_size=5), st.data())
def test_the_end_is_found_however_bytes_come(replies, more, data):
    wire = b"".join(replies)
    scan, at, whole = ReplyScan(len(replies)), 0, wire + more
    while not scan.done:
        cut = data.draw(st.integers(at + 1, len(whole)))
        at += scan.take(whole[at:cut])
    assert at == len(wire)


@pytest.mark.parametrize(
    "wire", [b"HTTP/1.1 200 OK\r\n", b"x", b"$a\r\n", b"*1x\r\n", b"+OK\n", b"$" + b"9" * 30 + b"\r\n"]
)
def test_what_is_no_reply(wire):
    with pytest.raises(BadReply):
        ReplyScan(1).take(wire)


async def redis(reader, writer) -> None:
    """Commands one after the other, each answered with its words; PING in a line is `+PONG`."""
    while line := await reader.readline():
        if not line.startswith(b"*"):
            writer.write(b"+PONG\r\n")
            continue
        words = []
        for _ in range(int(line[1:])):
            size = int((await reader.readline())[1:])
            words.append(await reader.readexactly(size))
            await reader.readexactly(2)
        text = b" ".join(words)
        writer.write(b"$%d\r\n%b\r\n" % (len(text), text) if words[0] != b"none" else b"$-1\r\n")


LOCATIONS = r"""
    default_type text/plain;
    location /get { redis2_query get $arg_key; redis2_pass 127.0.0.1:PORT; }
    location /two { redis2_query set one $arg_v; redis2_query none; redis2_pass u; }
    location /raw { redis2_raw_query 'PING\r\n'; redis2_pass u; }
    location /raws { redis2_raw_queries $arg_n 'PING\r\nPING\r\n'; redis2_pass u; }
    location /literal { redis2_literal_raw_query 'PING $x\r\n'; redis2_pass u; }
    location /large { redis2_query echo $large; redis2_pass u; }
    location /nothing { redis2_pass u; }
    location /down { redis2_query a; redis2_pass unix:/nowhere; }
    location /web { redis2_query a; redis2_pass 127.0.0.1:WEB; }
"""
TABLE = [
    ("/get?key=a", 200, b"$5\r\nget a\r\n"),
    ("/two?v=1%0d", 200, b"$12\r\nset one 1%0d\r\n$-1\r\n"),
    ("/raw", 200, b"+PONG\r\n"),
    ("/raws?n=2", 200, b"+PONG\r\n+PONG\r\n"),
    ("/raws?n=x", 500, None),
    ("/literal", 200, b"+PONG\r\n"),
    ("/large", 200, b"$200005\r\necho " + b"x" * 200_000 + b"\r\n"),
    ("/nothing", 500, None),
    ("/down", 502, None),
    ("/web", 502, None),
]


async def web(_reader, writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await writer.drain()


async def test_what_redis_says_is_the_answer(ours, bare):
    port, other = await bare(redis), await bare(web)
    text = LOCATIONS.replace("PORT", str(port)).replace("WEB", str(other)).replace("$large", "x" * 200_000)
    await ours.start(text, f"upstream u {{ server 127.0.0.1:{port}; keepalive 2; }}")
    for target, status, body in TABLE:
        answer = await ours.get(target)
        assert (answer.status, answer.body if body is not None else None) == (status, body), target
    assert ours.gateway.upstreams["u"].stats()["opened"] == 1


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("redis2_pass a;", 'no port in upstream "a"'),
        ("redis2_query a; redis2_raw_query b; redis2_pass unix:/a;", '"redis2_query" cannot be used with a raw query'),
        ("redis2_raw_query a; redis2_raw_query b;", '"redis2_raw_query" directive is duplicate'),
        ("redis2_next_upstream http_500;", 'invalid value "http_500"'),
    ],
)
async def test_configurations_that_cannot_work(ours, conf, message):
    with pytest.raises(ConfError, match=re.escape(message)):
        await ours.start("location / { " + conf + " }")
