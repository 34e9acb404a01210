"""ngx.location.capture: the table, in nginx too; and what only a running gateway shows."""

from __future__ import annotations

import pytest
from subrequest_table import LOCATIONS, TABLE

from headrace.edge.subrequest import Subrequest

BODY = b"posted"


def locations() -> str:
    cases = "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\n{code}\n}} }}" for i, (_, code, _) in enumerate(TABLE)
    )
    return LOCATIONS + cases


async def test_table(gateway):
    await gateway.start(locations())
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        answer = await gateway.get(f"/case{i}", "X-Some: value", method="POST", body=BODY)
        if answer.text != output:
            wrong.append(f"{name}: {answer.text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
def test_table_in_nginx(nginx):
    get = nginx(locations())
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        text = get(f"/case{i}", "X-Some: value", method="POST", body=BODY).text
        if text != output:
            wrong.append(f"{name}: {text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


async def test_a_hundred_at_once_leave_nothing_behind(gateway):
    await gateway.start(
        """location = /hello { content_by_lua_block { ngx.sleep(0.001) ngx.print("hello") } }
        location / { content_by_lua_block {
            local list = {}
            for i = 1, 100 do list[i] = {"/hello"} end
            local n = 0
            for _, one in ipairs{ngx.location.capture_multi(list)} do n = n + #one.body end
            ngx.say(n)
        } }"""
    )
    assert (await gateway.get("/")).text == "500\n"
    assert gateway.runtime.stats()["requests"] == 0


async def test_a_cycle_ends(gateway):
    await gateway.start("location / { content_by_lua_block { ngx.print(ngx.location.capture('/').status) } }")
    assert (await gateway.get("/")).status == 200
    assert "subrequests cycle while processing" in gateway.log()


async def test_variables_are_shared_or_copied_when_asked(gateway):
    await gateway.start(
        """location = /vars { content_by_lua_block { ngx.print(ngx.var.a) ngx.var.a = "changed" } }
        location / { set $a "";  content_by_lua_block {
            for _, how in ipairs{"copy_all_vars", "share_all_vars"} do
                ngx.var.a = "mine"
                ngx.say(how, " ", ngx.location.capture("/vars", {[how] = true}).body, " ", ngx.var.a)
            end
        } }"""
    )
    assert (await gateway.get("/")).text == "copy_all_vars mine mine\nshare_all_vars mine changed\n"


async def test_the_client_that_leaves_ends_them(gateway):
    await gateway.start(
        """location = /slow { content_by_lua_block { ngx.sleep(20) } }
        location / { lua_check_client_abort on; content_by_lua_block { ngx.location.capture("/slow") } }"""
    )
    await gateway.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", eof=True)
    stats = gateway.runtime.stats()
    assert stats["requests"] == 0
    assert "client prematurely closed connection" in gateway.log()


AT_ONCE = """
location = /part { return 200 "part"; }
location = /quick { content_by_lua_block { ngx.ctx.x = 1 ngx.header["X-A"] = "b" ngx.print(ngx.var.uri) } }
location = /deep { content_by_lua_block {
    local got = ngx.location.capture("/quick")
    ngx.print("(", got.body, got.header["X-A"], ngx.var.uri, tostring(ngx.ctx.x), ")")
} }
location = /slow { content_by_lua_block { ngx.sleep(0.001) ngx.print("slow") } }
location = /waits { content_by_lua_block { ngx.print("<", ngx.location.capture("/slow").body, ">") } }
location = /exit { content_by_lua_block { ngx.exit(403) } }
location = /fault { content_by_lua_block { error("oops") } }
"""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("ngx.print(ngx.location.capture('/deep').body, ngx.var.uri, ngx.status)", "(/quickb/deepnil)/0"),
        ("for i = 1, 3 do ngx.print(ngx.location.capture('/part').header['content-type'], ' ') end", "text/plain " * 3),
        (
            "for i = 1, 2 do local h = ngx.location.capture('/part').header h.a = (h.a or 0) + 1 ngx.print(h.a) end",
            "11",
        ),
        (
            """for _, got in ipairs{ngx.location.capture_multi{{'/slow'}, {'/part'}, {'/quick', {args = 'a'}}, {'/exit'},
            {'/fault'}, {'/none'}}} do ngx.print(got.status, got.body, ' ') end""",
            "200slow 200part 200/quick 403 500 404 ",
        ),
        (
            "ngx.print(ngx.location.capture('/waits').body, ngx.location.capture('/waits', {args = 'a'}).body)",
            "<slow><slow>",
        ),
        (
            """for _, got in ipairs{ngx.location.capture_multi{{'/part'}, {'/quick'}, {'/part', {}}, {'/slow'}}}
            do ngx.print(got.body, ' ') end""",
            "part /quick part slow ",
        ),
        (
            """local t = ngx.thread.spawn(function() ngx.print('a') ngx.sleep(0.001) ngx.print('c') end)
            ngx.print(ngx.location.capture('/deep').body) ngx.thread.wait(t)""",
            "a(/quickb/deepnil)c",
        ),
    ],
)
async def test_subrequests_that_end_at_once_run_within_the_run_of_their_parent(gateway, code, output):
    await gateway.start(AT_ONCE + f"location = / {{ content_by_lua_block {{ {code} }} }}")
    for _ in range(2):
        assert (await gateway.get("/")).text == output
    assert gateway.runtime.stats()["requests"] == 0


async def test_subrequests_that_end_at_once_take_no_task(gateway, monkeypatch):
    code = (
        "for _, got in ipairs{ngx.location.capture_multi{{'/part'}, {'/deep'}, {'/part'}}} do ngx.print(got.body) end"
    )
    await gateway.start(AT_ONCE + f"location = / {{ content_by_lua_block {{ {code} }} }}")
    started = []
    monkeypatch.setattr(Subrequest, "start", started.append)
    monkeypatch.setattr(Subrequest, "_run", lambda made, rest=None: started.append(made))
    assert (await gateway.get("/")).text == "part(/quickb/deepnil)part"
    assert not started
