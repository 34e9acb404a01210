"""The small modules of lua-resty-core: ngx.process, ngx.errlog, ngx.req, ngx.resp."""

from __future__ import annotations

import os


async def test_them(gateway):
    await gateway.content(
        """
        require("ngx.resp").add_header("X-Out", "a")
        local process, errlog = require "ngx.process", require "ngx.errlog"
        ngx.say(process.type(), " ", process.get_master_pid() == ngx.worker.pid(), " ", table.concat(ngx.worker.pids()))
        ngx.say(pcall(process.enable_privileged_agent))
        require("ngx.req").add_header("X-Some", {"2", "3\\n"})
        require("ngx.req").add_header("X-Other", 4)
        ngx.say(table.concat(ngx.req.get_headers().x_some, ","), " ", ngx.var.http_x_other)
        errlog.raw_log(ngx.ERR, "as it is")
        errlog.raw_log(ngx.DEBUG, "not this")
        ngx.say(errlog.get_sys_filter_level() == ngx.INFO)
        ngx.say(errlog.get_logs())
        ngx.say(pcall(errlog.raw_log, 9, "x"))
    """
    )
    answer = await gateway.get("/", "X-Some: 1")
    assert answer.text.splitlines() == [
        f"single true {os.getpid()}",
        "falseAPI disabled in the current context",
        "1,2,3%0A 4",
        "true",
        'nildirective "lua_capture_error_log" is not set',
        "falsebad log level",
    ]
    assert answer.headers["x-out"] == "a"
    log = gateway.log()
    assert ": *" in log
    assert " as it is, client: unix:" in log
    assert "not this" not in log


async def test_server_rewrite_and_switches(gateway):
    await gateway.start(
        """
        server_rewrite_by_lua_block { ngx.ctx.a = ngx.get_phase() if ngx.var.arg_to then ngx.req.set_uri(ngx.var.arg_to) end }
        location / { content_by_lua_block { ngx.print(ngx.ctx.a) } }
        location /other { lua_use_default_type off; content_by_lua_block { ngx.print("other") } }
        location /late { rewrite_by_lua_block { ngx.var.a = "lua" } set $a "conf"; content_by_lua_block { ngx.print(ngx.var.a) } }
        """,
        http="lua_thread_cache_max_entries 8; lua_malloc_trim 10; lua_sa_restart on;",
    )
    assert (await gateway.get("/")).text == "server_rewrite"
    other = await gateway.get("/?to=/other")
    assert other.text == "other"
    assert "content-type" not in other.headers
    assert (await gateway.get("/late")).text == "lua"
    assert any("lua_malloc_trim" in warning for warning in gateway.warnings)


async def test_rewrite_by_lua_before_the_others(gateway):
    await gateway.start(
        """location / { set $a "conf"; rewrite_by_lua_block { ngx.ctx.a = ngx.var.a or "nothing" }
            content_by_lua_block { ngx.print(ngx.ctx.a) } }""",
        http="rewrite_by_lua_no_postpone on;",
    )
    assert (await gateway.get("/")).text in {"", "nothing"}
