"""grpc_pass: what the upstream gets, what the client gets, judged by nginx with the same configuration."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
from grpc_origin import GrpcOrigin, hello, length, reset, status

from headrace.errors import ConfError


@pytest.fixture
async def grpc():
    """`await grpc(script)` starts an HTTP/2 origin."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(script, early=None) -> GrpcOrigin:
            return await stack.enter_async_context(GrpcOrigin(script, early))

        yield make


ASKED = [
    ("grpc_pass 127.0.0.1:PORT;", "/a/b?c", (), b""),
    ("grpc_pass grpc://127.0.0.1:PORT;", "/a%20b", ("TE: gzip, trailers", "X-Y: z", "Keep-Alive: 3"), b"body"),
    ("grpc_pass grpc://127.0.0.1:PORT; grpc_set_header Host x; grpc_set_header X-Y '';", "/", ("X-Y: z",), b"b" * 9000),
    ("set $to 127.0.0.1:PORT; grpc_pass grpc://$to; grpc_set_header X-U $uri;", "/u", ("TE: gzip",), b""),
    ("set $args ''; grpc_pass 127.0.0.1:PORT;", "/a?b", ("Upgrade: h", "Expect: x", "Cookie: a=b"), b""),
]


@pytest.mark.parametrize(("server", "target", "fields", "body"), ASKED)
async def test_what_the_upstream_gets_is_what_nginx_sends(ours, nginx, grpc, server, target, fields, body):
    there = await grpc(hello)
    for side in (ours, nginx):
        await side.start("location / { " + server.replace("PORT", str(there.port)) + " }")
        await side.get(target, *fields, method="POST" if body else "GET", body=body)
    mine, its = there.requests
    assert mine.fields == its.fields
    assert mine.body == its.body == body


ANSWERED = [(hello, ""), (status("200"), ""), (status("404"), ""), (reset, ""), (length(5), ""),
            (status("404"), "grpc_intercept_errors on; error_page 404 =200 /e;"),
            (hello, "grpc_hide_header X-A; grpc_pass_header Server;")]  # fmt: skip


@pytest.mark.parametrize(("script", "more"), ANSWERED)
async def test_what_the_client_gets_is_what_nginx_sends(ours, nginx, grpc, script, more):
    there = await grpc(script)
    answers = []
    for side in (ours, nginx):
        conf = f"location / {{ grpc_pass 127.0.0.1:{there.port}; {more} }} location = /e {{ return 200 e; }}"
        await side.start(conf)
        answers.append(await side.get("/"))
    mine, its = answers
    assert mine.line == its.line
    kept = [
        [(name, value) for name, value in one.fields if name not in ("Date", "Server", "Content-Length")]
        for one in answers
    ]
    assert kept[0] == kept[1]
    if mine.status == 200:
        assert mine.body == its.body


async def test_trailers_go_to_clients_that_take_them(ours, grpc):
    there = await grpc(hello)
    await ours.start(
        f"location / {{ grpc_pass 127.0.0.1:{there.port}; add_trailer X-T $upstream_trailer_grpc_status; }}"
    )
    raw = await ours.raw(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n")
    assert raw.endswith(b"0\r\ngrpc-status: 0\r\ngrpc-message: fine\r\nX-T: 0\r\n\r\n")


async def test_a_kept_connection_carries_the_next_request(ours, grpc):
    there = await grpc(hello)
    await ours.start("location / { grpc_pass u; }", f"upstream u {{ server 127.0.0.1:{there.port}; keepalive 1; }}")
    for _ in range(3):
        assert (await ours.get("/", method="POST", body=b"x" * 100_000)).body == b"hello " + b"x" * 10
    assert there.accepts == 1
    assert [one.stream for one in there.requests] == [1, 3, 5]
    assert [len(one.body) for one in there.requests] == [100_000] * 3


async def test_http_and_grpc_do_not_share_connections(ours, grpc):
    there = await grpc(hello)
    server = "location / { grpc_pass u; } location /h { proxy_pass http://u; proxy_http_version 1.1; }"
    await ours.start(server, f"upstream u {{ server 127.0.0.1:{there.port}; keepalive 4; }}")
    assert (await ours.get("/")).status == 200
    await ours.get("/h")
    assert (await ours.get("/")).status == 200
    assert [(one.connection, one.stream) for one in there.requests] == [(1, 1), (1, 3)]
    assert there.accepts == 2


async def test_the_next_upstream_is_asked(ours, grpc):
    bad, good = await grpc(reset), await grpc(hello)
    http = f"upstream u {{ server 127.0.0.1:{bad.port}; server 127.0.0.1:{good.port}; }}"
    await ours.start("location / { grpc_pass u; grpc_next_upstream invalid_header; }", http)
    for _ in range(2):
        assert (await ours.get("/")).body == b"hello "
    assert len(bad.requests) == 1


async def test_the_body_goes_while_it_arrives_and_the_answer_comes_before_its_end(ours, grpc):
    def early(_origin, conn, asked) -> None:
        conn.send_headers(asked.stream, [(":status", "200"), ("x-early", "1")])

    def end(_origin, conn, asked) -> None:
        conn.send_data(asked.stream, asked.body, end_stream=True)

    there = await grpc(end, early)
    await ours.start(f"location / {{ grpc_pass 127.0.0.1:{there.port}; }}")
    reader, writer = await ours.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert b"x-early: 1" in head
    writer.write(b"2\r\nab\r\n")
    while there.requests[0].body != b"ab":
        await asyncio.sleep(0.001)
    writer.write(b"1\r\nc\r\n0\r\n\r\n")
    assert b"abc" in await asyncio.wait_for(reader.read(), 10)
    writer.close()


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("grpc_pass 127.0.0.1;", 'no port in upstream "127.0.0.1"'),
        ("grpc_pass 127.0.0.1:1; grpc_pass 127.0.0.1:2;", '"grpc_pass" directive is duplicate'),
        ("grpc_buffering off;", 'unknown directive "grpc_buffering"'),
        ("grpc_next_upstream x;", 'invalid value "x"'),
    ],
)
async def test_configurations_that_cannot_work(ours, conf, message):
    with pytest.raises(ConfError, match=re.escape(message)):
        await ours.start("location / { " + conf + " }")
