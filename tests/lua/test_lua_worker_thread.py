"""ngx.run_worker_thread: values there and back, errors, and a worker that goes on meanwhile."""

from __future__ import annotations

MODULE = """
local M = {}
function M.add(a, b) return a + b, {sum = {a, b}}, nil, "end" end
function M.fault() error("as wanted") end
function M.long() local n = 0 for i = 1, 3e7 do n = n + i % 7 end return n end
return M
"""


async def test_calls(gateway):
    (gateway.folder / "calc.lua").write_text(MODULE)
    await gateway.content(
        """
        local function call(...) return ngx.run_worker_thread(...) end
        local ok, sum, both, none, last = call("default", "calc", "add", 1, 2)
        ngx.say(ok, sum, both.sum[2], none, last)
        ngx.say((select(2, call("default", "calc", "fault")):gsub("^.*:", "")))
        ngx.say(call("default", "calc", "nothing"))
        ngx.say(call("other", "calc", "add"))
        ngx.say((call("default", "no.such.module", "add")))
        ngx.say(pcall(call, "default", "calc", "add", print))
        local turns = 0
        local long = ngx.thread.spawn(call, "default", "calc", "long")
        while coroutine.status(long) == "running" do turns = turns + 1 ngx.sleep(0.001) end
        ngx.say(turns > 1, (ngx.thread.wait(long)))
    """,
        http=f'lua_package_path "{gateway.folder}/?.lua;;"; lua_worker_thread_vm_pool_size 1;',
    )
    lines = (await gateway.get()).text.splitlines()
    assert lines[:5] == [
        "true32nilend",
        " as wanted",
        "falsefunction nothing of module calc not found",
        "falsethread pool other not found",
        "false",
    ], gateway.log()
    assert lines[5].startswith("falseunsupported argument: ") or "unsupported argument" in lines[5]
    assert lines[6] == "truetrue"
