"""Content handlers that wait: they take no task, and what they end with is what any handler ends with."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.http1 import server as http_server
from headrace.lua import late


@pytest.fixture
def tasks(monkeypatch):
    """The tasks that requests got: one mark each."""
    made: list[str] = []
    for module in (http_server, late):

        def counted(work, spawn=module.spawn) -> None:
            made.append("task")
            spawn(work)

        monkeypatch.setattr(module, "spawn", counted)
    return made


async def test_a_content_handler_that_waits_takes_no_task(gateway, tasks):
    await gateway.content("ngx.sleep(0.001) ngx.header.x = 'y' ngx.say('hello')")
    for _ in range(3):
        answer = await gateway.get()
        assert (answer.status, answer.text, answer.headers["x"]) == (200, "hello\n", "y")
    assert not tasks
    assert gateway.runtime.stats()["requests"] == 0


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("ngx.sleep(0.001) ngx.exit(403)", 403, "403 Forbidden"),
        ("ngx.sleep(0.001) error('oops')", 500, "500 Internal Server Error"),
        ("ngx.sleep(0.001) ngx.exec('/other')", 200, "other"),
        ("ngx.sleep(0.001) ngx.redirect('/other')", 302, "302 Found"),
        ("ngx.print('a') ngx.flush(true) ngx.sleep(0.001) ngx.print('b')", 200, "ab"),
        ("ngx.print('a') ngx.flush(true) ngx.sleep(0.001) ngx.exit(ngx.OK)", 200, "a"),
        ("ngx.print('a') ngx.sleep(0.001) ngx.eof()", 200, "a"),
        ("ngx.sleep(0.001)", 200, ""),
    ],
)
async def test_ends(gateway, code, status, text):
    await gateway.start(f"location = / {{ content_by_lua_block {{ {code} }} }} location /other {{ return 200 other; }}")
    answer = await gateway.get()
    assert answer.status == status
    assert text in answer.text
    assert gateway.runtime.stats()["requests"] == 0


async def test_lua_in_filters_and_in_the_log_runs_after_it(gateway, tasks):
    await gateway.start(
        """location / {
            content_by_lua_block { ngx.sleep(0.001) ngx.ctx.a = "ctx" ngx.print("body") }
            header_filter_by_lua_block { ngx.header.x = ngx.ctx.a }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() }
            log_by_lua_block { ngx.log(ngx.WARN, "logged ", ngx.ctx.a, ngx.status) }
        }"""
    )
    answer = await gateway.get()
    assert (answer.text, answer.headers["x"]) == ("BODY", "ctx")
    assert "logged ctx200" in gateway.log()
    assert not tasks
    assert gateway.runtime.stats()["requests"] == 0


async def test_the_next_requests_of_a_connection_follow_in_order(gateway, tasks):
    await gateway.content("ngx.sleep(0.001) ngx.say(ngx.var.uri)")
    text = b"".join(b"GET /n%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(5))
    got = await gateway.raw(text + b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    places = [got.index(word) for word in (b"/n0", b"/n1", b"/n2", b"/n3", b"/n4", b"/end")]
    assert places == sorted(places)
    assert not tasks


async def test_a_client_that_leaves_while_the_handler_waits(gateway):
    await gateway.start(
        """location / { content_by_lua_block { ngx.sleep(0.05) ngx.say("a") ngx.log(ngx.WARN, "went on") } }
        location /told { lua_check_client_abort on; content_by_lua_block {
            ngx.on_abort(function() ngx.log(ngx.WARN, "told") ngx.exit(499) end) ngx.sleep(30) } }"""
    )
    for target, word in (("/", "went on"), ("/told", "told")):
        _, writer = await asyncio.open_unix_connection(gateway.path)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await asyncio.sleep(0.02)
        writer.close()
        async with asyncio.timeout(20):
            while word not in gateway.log() or gateway.runtime.stats()["requests"]:
                await asyncio.sleep(0.01)
