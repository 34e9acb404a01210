"""ngx.resp, and the small modules of resty.core."""

from __future__ import annotations


async def test_a_status_with_words_of_its_own(gateway):
    await gateway.start(
        """
        location /own { content_by_lua_block { require("ngx.resp").set_status(200, "Fine by me") ngx.say("x") } }
        location /usual { content_by_lua_block { require("ngx.resp").set_status(404) ngx.say("x") } }
        location /text { content_by_lua_block { require("ngx.resp").set_status("202", "So\\r\\nX-Bad: 1") ngx.say("x") } }
        location /filter { header_filter_by_lua_block { require("ngx.resp").set_status(503, "Later") } return 200 "x"; }
        location /late { content_by_lua_block { ngx.say("x") require("ngx.resp").set_status(500, "Late") } }
        """
    )
    heads = {
        path: (await gateway.get(path)).head.decode().split("\r\n")[0]
        for path in ("/own", "/usual", "/filter", "/late")
    }
    assert heads == {
        "/own": "HTTP/1.1 200 Fine by me",
        "/usual": "HTTP/1.1 404 Not Found",
        "/filter": "HTTP/1.1 503 Later",
        "/late": "HTTP/1.1 200 OK",
    }
    assert (await gateway.get("/text")).head.startswith(b"HTTP/1.1 202 SoX-Bad: 1\r\n")


async def test_conditions_may_be_passed_by(gateway, tmp_path):
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "a.txt").write_text("text")
    await gateway.start(
        """
        location = /a.txt { root html; }
        location = /b.txt { root html; rewrite ^ /a.txt break; access_by_lua_block { assert(require("ngx.resp").bypass_if_checks()) } }
        """
    )
    field = "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT"
    assert (await gateway.get("/a.txt", field)).status == 412
    assert (await gateway.get("/b.txt", field)).body == b"text"


async def test_small_modules(gateway):
    await gateway.content(
        """
        local time, utils, ctx = require "resty.core.time", require "resty.core.utils", require "resty.core.ctx"
        ngx.say(time.monotonic_msec() - time.monotonic_time() * 1000 < 5, " ", time.monotonic_msec() % 1)
        ngx.say(utils.str_replace_char("a-b-%", "-", "_"), utils.str_replace_char("a.b", ".", "%"))
        local mine = { a = 1 }
        ngx.say(ctx.get_ctx_table(mine) == mine, ngx.ctx == mine, ctx.get_ctx_table({}) == mine)
        """
    )
    assert (await gateway.get()).text == "true 0\na_b_%a%b\ntruetruetrue\n"
