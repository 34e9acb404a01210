"""ngx.location.capture: the table, in nginx too; and what only a running gateway shows."""

from __future__ import annotations

import pytest
from subrequest_table import LOCATIONS, TABLE

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
