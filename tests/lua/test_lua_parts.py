"""Where modules are found, the loop's descriptor, and the directives that are checked before anything runs."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop
from lua_rig import LuaGateway

from headrace.errors import ConfError
from headrace.lua import loopfd
from headrace.lua.paths import default_cpath, default_path, search_paths


def test_default_folders():
    path, cpath = search_paths("/srv/x/", None, None)
    for folder in ("/srv/x/lualib", f"{sys.prefix}/share/lua/5.1", "/usr/local/share/lua/5.1", "/usr/share/lua/5.1"):
        assert f"{folder}/?.lua;{folder}/?/init.lua" in path
    for folder in ("/srv/x/lualib", f"{sys.prefix}/lib/lua/5.1", "/usr/local/lib/lua/5.1", "/usr/lib/lua/5.1"):
        assert f"{folder}/?.so" in cpath.split(";")


def test_paths_of_directives_and_the_environment(monkeypatch):
    monkeypatch.setenv("LUA_PATH", "/env/?.lua;;")
    monkeypatch.setenv("LUA_CPATH_5_1", "/first/?.so")
    monkeypatch.setenv("LUA_CPATH", "/second/?.so")
    assert search_paths("/p", None, None) == ("/env/?.lua;" + default_path("/p"), "/first/?.so")
    assert search_paths("/p", "$prefix/l/?.lua;;", ";;/c/?.so") == (
        "/p/l/?.lua;" + default_path("/p"),
        default_cpath("/p") + ";/c/?.so",
    )
    assert search_paths("/p", "/only/?.lua", "/only/?.so") == ("/only/?.lua", "/only/?.so")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_loops_own_descriptor(factory):
    async def main():
        found = asyncio.get_running_loop().create_future()
        loopfd.find(asyncio.get_running_loop(), found.set_result)
        return await asyncio.wait_for(found, 10)

    loop = factory()
    try:
        assert loop.run_until_complete(main()) > 2
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("lua_socket_buffer_size x;", '"lua_socket_buffer_size" directive invalid value'),
        ("lua_socket_read_timeout 1x;", '"lua_socket_read_timeout" directive invalid value'),
        ("lua_socket_spin_time soon;", '"lua_socket_spin_time" directive invalid value'),
        ("lua_code_cache maybe;", 'invalid value "maybe" in "lua_code_cache" directive'),
        ("lua_nonsense 1;", 'unknown directive "lua_nonsense"'),
        ("init_by_lua 'a = 1'; init_by_lua 'b = 1';", '"init_by_lua" directive is duplicate'),
        ("content_by_lua 'x = 1';", '"content_by_lua" directive is not allowed here'),
    ],
)
async def test_wrong_directives(tmp_path, conf, message):
    with pytest.raises(ConfError) as caught:
        await LuaGateway(tmp_path).start(http=conf)
    assert message in str(caught.value)


async def test_times_of_ones_own(gateway):
    await gateway.start(http="lua_socket_spin_time 20us; lua_socket_turn_time 2ms; init_by_lua_block { a = 1 }")
    assert gateway.runtime.settings.spin_time == pytest.approx(20e-6)
    assert gateway.runtime.settings.turn_time == pytest.approx(2e-3)
