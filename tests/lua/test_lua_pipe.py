"""ngx.pipe: the table of pipe_table.py, and what only a running gateway shows."""

from __future__ import annotations

import asyncio
import os

import pytest
from lua_rig import LuaGateway
from pipe_table import PIPE, SAY, TABLE


def children() -> set[int]:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()}


async def run_table(gateway: LuaGateway) -> None:
    cases = "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\n{PIPE + SAY + code}\n}} }}"
        for i, (_, code, _) in enumerate(TABLE)
    )
    await gateway.start(cases)
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        answer = await gateway.get(f"/case{i}")
        if answer.text != output:
            wrong.append(f"{name}: {answer.text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong) + gateway.log()


async def test_table(gateway):
    await run_table(gateway)
    assert (
        "lua pipe child execvp() failed while executing /no/such/program (2: No such file or directory)"
        in gateway.log()
    )


def test_table_on_uvloop(tmp_path):
    uvloop = pytest.importorskip("uvloop")

    async def run() -> None:
        gateway = LuaGateway(tmp_path)
        try:
            await run_table(gateway)
        finally:
            await gateway.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_a_process_that_nobody_holds_is_killed(gateway):
    before = children()
    await gateway.content(
        PIPE + 'for i = 1, 3 do pipe.spawn({"sleep", "30"}) end collectgarbage() collectgarbage() ngx.sleep(0.1)'
    )
    await gateway.get()
    async with asyncio.timeout(10):
        while children() - before:
            await asyncio.sleep(0.01)


async def test_descriptors_come_back(gateway):
    await gateway.content(
        PIPE
        + """
        for i = 1, 5 do local p = pipe.spawn({"cat"}) p:write("x") p:stdout_read_any(1) p:kill(9) p:wait() end
        for i = 1, 5 do pipe.spawn({"cat"}) end
        collectgarbage() collectgarbage()
        local p = pipe.spawn({"true"}) p:wait()"""
    )
    await gateway.get()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await gateway.get()
    async with asyncio.timeout(10):
        while len(os.listdir("/proc/self/fd")) > before:
            await asyncio.sleep(0.01)


async def test_processes_end_with_the_worker(gateway):
    before = children()
    await gateway.content(PIPE + 'kept = pipe.spawn({"sleep", "30"})')
    await gateway.get()
    assert len(children() - before) == 1
    gateway.runtime.exit()
    assert not children() - before


async def test_phases(gateway):
    await gateway.start(
        """location / {
            content_by_lua_block { ngx.say(kept:wait()) ngx.say(tostring(why)) }
            log_by_lua_block { kept:wait() }
        }""",
        http=f"""init_by_lua_block {{ {PIPE} why = select(2, pcall(pipe.spawn, {{"true"}})) }}
        init_worker_by_lua_block {{ {PIPE} kept = pipe.spawn({{"true"}}) kept:wait() }}""",
    )
    answer = await gateway.get()
    assert answer.text == "trueexit0\nAPI disabled in the current context\n"
    log = gateway.log()
    assert "API disabled in the context of init_worker_by_lua*" in log
    assert "API disabled in the context of log_by_lua*" in log


async def test_processes_that_are_collected_while_others_are_cleared(gateway):
    """The collector may run at any step of what clears up behind it."""
    await gateway.content(
        PIPE
        + """
        collectgarbage("setpause", 1) collectgarbage("setstepmul", 1)
        for i = 1, 60 do assert(pipe.spawn({"true"})) for j = 1, i * 10 do local t = {{}, {}} end end
        collectgarbage("setpause", 200) collectgarbage("setstepmul", 200)
        ngx.print("done")"""
    )
    for _ in range(3):
        assert (await gateway.get()).text == "done", gateway.log()
