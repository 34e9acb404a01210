"""ngx.re, through the real edge, and the same table in nginx where its module has it."""

from __future__ import annotations

import pytest
from regex_table import OURS, TABLE


def locations(table: list[tuple[str, str, str]]) -> str:
    return "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\n{code}\n}} }}" for i, (_, code, _) in enumerate(table)
    )


async def test_table(gateway):
    table = TABLE + OURS
    await gateway.start(locations(table))
    wrong = []
    for i, (name, _, output) in enumerate(table):
        answer = await gateway.get(f"/case{i}")
        if answer.text != output:
            wrong.append(f"{name}: {answer.text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
def test_table_in_nginx(nginx):
    table = TABLE
    get = nginx(locations(table))
    wrong = []
    for i, (name, _, output) in enumerate(table):
        text = get(f"/case{i}").text
        if text != output:
            wrong.append(f"{name}: {text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


async def test_a_match_limit_ends_what_would_never_end(gateway):
    await gateway.start(
        "location / { content_by_lua_block { ngx.say(ngx.re.match(('a'):rep(40) .. '!', '(a+)+$')) } }",
        http="lua_regex_match_limit 1000;",
    )
    assert (await gateway.get("/")).text == "nilpcre_exec() failed: -47\n"


async def test_the_cache_has_a_limit_and_says_so_once(gateway):
    await gateway.start(
        "location / { content_by_lua_block { for i = 1, 5 do ngx.re.match('a', 'a' .. i, 'o') end ngx.say('ok') } }",
        http="lua_regex_cache_max_entries 2;",
    )
    assert (await gateway.get("/")).text == "ok\n"
    assert gateway.log().count("lua exceeding regex cache max entries (2)") == 1


async def test_a_larger_stack_is_set_before_the_first_pattern(gateway):
    await gateway.start(
        """location / { content_by_lua_block {
            ngx.say(pcall(require("ngx.re").opt, "jit_stack_size", 128 * 1024))
            ngx.re.match("a", "a", "jo")
            ngx.say(pcall(require("ngx.re").opt, "jit_stack_size", 128 * 1024))
            ngx.say(pcall(require("ngx.re").opt, "colour"))
        } }"""
    )
    assert (await gateway.get("/")).text.splitlines() == [
        "true",
        "falsechanging jit stack size is not allowed when some regexs have already been compiled and cached",
        "falseunrecognized option name",
    ]


async def test_patterns_that_are_forgotten_give_their_memory_back(gateway):
    await gateway.start(
        """location / { content_by_lua_block {
            for i = 1, 5000 do ngx.re.match("x", "(x|y" .. i .. "){1,50}") end
            collectgarbage() collectgarbage()
            ngx.say(math.floor(collectgarbage("count")) < 20000)
        } }"""
    )
    assert (await gateway.get("/")).text == "true\n"
