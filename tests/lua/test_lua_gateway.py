"""Lua in the phases of a request: answers, errors and their log lines, limits, life of the runtime."""

from __future__ import annotations

import asyncio
import gc

import pytest
from lua_rig import LuaGateway, echo, silent

from headrace.errors import ConfError


def locations(**blocks: str) -> str:
    return "\n".join(f"location = /{name} {{ {block} }}" for name, block in blocks.items())


def lua(code: str) -> str:
    return f"content_by_lua_block {{ {code} }}"


async def test_an_error_is_a_500_and_a_traceback(gateway):
    await gateway.start(locations(a=lua("\n  local function f() error('boo') end\n  f()\n")))
    assert (await gateway.get("/a")).status == 500
    assert (
        "lua entry thread aborted: runtime error: content_by_lua(nginx.conf:9):2: boo\n"
        "stack traceback:\n"
        "coroutine 0:\n"
        "\t[C]: in function 'error'\n"
        "\tcontent_by_lua(nginx.conf:9):2: in function 'f'\n"
        "\tcontent_by_lua(nginx.conf:9):3: in main chunk, client: unix:, server: , "
        'request: "GET /a HTTP/1.1", host: "localhost"\n' in gateway.log()
    )


async def test_errors_of_the_api_are_at_the_caller(gateway):
    await gateway.start(locations(a=lua("\n  local f = function() ngx.sleep('x') end\n  f()\n")))
    await gateway.get("/a")
    assert (
        "content_by_lua(nginx.conf:9):2: bad argument #1 to 'sleep' (number expected, got string)\n"
        "stack traceback:\ncoroutine 0:\n\t[C]: in function 'sleep'\n"
        "\tcontent_by_lua(nginx.conf:9):2: in function 'f'\n" in gateway.log()
    )


async def test_error_objects(gateway):
    await gateway.start(
        locations(
            a=lua("error({})"),
            b=lua("error(setmetatable({}, {__tostring = function() return 'mine' end}))"),
            c=lua("error()"),
        )
    )
    for name in "abc":
        assert (await gateway.get("/" + name)).status == 500
    assert gateway.log().count("runtime error: unknown reason") == 2
    assert "runtime error: mine" in gateway.log()


async def test_an_error_after_output_cuts_the_answer(gateway):
    await gateway.start(
        locations(a=lua("ngx.say('x') error('late')"), b=lua("ngx.say('x') ngx.flush(true) error('late')"))
    )
    assert await gateway.raw(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n") == b""
    answer = await gateway.raw(b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"x\n" in answer
    assert not answer.endswith(b"0\r\n\r\n")


async def test_code_that_does_not_compile(gateway):
    (gateway.folder / "bad.lua").write_text("local a b")
    await gateway.start(
        locations(
            a=lua("local a b"),
            file=f"content_by_lua_file {gateway.folder}/bad.lua;",
            missing="content_by_lua_file nothere.lua;",
        )
    )
    assert [(await gateway.get(path)).status for path in ("/a", "/file", "/missing")] == [500, 500, 404]
    log = gateway.log()
    assert "failed to load inlined Lua code: content_by_lua(nginx.conf:9):1: '=' expected near " in log
    assert f'failed to load external Lua file "{gateway.folder}/bad.lua": ' in log
    assert f'failed to load external Lua file "{gateway.folder}/nothere.lua": cannot open' in log
    assert len(gateway.warnings) == 1


async def test_log_lines(gateway):
    await gateway.start(
        locations(
            a=lua("\n ngx.log(ngx.WARN, 'a', 1, nil, true, ngx.null)\n local function f() print('hi') end f()\n")
        ),
        level="notice",
    )
    await gateway.get("/a")
    assert "[warn]" in gateway.log()
    assert "[lua] content_by_lua(nginx.conf:9):2: a1niltruenull, client" in gateway.log()
    assert "[lua] content_by_lua(nginx.conf:9):3: f(): hi, client" in gateway.log()


async def test_messages_below_the_level_are_not_made(gateway):
    await gateway.start(
        locations(a=lua("ngx.log(ngx.INFO, setmetatable({}, {__tostring = error})) ngx.say('x')")), level="error"
    )
    assert (await gateway.get("/a")).text == "x\n"


async def test_globals_are_shared_and_said_to_be(gateway):
    await gateway.start(locations(a=lua("foo = 1"), b=lua("ngx.say(foo)")))
    await gateway.get("/a")
    assert (await gateway.get("/b")).text == "1\n"
    assert "writing a global Lua variable ('foo') which may lead to race conditions" in gateway.log()


async def test_phases_in_order_and_their_context(gateway):
    await gateway.start(
        """
        set $trace "";
        rewrite_by_lua_block { ngx.ctx.trace = "r" ngx.var.trace = "set" }
        access_by_lua_block { ngx.ctx.trace = ngx.ctx.trace .. "a" }
        log_by_lua_block { ngx.log(ngx.WARN, ngx.ctx.trace, ngx.status, ngx.get_phase()) }
        location / { content_by_lua_block { ngx.ctx.trace = ngx.ctx.trace .. "c" ngx.say(ngx.ctx.trace, ngx.var.trace) } }
        """
    )
    assert (await gateway.get()).text == "racset\n"
    assert "rac200log while logging request" in gateway.log()
    assert gateway.runtime.stats()["requests"] == 0


async def test_what_an_early_phase_answers_is_the_answer(gateway):
    await gateway.start(
        locations(
            exit="access_by_lua_block { ngx.exit(403) } " + lua("ngx.say('no')"),
            say="access_by_lua_block { ngx.status = 401 ngx.say('mine') } " + lua("ngx.say('no')"),
            ok="access_by_lua_block { ngx.exit(ngx.OK) } " + lua("ngx.say('yes')"),
            rewrite="rewrite_by_lua_block { ngx.exit(ngx.OK) } " + lua("ngx.say('yes')"),
            wait="access_by_lua_block { ngx.sleep(0.001) } " + lua("ngx.say('yes')"),
        )
    )
    assert (await gateway.get("/exit")).status == 403
    answer = await gateway.get("/say")
    assert (answer.status, answer.text) == (401, "mine\n")
    for name in ("ok", "rewrite", "wait"):
        assert (await gateway.get("/" + name)).text == "yes\n"


async def test_codes(gateway):
    await gateway.start(
        locations(
            a=lua("ngx.exit(404)"),
            b=lua("ngx.exit(204)"),
            c=lua("ngx.exit(444)"),
            d=lua("ngx.status = 202 ngx.say('x') ngx.exit(200)"),
            e=lua("ngx.exit(200)"),
            f=lua("ngx.sleep(0.001) ngx.exit(503)"),
            g=lua("ngx.redirect('/x?y=1', 301)"),
            h=lua("ngx.say('x') ngx.exit(500)"),
            i=lua(""),
        )
    )
    assert [(await gateway.get(f"/{name}")).status for name in "abcdefghi"] == [
        404,
        204,
        0,
        202,
        200,
        503,
        301,
        200,
        200,
    ]
    assert (await gateway.get("/g")).headers["location"].endswith("/x?y=1")
    assert "attempt to set status 500 via ngx.exit after sending out the response status 200" in gateway.log()


async def test_exec_and_uri_changes(gateway):
    await gateway.start(
        locations(
            a=lua("ngx.ctx.x = 1 ngx.exec('/b', {k = 'v w'})"),
            b=lua("ngx.say(ngx.var.uri, ngx.var.args, ngx.req.is_internal(), tostring(ngx.ctx.x))"),
            c=lua("ngx.exec('@named')"),
            d="rewrite_by_lua_block { ngx.req.set_uri('/b', true) }",
        )
        + "location @named { content_by_lua_block { ngx.say('named', ngx.var.uri) } }"
    )
    assert (await gateway.get("/a")).text == "/bk=v%20wtruenil\n"
    assert (await gateway.get("/c")).text == "named/c\n"
    assert (await gateway.get("/d")).text.startswith("/b")


async def test_streaming(gateway):
    await gateway.start(locations(a=lua("for i = 1, 3 do ngx.say(i) ngx.flush(true) ngx.sleep(0.01) end")))
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"chunked" in head
    for i in (1, 2, 3):
        assert await reader.readexactly(7) == b"2\r\n%d\n\r\n" % i
    assert await reader.readexactly(5) == b"0\r\n\r\n"
    writer.close()


async def test_work_after_eof(gateway):
    await gateway.start(
        locations(a=lua("ngx.say('x') ngx.eof() ngx.sleep(0.01) ngx.log(ngx.WARN, 'after ', ngx.var.uri)"))
    )
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    for _ in range(2):
        writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"x\n\r\n0\r\n\r\n")
    writer.close()
    for _ in range(100):
        if gateway.log().count("after /a") == 2:
            break
        await asyncio.sleep(0.01)
    assert gateway.log().count("after /a") == 2


async def test_head_has_no_body(gateway):
    await gateway.start(locations(a=lua("ngx.say(ngx.say('x'))")))
    answer = await gateway.get("/a", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


async def test_request_bodies(gateway):
    await gateway.start(
        locations(
            data=lua("ngx.req.read_body() ngx.say(ngx.req.get_body_data())"),
            args=lua("ngx.req.read_body() local a = ngx.req.get_post_args() ngx.say(a.a, a.b[2])"),
            unread=lua("ngx.say(select(2, pcall(ngx.req.get_post_args)))"),
            big="client_body_buffer_size 10; "
            + lua(
                "ngx.req.read_body() ngx.say(tostring(ngx.req.get_body_data()), "
                "io.open(ngx.req.get_body_file()):read('*a'))"
            ),
            large="client_max_body_size 5; " + lua("ngx.req.read_body() ngx.say('never')"),
            need="lua_need_request_body on; " + lua("ngx.say(ngx.req.get_body_data())"),
            set=lua(
                "ngx.req.read_body() ngx.req.set_body_data('new') ngx.say(ngx.req.get_body_data(), "
                "ngx.var.http_content_length)"
            ),
        )
    )
    assert (await gateway.get("/data", method="POST", body=b"hello")).text == "hello\n"
    assert (await gateway.get("/args", method="POST", body=b"a=1&b=2&b=%33")).text == "13\n"
    assert "no request body found" in (await gateway.get("/unread", method="POST", body=b"x")).text
    assert (await gateway.get("/need", method="POST", body=b"hello")).text == "hello\n"
    assert (await gateway.get("/set", method="POST", body=b"hello")).text == "new3\n"
    slow = b"POST /%b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    for name, wanted in ((b"data", b"helloworld"), (b"big", b"nilhello world, it is big")):
        reader, writer = await asyncio.open_unix_connection(gateway.path)
        writer.write(slow % name + b"5\r\nhello\r\n")
        await asyncio.sleep(0.01)
        rest = b"5\r\nworld\r\n" if name == b"data" else b"13\r\n world, it is big  \r\n"
        writer.write(rest + b"0\r\n\r\n")
        assert wanted in await reader.read()
        writer.close()
    assert (await gateway.get("/large", method="POST", body=b"too large")).status == 413


async def test_a_hundred_and_one_arguments_and_headers(gateway):
    """O19: the first hundred, and the word "truncated"; 0 gives all."""
    await gateway.start(
        locations(
            args=lua(
                "local a, err = ngx.req.get_uri_args() local n = 0 for _ in pairs(a) do n = n + 1 end "
                "ngx.say(n, tostring(a.x), err) a, err = ngx.req.get_uri_args(0) ngx.say(a.x, tostring(err))"
            ),
            headers=lua(
                "local h, err = ngx.req.get_headers() local n = 0 for _ in pairs(h) do n = n + 1 end "
                "ngx.say(n, err) h, err = ngx.req.get_headers(0) ngx.say(h.x, tostring(err))"
            ),
        ),
        http="large_client_header_buffers 8 32k;",
    )
    query = "&".join(f"a{i}={i}" for i in range(100)) + "&x=evil"
    assert (await gateway.get("/args?" + query)).text == "100niltruncated\nevilnil\n"
    fields = [f"A{i}: {i}" for i in range(98)] + ["X: evil"]
    assert (await gateway.get("/headers", *fields)).text == "100truncated\nevilnil\n"


async def test_nothing_breaks_out_of_a_header_line(gateway):
    """O20: values are escaped whole, never cut short."""
    await gateway.start(
        locations(
            a=lua(
                r"ngx.header['X-A'] = 'a\r\nB: c' ngx.header['X\nY'] = '1' ngx.header['X-L'] = {'a\rb', 'c\0d'} ngx.say('x')"
            ),
            b=lua(r"ngx.redirect('/\r\nB: c')"),
            c=lua(r"ngx.header.content_type = 'text/plain\r\nB: c' ngx.header.location = '/\r\nB: c' ngx.exit(302)"),
            d=lua(r"ngx.req.set_uri('/ HTTP/1.1\r\nB: c')"),
        )
    )
    answer = await gateway.get("/a")
    assert answer.headers["x-a"] == "a%0D%0AB: c"
    assert answer.headers["x%0ay"] == "1"
    assert [value for name, value in answer.fields if name == "X-L"] == ["a%0Db", "c%00d"]
    assert (await gateway.get("/b")).status == 500
    assert (await gateway.get("/d")).status == 500
    for path in "abcd":
        raw = (await gateway.get("/" + path)).raw
        assert b"\nB:" not in raw


async def test_abort_of_the_client(gateway, origin):
    server = await origin(silent)
    await gateway.start(
        locations(
            a="lua_check_client_abort on; "
            + lua(f"""
                ngx.on_abort(function() ngx.log(ngx.WARN, "client has gone") ngx.exit(499) end)
                local sock = ngx.socket.tcp() sock:connect("{server.address}") sock:receive(1)"""),
            b="lua_check_client_abort on; " + lua("ngx.sleep(60)"),
            c=lua("ngx.say(ngx.on_abort(function() end))"),
        )
    )
    for path in (b"/a", b"/b"):
        _, writer = await asyncio.open_unix_connection(gateway.path)
        writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
        await asyncio.sleep(0.05)
        writer.close()
    for _ in range(200):
        if not gateway.runtime.stats()["requests"]:
            break
        await asyncio.sleep(0.01)
    stats = gateway.runtime.stats()
    assert stats["requests"] == stats["sockets"] == 0
    assert "client has gone" in gateway.log()
    assert (await gateway.get("/c")).text == "nillua_check_client_abort is off\n"


async def test_init_and_worker_phases(gateway):
    await gateway.start(
        locations(a=lua("ngx.say(started, ticks > 0, ngx.worker.id())")),
        http="""
        init_by_lua_block { started = ngx.get_phase() ticks = 0 }
        init_worker_by_lua_block {
            started = started .. ngx.get_phase()
            assert(ngx.timer.every(0.005, function(premature) ticks = ticks + 1 if premature then last = true end end))
            error("only said")
        }
        """,
    )
    await asyncio.sleep(0.05)
    assert (await gateway.get("/a")).text == "initinit_workertrue0\n"
    assert "init_worker_by_lua error: init_worker_by_lua(nginx.conf:" in gateway.log()
    assert "only said" in gateway.log()


async def test_a_failing_init_is_a_configuration_error(gateway):
    with pytest.raises(ConfError, match=r"init_by_lua error: init_by_lua\(nginx.conf:6\):1: no"):
        await gateway.start(http='init_by_lua_block { error("no") }')


async def test_timers_fire_as_premature_when_the_worker_ends(gateway):
    """O13."""
    await gateway.start(
        locations(
            a=lua(
                "ngx.timer.at(3600, function(premature, a) ngx.log(ngx.WARN, 'fired ', premature, a) "
                "ngx.log(ngx.WARN, select(2, ngx.timer.at(1, function() end))) end, 'x') ngx.say('ok')"
            )
        )
    )
    await gateway.get("/a")
    assert gateway.runtime.stats()["timers_pending"] == 1
    gateway.runtime.exit()
    assert "fired truex" in gateway.log()
    assert "process exiting" in gateway.log()
    assert gateway.runtime.stats()["timers_pending"] == 0


async def test_a_failing_timer_is_logged(gateway):
    await gateway.start(locations(a=lua("ngx.timer.at(0, function() error('in timer') end)")))
    await gateway.get("/a")
    await asyncio.sleep(0.03)
    assert "lua entry thread aborted: runtime error: content_by_lua(nginx.conf:9):1: in timer" in gateway.log()
    assert "context: ngx.timer" in gateway.log()
    assert gateway.runtime.stats()["timers_running"] == 0


async def test_apis_that_a_phase_does_not_have(gateway):
    await gateway.start(
        "log_by_lua_block { ngx.log(ngx.WARN, select(2, pcall(ngx.say, 'x'))) ngx.sleep(1) }"
        + locations(a=lua("ngx.timer.at(0, function() ngx.log(ngx.WARN, select(2, pcall(ngx.req.get_headers))) end)"))
    )
    await gateway.get("/a")
    await asyncio.sleep(0.02)
    log = gateway.log()
    assert "[lua] log_by_lua(nginx.conf:9):1: API disabled in the context of log_by_lua*" in log
    assert "failed to run log_by_lua*: log_by_lua(nginx.conf:9):1: API disabled in the context of log_by_lua*" in log
    assert "API disabled in the current context" in log


async def test_modules_and_the_code_cache(gateway):
    module = gateway.folder / "counter.lua"
    script = gateway.folder / "page.lua"
    module.write_text("local n = 0 return function() n = n + 1 return n end")
    script.write_text("ngx.say(require('counter')())")
    http = f'lua_package_path "{gateway.folder}/?.lua;;";'
    await gateway.start("location / { content_by_lua_file page.lua; }", http=http)
    assert [(await gateway.get()).text for _ in range(2)] == ["1\n", "2\n"]
    fresh = LuaGateway(gateway.folder)
    fresh.path += "2"
    await fresh.start("location / { content_by_lua_file page.lua; }", http=http + "lua_code_cache off;")
    assert [(await fresh.get()).text for _ in range(2)] == ["1\n", "1\n"]
    script.write_text("ngx.say('changed', require('counter')())")
    assert (await fresh.get()).text == "changed1\n"
    script.unlink()
    assert (await fresh.get()).status == 404
    await fresh.stop()


async def test_a_busy_socket_loop_lets_its_neighbours_run(gateway, origin):
    """A handler whose peer always answers at once gives the loop its turns."""
    server = await origin(echo)
    code = lua(f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        local n = 0
        while not stop do sock:send("hello") assert(sock:receive(5) == "hello") n = n + 1 end
        ngx.say(n > 0)
    """)
    await gateway.start(locations(busy=code, stop=lua("stop = true ngx.say('ok')")))
    busy = asyncio.ensure_future(gateway.get("/busy"))
    await asyncio.sleep(0.05)
    assert (await asyncio.wait_for(gateway.get("/stop"), 5)).text == "ok\n"
    assert (await busy).text == "true\n"


async def test_ten_thousand_requests_leave_nothing_behind(gateway, origin):
    server = await origin(echo)
    await gateway.start(
        locations(
            say=lua("ngx.ctx.a = string.rep('x', 100) ngx.say('hello')"),
            exit=lua("ngx.exit(204)"),
            fail=lua("error('x')"),
            wait=lua(f"""local sock = ngx.socket.tcp() assert(sock:connect("{server.address}"))
                ngx.thread.spawn(function() ngx.sleep(0) end) ngx.sleep(0) ngx.say('x')"""),
        ),
        level="crit",
    )

    async def load(count: int) -> None:
        reader, writer = await asyncio.open_unix_connection(gateway.path)
        names = [b"say"] * 17 + [b"exit", b"fail", b"wait"]
        for i in range(count):
            name = names[i % 20]
            writer.write(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % name)
            head = await reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head:
                await reader.readuntil(b"0\r\n\r\n")
            elif b"Content-Length: " in head:
                await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
            if b"Connection: close" in head:
                writer.close()
                reader, writer = await asyncio.open_unix_connection(gateway.path)
        writer.close()

    def memory() -> float:
        gc.collect()
        gateway.runtime.vm.lua.execute(b"jit.flush() collectgarbage() collectgarbage()")
        return gateway.runtime.stats()["memory"]

    await load(1000)
    before = memory()
    await load(10_000)
    stats = gateway.runtime.stats()
    assert stats["requests"] == stats["sockets"] == stats["deadlines"] == 0
    assert memory() < before * 1.1 + 50_000
    assert not gateway.runtime.scheduler.pending


async def test_a_client_that_leaves_does_not_end_its_handler(gateway):
    """lua_check_client_abort is off by default: the handler goes on, and nothing of it stays."""
    await gateway.start(locations(a=lua("ngx.sleep(0.05) ngx.say('x') ngx.log(ngx.WARN, 'went on')")))
    _, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.sleep(0.01)
    writer.transport.abort()
    for _ in range(200):
        if "went on" in gateway.log() and not gateway.runtime.stats()["requests"]:
            break
        await asyncio.sleep(0.01)
    assert "went on" in gateway.log()
    assert gateway.runtime.stats()["requests"] == 0
    assert not gateway.runtime.scheduler.pending


async def test_stopping_ends_handlers_that_wait(gateway, origin):
    server = await origin(silent)
    await gateway.start(
        locations(
            a=lua("ngx.sleep(3600)"),
            b=lua(f"""local sock = ngx.socket.tcp() sock:connect("{server.address}") sock:receive(1)"""),
        )
    )
    waiting = [
        asyncio.ensure_future(gateway.raw(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % name)) for name in (b"a", b"b")
    ]
    while gateway.runtime.stats()["requests"] < 2:
        await asyncio.sleep(0.01)
    await gateway.gateway.stop(0)
    gateway.runtime.exit()
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(100):
        if not gateway.runtime.stats()["requests"]:
            break
        await asyncio.sleep(0.01)
    stats = gateway.runtime.stats()
    assert stats["requests"] == stats["sockets"] == 0


async def test_a_body_is_what_its_content_length_says(gateway):
    await gateway.start(
        locations(
            more=lua("ngx.header.content_length = 5 ngx.print('hello', ' world')"),
            fewer=lua("ngx.header.content_length = 50 ngx.print('hello')"),
            none=lua("ngx.header.content_length = 5"),
        )
    )
    second = b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n"
    answer = await gateway.raw(b"GET /more HTTP/1.1\r\nHost: a\r\n\r\n" + second)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert b"\r\n\r\nhelloHTTP/1.1 200" in answer
    answer = await gateway.raw(b"GET /fewer HTTP/1.1\r\nHost: a\r\n\r\n" + second)  # returns at the end of file
    assert answer.endswith(b"\r\n\r\nhello")


async def test_a_body_that_cannot_be_kept_is_a_500(gateway):
    (gateway.folder / "in_the_way").write_text("a file")
    await gateway.start(
        f"client_body_temp_path {gateway.folder}/in_the_way; client_body_buffer_size 1k;"
        + locations(a=lua("ngx.req.read_body() ngx.say('read')"))
    )
    answer = await gateway.get("/a", method="POST", body=b"x" * 500_000)
    assert answer.status == 500
    assert f'temporary file "{gateway.folder}/in_the_way" failed (17: File exists)' in gateway.log()


async def test_a_time_that_is_no_number_disturbs_nobody(gateway):
    code = """
        ngx.say(pcall(ngx.sleep, 0 / 0))
        ngx.say(pcall(ngx.timer.at, 0 / 0, print))
        ngx.say(pcall(ngx.timer.every, 0 / 0, print))
        ngx.say(pcall(ngx.timer.every, 0.0001, print))
        local s = ngx.socket.tcp()
        ngx.say(pcall(s.settimeout, s, 0 / 0))
        ngx.say((s:connect("127.0.0.1", 0 / 0)))
        ngx.say(ngx.cookie_time(1e300), ngx.http_time(-1))
        ngx.thread.spawn(function() ngx.sleep(math.huge) end)
        for i = 1, 20 do ngx.thread.spawn(function() ngx.sleep(0.001 * (i % 7)) end) end
        ngx.sleep(0.01)
        ngx.say("on")
        ngx.exit(200)
    """
    await gateway.start(locations(a=lua(code)))
    assert (await gateway.get("/a")).text.splitlines() == [
        'falseinvalid sleep duration "nan"',
        "falsedelay cannot be negative",
        "falsedelay cannot be zero",
        "falsedelay cannot be zero",
        "falsebad timeout value",
        "nil",
        "Fri, 31-Dec-9999 23:59:59 GMTThu, 01 Jan 1970 00:00:00 GMT",
        "on",
    ]
    assert (await gateway.get("/a")).status == 200


async def test_conditions_meet_the_dates_that_handlers_set(gateway):
    code = "ngx.header.last_modified = ngx.http_time(1e9) ngx.header.etag = '\"x\"' ngx.say('hello')"
    await gateway.start(locations(a=lua(code)))
    for field, status, text in (
        ("If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", 304, ""),
        ('If-None-Match: "x"', 304, ""),
        ('If-None-Match: "y"', 200, "hello\n"),
        ("If-Unmodified-Since: Sat, 09 Sep 2000 01:46:40 GMT", 412, "page"),
        ('If-Match: "y"', 412, "page"),
        ('If-Match: "x"', 200, "hello\n"),
    ):
        answer = await gateway.get("/a", field)
        shown = "page" if answer.text.startswith("<html>") else answer.text
        assert (answer.status, shown) == (status, text), field


async def test_variables_of_the_request_follow_its_headers(gateway):
    await gateway.start(
        locations(
            a=lua("""ngx.print(ngx.var.host) ngx.req.set_header('Host', 'New.com:80') ngx.print(' ', ngx.var.host)"""),
            b=lua("ngx.print(pcall(function() ngx.var.query_string = 'x' end))"),
        )
    )
    assert (await gateway.get("/a")).text == "localhost new.com"
    assert 'variable "query_string" not changeable' in (await gateway.get("/b")).text


@pytest.mark.parametrize(
    "code",
    [
        "set_by_lua_file $a nothere.lua; echo x;",
        "rewrite_by_lua_file nothere.lua; echo x;",
        "access_by_lua_file nothere.lua; echo x;",
        "echo x; header_filter_by_lua_file nothere.lua;",
        "echo x; body_filter_by_lua_file nothere.lua;",
        "echo x; log_by_lua_file nothere.lua;",
    ],
)
async def test_a_file_that_is_not_there_is_named(gateway, code):
    await gateway.start(f"location / {{ {code} }}")
    await gateway.raw(b"GET / HTTP/1.0\r\n\r\n")
    path = f"{gateway.folder}/nothere.lua"
    assert f'failed to load external Lua file "{path}": cannot open {path}: No such file or directory' in gateway.log()


async def test_a_client_of_http_09_has_a_status_of_its_own(gateway):
    await gateway.content("ngx.print(ngx.status)")
    assert await gateway.raw(b"GET /\r\n") == b"9"


async def test_no_match_is_one_nil(gateway):
    await gateway.content("""
        local it = ngx.re.gmatch("ab", "c")
        ngx.say(select("#", it()), select("#", it()), select("#", ngx.re.match("ab", "c")))
    """)
    assert (await gateway.get()).text == "111\n"


async def test_the_code_cache_is_a_matter_of_the_location(gateway):
    (gateway.folder / "count.lua").write_text("n = (n or 0) + 1 return n")
    code = f"set_by_lua_file $n {gateway.folder}/count.lua; content_by_lua_block {{ ngx.print(ngx.var.n, _G.n) }}"
    http = "init_by_lua_block { kept = 1 } "
    cases = f"location /on {{ {code} }} location /off {{ lua_code_cache off; {code} }}"
    await gateway.start(cases + "location /kept { lua_code_cache off; content_by_lua_block { ngx.print(kept) } }", http)
    assert [(await gateway.get(path)).text for path in ("/on", "/on", "/off", "/off")] == ["11", "22", "11", "11"]
    (gateway.folder / "count.lua").write_text("return 'new'")
    assert (await gateway.get("/off")).text == "newnil"
    assert (await gateway.get("/kept")).text == "1"
    assert any("lua_code_cache is off; this will hurt performance in " in text for text in gateway.warnings)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ('"-s", IN, OUT', "from a file 1\n"),
        ('"-g", IN, OUT', "from a file 1\n"),
        ('{ "-e", "return ngx.say(2)", OUT }', "2\n"),
        ('"-t", "c", IN, OUT', "falseunsupported type: c\n"),
        ('IN, OUT .. ".o"', "falseunsupported type of output: "),
        ("IN", "falseusage: -b[options] input output\n"),
        ('"/no/such", OUT', "falsecannot open /no/such"),
    ],
)
async def test_bytecode_is_saved_and_run(gateway, words, text):
    (gateway.folder / "in.lua").write_text("local n = 1 ngx.say('from a file ', n)")
    await gateway.start(f"""
        location /save {{ content_by_lua_block {{
            local IN, OUT = "{gateway.folder}/in.lua", "{gateway.folder}/out.luac"
            local ok, why = pcall(require("jit.bcsave").start, {words})
            if ok then ngx.exec("/run") else ngx.say(ok, why) end
        }} }}
        location /run {{ content_by_lua_file {gateway.folder}/out.luac; }}
    """)
    assert (await gateway.get("/save")).text.startswith(text)


async def test_captures_by_their_numbers(gateway):
    code = "for i = -1, 3 do ngx.print(tostring(ngx.var[i]), ' ') end"
    await gateway.start(f"location ~ ^/(.)/(.) {{ content_by_lua_block {{ {code} }} }}")
    assert (await gateway.get("/a/b")).text == "nil nil a b nil "


async def test_resty_core_is_there_from_the_beginning(gateway):
    code = 'ngx.say(package.loaded["resty.core"] == require "resty.core")'
    await gateway.start(
        f"location / {{ content_by_lua_block {{ {code} }} }}", "lua_code_cache off; lua_load_resty_core on;"
    )
    assert (await gateway.get()).text == "true\n"
    assert any("lua_load_resty_core is deprecated (the lua-resty-core library" in text for text in gateway.warnings)


async def test_a_cookie_may_stand_in_any_of_the_fields(gateway):
    code = 'rewrite_by_lua_block { if ngx.var.arg_set then ngx.req.set_header("Cookie", { "a=1", "b=2; c=3" }) end }'
    await gateway.start(f'location / {{ {code} echo "$cookie_a $cookie_b $cookie_c $cookie_d"; }}')
    assert (await gateway.get("/?set=1", "Cookie: d=4")).text == "1 2 3 \n"
    assert (await gateway.get("/", "Cookie: d=4", "Cookie: c=5")).text == "  5 4\n"
