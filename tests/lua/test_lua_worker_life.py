"""init_worker_by_lua* and exit_worker_by_lua*: what they say when they fail, and what they may not do."""

from __future__ import annotations

import re

import pytest

from headrace.errors import ConfError


@pytest.mark.parametrize("phase", ["init_worker", "exit_worker"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('error("no")', "no"),
        ("x = = 1", "unexpected symbol near '='"),
        ("ngx.sleep(1)", "API disabled in the context of {phase}_by_lua*"),
    ],
)
async def test_failures_are_told(gateway, phase, code, said):
    await gateway.content("ngx.say(1)", http=f"{phase}_by_lua_block {{ {code} }}")
    assert (await gateway.get()).text == "1\n"
    gateway.runtime.exit()
    assert f"[error] {phase}_by_lua error: {phase}_by_lua(nginx.conf:6):1: {said.replace('{phase}', phase)}" in strip(
        gateway.log()
    )


def strip(log: str) -> str:
    """Lines without the process."""
    return "\n".join(" ".join(line.split(" ")[2:3] + line.split(" ")[4:]) for line in log.splitlines())


async def test_files_and_lines(gateway, tmp_path):
    (tmp_path / "bad.lua").write_text("error('no')")
    await gateway.content("ngx.say(1)", http="init_worker_by_lua_file bad.lua;")
    log = gateway.log()
    assert "init_worker_by_lua_file error: " in log
    assert "/bad.lua:1: no" in log


async def test_init_that_fails_is_told_in_the_log_too(gateway):
    with pytest.raises(ConfError, match=re.escape("init_by_lua error: init_by_lua(nginx.conf:6):1: no")):
        await gateway.content("ngx.say(1)", http='init_by_lua_block { error("no") }')
    assert "[error]" in gateway.log()


async def test_lines_of_init_worker_say_so(gateway):
    await gateway.content(
        "ngx.say(1)", http='init_worker_by_lua_block { print("here") ngx.timer.at(0, function() print("later") end) }'
    )
    await gateway.get()
    log = gateway.log()
    assert "here, context: init_worker_by_lua*\n" in log
    assert "later, context: ngx.timer\n" in log


async def test_a_timer_has_no_answer(gateway):
    code = "ngx.timer.at(0, function() print(select(2, pcall(function() return ngx.headers_sent end))) end) ngx.sleep(0.01)"
    await gateway.content(code)
    await gateway.get()
    assert "API disabled in the current context, context: ngx.timer" in gateway.log()


async def test_no_timer_is_made_when_the_worker_ends(gateway):
    code = "local ok, why = pcall(ngx.timer.at, 0, print) print(tostring(ok), why)"
    await gateway.content("ngx.say(1)", http=f"exit_worker_by_lua_block {{ {code} }}")
    await gateway.get()
    gateway.runtime.exit()
    assert "falseAPI disabled in the context of exit_worker_by_lua*" in gateway.log()
