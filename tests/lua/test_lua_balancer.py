"""balancer_by_lua* and ngx.balancer: the table, in nginx too; and connections that are kept."""

from __future__ import annotations

import pytest
from balancer_table import NEWER, PEER, TABLE, configuration

from headrace.testing.origin import Origin, ok


async def wrong_ones(get, table, patched=True) -> list[str]:
    """patched: nginx with OpenResty's patch, by which ngx.exit(404) answers 404 and not 500."""
    wrong = []
    for i, (name, code, _, status, expected) in enumerate(table):
        if not patched and f"ngx.exit({status})" in code:
            status = 500  # noqa: PLW2901
        answer = await get(f"/case{i}?a=1")
        got = answer.text if answer.status == 200 else answer.headers.get("x-note", "")
        if answer.status != status or (expected is not None and expected not in got):
            wrong.append(f"{i} {name}: {answer.status} {got!r}, not {status} {expected!r}")
    return wrong


@pytest.mark.parametrize("table", [TABLE, NEWER])
async def test_table(gateway, tmp_path, table):
    http, server = configuration(str(tmp_path), table)
    await gateway.start(server, http=http)
    wrong = await wrong_ones(gateway.get, table)
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
async def test_table_in_nginx(nginx, tmp_path):
    http, server = configuration(str(tmp_path), TABLE)
    get = nginx(server, http=http)

    async def ask(target):
        return get(target)

    wrong = await wrong_ones(ask, TABLE, patched=False)
    assert not wrong, "\n".join(wrong)


def keeping(port: int, code: str, tail: str = "") -> tuple[str, str]:
    peer = f'{PEER} assert(b.set_current_peer("127.0.0.1", {port}))'
    http = f"upstream group {{ server 0.0.0.1; balancer_by_lua_block {{ {peer} {code} }} {tail} }}"
    return 'location / { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://group; }', http


async def test_connections_are_kept_where_the_script_says_so(gateway):
    async with Origin([ok(b"one")]) as there:
        server, http = keeping(there.port, "b.enable_keepalive(10, 3)")
        await gateway.start(server, http=http)
        for _ in range(6):
            assert (await gateway.get("/")).body == b"one"
        assert there.accepts == 2  # each serves three requests
        await there.all_closed()


async def test_without_a_word_no_connection_is_kept(gateway):
    async with Origin([ok(b"one")]) as there:
        server, http = keeping(there.port, "")
        await gateway.start(server, http=http)
        for _ in range(3):
            await gateway.get("/")
        assert there.accepts == 3


async def test_keepalive_of_the_group_holds_for_peers_of_the_script(gateway):
    async with Origin([ok(b"one")]) as there:
        server, http = keeping(there.port, "", "keepalive 2;")
        await gateway.start(server, http=http)
        for _ in range(3):
            await gateway.get("/")
        assert there.accepts == 1


async def test_messages_say_what_was_being_done(gateway):
    http = "upstream group { server 0.0.0.1; balancer_by_lua_block { print('here') ngx.socket.tcp() } }"
    await gateway.start("location / { proxy_pass http://group; }", http=http)
    assert (await gateway.get("/")).status == 500
    log = gateway.log()
    assert "[lua] balancer_by_lua(nginx.conf:6):1: here while connecting to upstream, client: " in log
    assert (
        "failed to run balancer_by_lua*: balancer_by_lua(nginx.conf:6):1: API disabled in the context of balancer"
        in log
    )


async def test_elsewhere_there_is_nothing_to_choose(gateway):
    await gateway.start(
        """location / { content_by_lua_block {
            local b = require "ngx.balancer"
            ngx.say(select(2, b.set_current_peer("127.0.0.1", 1)))
            ngx.say(select(2, b.set_more_tries(1)))
            ngx.say(select(3, b.get_last_failure()))
            ngx.say(select(2, b.recreate_request()))
        } }"""
    )
    assert (await gateway.get("/")).text == "no upstream found\n" * 4


async def test_a_group_may_have_no_servers_of_its_own(gateway):
    async with Origin([ok(b"one")]) as there:
        chosen = f'{PEER} if ngx.var.uri == "/" then b.set_current_peer("127.0.0.1", {there.port}) end'
        await gateway.start(
            "location / { proxy_pass http://group; }", http=f"upstream group {{ balancer_by_lua_block {{ {chosen} }} }}"
        )
        assert (await gateway.get("/")).body == b"one"
        assert (await gateway.get("/nobody")).status == 502
        assert "no live upstreams" in gateway.log()


async def test_it_comes_before_keepalive(gateway):
    http = "upstream group { server 0.0.0.1; keepalive 1; balancer_by_lua_block { print(1) } }"
    await gateway.start(http=http)
    assert any("load balancing method redefined" in warning for warning in gateway.warnings)


async def test_code_that_does_not_compile_answers_500(gateway):
    http = "upstream group { server 0.0.0.1; balancer_by_lua_block { ngx.say( } }"
    await gateway.start("location / { proxy_pass http://group; }", http=http)
    assert (await gateway.get("/")).status == 500
    assert "failed to load inlined Lua code: balancer_by_lua(nginx.conf:6):1:" in gateway.log()
