"""Visits over kept connections that need no task: what goes that way, and what becomes of everything else."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.http1 import server as http_server
from headrace.edge.upstream import prompt
from headrace.testing.origin import Reply, ok

KEPT = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://u;"
LOG = "$status $upstream_status $upstream_addr $upstream_response_length $upstream_bytes_received"


@pytest.fixture
def tasks(monkeypatch):
    """The tasks that requests got: one mark each."""
    made: list[str] = []
    for module in (http_server, prompt):
        spawn = module.spawn

        def counted(work, spawn=spawn) -> None:
            made.append("task")
            spawn(work)

        monkeypatch.setattr(module, "spawn", counted)
    return made


def group(there, tail: str = "keepalive 4;") -> str:
    return f"upstream u {{ server 127.0.0.1:{there.port}; {tail} }}"


@pytest.mark.parametrize(
    "reply",
    [
        ok(b"hello"),
        ok(b""),
        ok(b"hello", chunked=True),
        ok(b"", status="204 No Content"),
        ok(b"no", status="400 Bad Request"),
        ok(b"x" * 20000),
        ok(b"hello", headers=("X-A: 1", "Set-Cookie: a=b", "X-Accel-Charset: koi8-r", "Date: x")),
    ],
)
async def test_an_answer_that_comes_whole_over_a_kept_connection_takes_no_task(ours, nginx, origin, tasks, reply):
    there = await origin([reply])
    for side in (ours, nginx):
        await side.start(f"location / {{ {KEPT} }}", group(there), LOG)
        for _ in range(2):
            first = await side.get("/a?b")
    assert len(tasks) == 1
    assert (there.requests[1].target, there.requests[1].headers) == (
        there.requests[3].target,
        there.requests[3].headers,
    )
    assert first.body == reply.data.partition(b"\r\n\r\n")[2] or b"chunked" in reply.data
    if b"chunked" not in reply.data:  # nginx counts their framing too
        assert ours.log("access.log") == nginx.log("access.log")


async def test_bodies_that_came_whole_go_along(ours, origin, tasks):
    there = await origin([ok(b"hello")])
    await ours.start(f"location / {{ {KEPT} }}", group(there))
    for _ in range(3):
        assert (await ours.get("/", method="POST", body=b"abc")).body == b"hello"
    assert [(request.method, request.body) for request in there.requests] == [("POST", b"abc")] * 3
    assert (there.accepts, len(tasks)) == (1, 1)


async def test_a_head_in_pieces_is_read_on(ours, bare, tasks):
    async def serve(reader, writer) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            for piece in (b"HTTP/1.1 200 OK\r\nConte", b"nt-Length: 6\r\n", b"\r\nabcdef"):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)

    port = await bare(serve)
    await ours.start(f"location / {{ {KEPT} }}", f"upstream u {{ server 127.0.0.1:{port}; keepalive 2; }}")
    for _ in range(2):
        assert (await ours.get("/")).body == b"abcdef"
    assert len(tasks) == 1


@pytest.mark.parametrize("tail", [b"", b"more"])
async def test_a_body_that_follows_its_head_is_waited_for_in_a_task(ours, bare, tasks, tail):
    async def serve(reader, writer) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.write(b"def" + tail)

    port = await bare(serve)
    await ours.start(f"location / {{ {KEPT} }}", f"upstream u {{ server 127.0.0.1:{port}; keepalive 2; }}")
    for _ in range(3):
        assert (await ours.get("/")).body == b"abcdef"
    assert len(tasks) == 3


async def test_a_kept_connection_that_breaks_when_it_is_used_is_replaced(ours, origin, tasks):
    there = await origin([ok(b"1"), Reply(b"", close=True), ok(b"2"), Reply(b"", reset=True), ok(b"3")])
    await ours.start(f"location / {{ {KEPT} }}", group(there), LOG)
    assert [(await ours.get("/")).body for _ in range(3)] == [b"1", b"2", b"3"]
    assert there.accepts == 3
    assert len(tasks) == 3


async def test_statuses_may_go_to_the_next_peer_and_errors_are_intercepted(ours, origin, tasks):
    first = await origin([ok(b"1"), ok(b"bad", status="503 No")])
    second = await origin([ok(b"2")])
    servers = f"upstream u {{ server 127.0.0.1:{first.port}; server 127.0.0.1:{second.port}; keepalive 4; }}"
    await ours.start(f"location / {{ {KEPT} proxy_next_upstream http_503; }}", servers)
    bodies = [(await ours.get("/")).body for _ in range(4)]
    assert bodies == [b"1", b"2", b"2", b"2"]


async def test_intercepted_errors_and_redirects_inside(ours, origin, tasks):
    there = await origin([ok(b"1"), ok(b"no", status="404 No"), ok(b"", headers=("X-Accel-Redirect: /in",))])
    await ours.start(
        f"location / {{ {KEPT} proxy_intercept_errors on; error_page 404 =200 /in; }} location /in {{ return 200 in; }}",
        group(there),
    )
    assert [(await ours.get("/")).body for _ in range(3)] == [b"1", b"in", b"in"]
    assert there.accepts == 1


async def test_silence_ends_with_504(ours, origin, tasks):
    there = await origin([ok(b"1"), Reply(b"", hold=True)])
    await ours.start(f"location / {{ {KEPT} proxy_read_timeout 50ms; }}", group(there), LOG)
    assert [(await ours.get("/")).status for _ in range(2)] == [200, 504]
    assert "upstream timed out (110: Connection timed out) while reading response header" in ours.log()
    assert ours.log("access.log").splitlines()[1].startswith("504 504 ")


async def test_a_client_that_leaves_closes_the_connection_to_the_upstream(ours, origin, tasks):
    there = await origin([ok(b"1"), Reply(b"", hold=True)])
    heard = asyncio.Event()
    await ours.start(f"location / {{ {KEPT} }}", group(there), LOG)
    await ours.get("/")
    there.on_request = lambda _request: heard.set()
    _, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await heard.wait()
    writer.close()
    await there.all_closed()
    while len(ours.log("access.log").splitlines()) < 2:
        await asyncio.sleep(0.01)
    assert ours.log("access.log").splitlines()[1].startswith("499 499 ")
    assert "client prematurely closed connection, so upstream connection is closed too" in ours.log()


async def test_a_client_that_leaves_may_be_ignored(ours, origin, tasks):
    there = await origin([ok(b"1"), Reply(ok(b"2").data, delay=0.1)])
    heard = asyncio.Event()
    await ours.start(f"location / {{ {KEPT} proxy_ignore_client_abort on; }}", group(there), LOG)
    await ours.get("/")
    there.on_request = lambda _request: heard.set()
    _, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await heard.wait()
    writer.close()
    while len(ours.log("access.log").splitlines()) < 2:
        await asyncio.sleep(0.01)
    there.on_request = None
    assert (await ours.get("/")).body == b"2"
    assert there.accepts == 1


async def test_filters_and_rates_see_prompt_answers_too(ours, origin, tasks):
    there = await origin([ok(b"hello " * 100, headers=("Content-Type: text/html",))])
    await ours.start(
        f"location / {{ {KEPT} sub_filter hello bye; sub_filter_once off; add_header X-A $upstream_status; }}"
        f"location /slow {{ {KEPT} limit_rate 100k; }}",
        group(there),
    )
    for _ in range(2):
        answer = await ours.get("/")
        assert (answer.body, answer.headers["x-a"]) == (b"bye " * 100, "200")
        assert (await ours.get("/slow")).body == b"hello " * 100
    assert len(tasks) == 1


async def test_several_requests_on_one_connection_are_answered_in_order(ours, origin, tasks):
    there = await origin(lambda request: ok(request.target.encode()))
    await ours.start(f"location / {{ {KEPT} }}", group(there))
    await ours.get("/first")
    text = b"".join(b"GET /n%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(4))
    got = await ours.raw(text + b"GET /end HTTP/1.0\r\n\r\n")
    places = [got.index(word) for word in (b"/n0", b"/n1", b"/n2", b"/n3", b"/end")]
    assert places == sorted(places)
    assert len(tasks) == 1
