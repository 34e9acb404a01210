"""header_filter_by_lua and body_filter_by_lua."""

from __future__ import annotations

import asyncio
import contextlib

SHOUT = "body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } "


async def test_header_filter(gateway):
    await gateway.start(
        """
        header_filter_by_lua_block { ngx.header["X-Filter"] = ngx.var.uri ngx.header.server = "mine" ngx.status = 202 }
        location /lua { content_by_lua_block { ngx.header["X-Filter"] = "old" ngx.say("hello") } }
        location /flush { content_by_lua_block { ngx.say("hello") ngx.flush(true) ngx.sleep(0.001) ngx.say("more") } }
        location /return { return 200 "x"; }
        """
    )
    for path, body in (("/lua", "hello\n"), ("/flush", "hello\nmore\n"), ("/return", "x")):
        answer = await gateway.get(path)
        assert (answer.status, answer.text) == (202, body)
        assert answer.headers["x-filter"] == path
        assert answer.headers["server"] == "mine"
    assert gateway.runtime.stats()["requests"] == 0


async def test_a_failing_header_filter_is_a_500(gateway):
    await gateway.start('location / { header_filter_by_lua_block { error("no") } return 200 "secret"; }')
    answer = await gateway.get()
    assert answer.status == 500
    assert "500 Internal Server Error" in answer.text
    assert "secret" not in answer.text
    assert "failed to run header_filter_by_lua*: header_filter_by_lua(nginx.conf:9):1: no" in gateway.log()


async def test_body_filter_changes_the_length(gateway):
    """O22: the length of an answer whose body a script changes is not that of the original."""
    await gateway.start(
        'location /double { body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1] .. ngx.arg[1] } return 200 "abc"; }'
        "location /pieces { "
        + SHOUT
        + "content_by_lua_block { for i = 1, 3 do ngx.say('a' .. i) ngx.flush(true) end } }"
        "location /drop { body_filter_by_lua_block { ngx.arg[1] = nil } content_by_lua_block { ngx.say('x') } }"
        "location /end { body_filter_by_lua_block { if not ngx.arg[2] then ngx.arg[1] = 'only' ngx.arg[2] = true end } "
        "content_by_lua_block { ngx.say('x') ngx.flush(true) ngx.say('y') } }"
        "location /table { body_filter_by_lua_block { if not ngx.arg[2] then ngx.arg[1] = {'a', {'b'}} end } return 200 x; }"
    )
    answer = await gateway.get("/double")
    assert answer.text == "abcabc"
    assert "content-length" not in answer.headers
    assert (await gateway.get("/pieces")).text == "A1\nA2\nA3\n"
    assert (await gateway.get("/drop")).text == ""
    assert (await gateway.get("/end")).text == "only"
    assert (await gateway.get("/table")).text == "ab"


async def test_a_whole_body_filter_sees_its_end_once(gateway):
    await gateway.start(
        """location / {
            body_filter_by_lua_block {
                ngx.ctx.parts = (ngx.ctx.parts or "") .. ngx.arg[1]
                ngx.arg[1] = ngx.arg[2] and "<" .. ngx.ctx.parts .. ">" or nil
            }
            content_by_lua_block { ngx.print("ma") ngx.flush(true) ngx.sleep(0.001) ngx.print("rker") }
        }"""
    )
    assert (await gateway.get()).text == "<marker>"


async def test_a_failing_body_filter_closes_the_connection(gateway):
    await gateway.start('location / { body_filter_by_lua_block { error("no") } return 200 "x"; }')
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(gateway.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 5) == b""
    assert "failed to run body_filter_by_lua*: body_filter_by_lua(nginx.conf:9):1: no" in gateway.log()


async def test_filters_run_while_a_handler_runs(gateway):
    """A flush within a handler runs the filters: Lua within Lua."""
    await gateway.start(
        """location / {
            header_filter_by_lua_block { ngx.header.x = tostring(ngx.ctx.n) }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() }
            content_by_lua_block {
                ngx.ctx.n = 0
                local co = coroutine.wrap(function()
                    for i = 1, 300 do
                        ngx.ctx.n = i
                        ngx.print("a", i, ",")
                        ngx.flush()
                        if i % 50 == 0 then coroutine.yield(i) collectgarbage() end
                    end
                end)
                for _ = 1, 6 do co() end
            }
        }"""
    )
    answer = await gateway.get()
    assert answer.headers["x"] == "1"
    assert answer.text == "".join(f"A{i}," for i in range(1, 301))


async def test_set_by_lua_stands_in_its_place(gateway):
    (gateway.folder / "twice.lua").write_text("return ngx.arg[1] .. ngx.arg[1]")
    await gateway.start(
        """location / {
            set $a 1;
            set_by_lua_block $b { return ngx.var.a + 1 }
            set $a 5;
            set_by_lua $c 'return ngx.arg[1] + ngx.arg[2]' $a $b;
            set_by_lua_file $d twice.lua $c;
            set_by_lua_block $e { return nil }
            if ($c = 7) { set_by_lua_block $e { return ngx.get_phase() } }
            return 200 "$a $b $c $d $e";
        }
        location /fail { set_by_lua_block $x { error("no") } return 200 x; }
        location /say { set_by_lua_block $x { ngx.say("x") } return 200 x; }
        """
    )
    assert (await gateway.get()).text == "5 2 7 77 set"
    assert (await gateway.get("/fail")).status == 500
    assert (await gateway.get("/say")).status == 500
    assert "failed to run set_by_lua*: set_by_lua(nginx.conf:19):1: no" in gateway.log()
    assert "API disabled in the context of set_by_lua*" in gateway.log()
    assert gateway.runtime.stats()["requests"] == 0
