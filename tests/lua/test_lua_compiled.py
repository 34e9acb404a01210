"""The hot loops compile: what LuaJIT's trace events say of a handler's loop over a socket and of say()."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

ECHO = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    peer, _ = listener.accept()
    while data := peer.recv(65536):
        peer.sendall(data)
"""

TRACES = """
init_by_lua_block {
    local util = require "jit.util"
    traces = {}
    jit.attach(function(what, trace, func, pc, code)
        local info = func and util.funcinfo(func, pc) or {}
        if what == "stop" then
            traces[#traces + 1] = "stop " .. util.traceinfo(trace).linktype .. " " .. tostring(info.loc)
        elseif what == "abort" then
            traces[#traces + 1] = "abort " .. tostring(code) .. " " .. tostring(info.loc)
        end
    end, "trace")
}
"""


@pytest.fixture
def echo_process(tmp_path):
    path = str(tmp_path / "echo.sock")
    process = subprocess.Popen([sys.executable, "-c", ECHO, path])
    deadline = time.monotonic() + 20
    while not (tmp_path / "echo.sock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield path
    process.terminate()
    process.wait(10)


async def test_the_loop_over_a_socket(gateway, echo_process):
    await gateway.start(
        f"""
        location = /run {{ content_by_lua_block {{
            ngx.say("hello")
            local sock = ngx.socket.tcp()
            assert(sock:connect("unix:{echo_process}"))
            for _ = 1, 3000 do
                sock:send("hello")
                local data = sock:receive(5)
                assert(data == "hello")
            end
            sock:close()
        }} }}
        location = /traces {{ content_by_lua_block {{ ngx.say(table.concat(traces, "\\n")) }} }}
        """,
        http=TRACES,
    )
    for _ in range(10):
        assert (await gateway.get("/run")).text == "hello\n"
        lines = (await gateway.get("/traces")).text.splitlines()
        if any(line.startswith("stop loop content_by_lua(") for line in lines):
            break
    else:
        raise AssertionError(lines)
    assert gateway.runtime.stats()["chain_peak"] == 1


async def test_reading_in_small_pieces_and_writing_output(gateway, origin):
    async def flood(_origin, _reader, writer, _number):
        writer.write(b"x" * 50_000)

    server = await origin(flood)
    await gateway.start(
        f"""
        location = /run {{ content_by_lua_block {{
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            local n = 0
            for _ = 1, 5000 do n = n + #sock:receive(10) end
            for i = 1, 5000 do ngx.print("abc") end
        }} }}
        location = /traces {{ content_by_lua_block {{ ngx.say(table.concat(traces, "\\n")) }} }}
        """,
        http=TRACES,
    )
    assert len((await gateway.get("/run")).body) == 15_000
    lines = (await gateway.get("/traces")).text.splitlines()
    assert sum(line.startswith("stop loop content_by_lua(") for line in lines) == 2, lines
