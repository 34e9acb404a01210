"""What the debug log tells of Lua, and the stacks that errors are logged with."""

from __future__ import annotations

import re
import socket

import pytest
from lua_rig import echo

NOTES = [
    ("ngx.sleep(0.001)", ["lua ready to sleep for 1 ms", 'lua sleep timer expired: "/t?a=1"']),
    ("ngx.sleep(0)", ["lua ready to sleep for 0 ms"]),
    ("local t = ngx.thread.spawn(ngx.sleep, 9) ngx.thread.kill(t)", ["lua clean up the timer for pending ngx.sleep"]),
    ("ngx.thread.spawn(ngx.sleep, 9) ngx.exit(200)", ["lua clean up the timer for pending ngx.sleep"]),
    ("xpcall(error, function() ngx.sleep(0.001) end)", ["lua clean up the timer for pending ngx.sleep"]),
    ("ngx.ctx.a = 1", ["lua release ngx.ctx at ref"]),
    ("ngx.req.get_uri_args(1)", []),
    ("ngx.re.match('a', '(a)b?c?', 'jo')", ["pcre JIT compiling result: 1"]),
    ("ngx.decode_args('a=1&b=2', 1)", ["lua hit query args limit 1"]),
    (
        "local s = ngx.socket.tcp() s:connect('ADDRESS') s:connect('ADDRESS') s:setkeepalive(1) s:connect('ADDRESS')",
        [
            "lua tcp socket connect timeout: 60000",
            "lua reuse socket upstream ctx",
            "lua tcp socket reconnect without shutting down",
            'lua tcp socket keepalive create connection pool for key "ADDRESS"',
            "lua tcp socket get keepalive peer: using connection ",
        ],
    ),
    (
        "ngx.timer.at(0, function() end) ngx.sleep(0.01)",
        ["lua ngx.timer expired", "http lua close fake http connection"],
    ),
]


@pytest.mark.parametrize(("code", "wanted"), NOTES)
async def test_notes_in_the_debug_log(gateway, origin, code, wanted):
    server = await origin(echo)
    code = code.replace("ADDRESS", server.address)
    await gateway.content(code, level="debug")
    await gateway.get("/t?a=1")
    log = gateway.log()
    for text in wanted:
        assert text.replace("ADDRESS", server.address) in log
    assert wanted or "limit" not in log


async def test_notes_only_in_a_debug_log(gateway):
    await gateway.content(
        "ngx.ctx.a = 1 ngx.sleep(0.001) ngx.timer.at(0, function() end) ngx.sleep(0.01)", level="info"
    )
    await gateway.get("/t")
    assert "lua " not in gateway.log()


async def test_the_stack_of_coroutines_within_coroutines(gateway):
    await gateway.content("""
        local one = coroutine.wrap(function() error("inmost") end)
        local two = coroutine.wrap(function() one() end)
        two()
    """)
    await gateway.get()
    log = gateway.log()
    assert [log.count(f"coroutine {n}:") for n in range(4)] == [1, 1, 1, 0]


async def test_a_deep_stack_shows_its_first_and_last_frames(gateway):
    calls = ["local function f1() error('deep') end"]
    calls += [f"local function f{n}() local v = f{n - 1}() return v end" for n in range(2, 25)]
    await gateway.content("\n".join([*calls, "f24()"]))
    await gateway.get()
    shown = re.findall(r"in function 'f(\d+)'", gateway.log())
    assert shown == [*map(str, range(1, 12)), *map(str, range(16, 25))]


async def test_the_place_of_a_connect_that_fails(gateway):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    await gateway.content(f"""
        ngx.say(ngx.socket.tcp():connect("127.0.0.1", {port}))
        ngx.say(ngx.socket.tcp():connect("unix:/no/such"))
    """)
    assert (await gateway.get()).text == "nilconnection refused\nnilno such file or directory\n"
    assert "failed (111: Connection refused)" in gateway.log()
    assert "[crit]" in gateway.log()
    assert "connect() to unix:/no/such failed (2: No such file or directory)" in gateway.log()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("rewrite_by_lua_block { } echo x;", ["rewrite", "capture"]),
        ("access_by_lua_block { } echo x;", ["access", "capture"]),
        ("content_by_lua_block { ngx.say(1) }", ["content", "capture"]),
        ("header_filter_by_lua_block { } echo x;", ["header filter"]),
        ("body_filter_by_lua_block { } echo x;", ["header filter", "body filter"]),
        ("log_by_lua_block { } echo x;", ["log"]),
        ("echo x;", []),
    ],
)
async def test_which_code_a_request_runs(gateway, code, told):
    await gateway.start(f"location /t {{ {code} }}", level="debug")
    await gateway.get("/t")
    log = gateway.log()
    lines = {name: f'lua {name} handler, uri:"/t"' for name in ("rewrite", "access", "content", "log")}
    lines |= {f"{name} filter": f'lua {name} filter for user lua code, uri "/t"' for name in ("header", "body")}
    lines["capture"] = 'lua capture header filter, uri "/t"'
    assert [name for name, text in lines.items() if text in log] == [name for name in lines if name in told]
