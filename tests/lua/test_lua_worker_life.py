"""init_worker_by_lua* and exit_worker_by_lua*: what they say when they fail, and what they may not do."""

from __future__ import annotations

import pytest


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


async def test_no_timer_is_made_when_the_worker_ends(gateway):
    code = "local ok, why = pcall(ngx.timer.at, 0, print) print(tostring(ok), why)"
    await gateway.content("ngx.say(1)", http=f"exit_worker_by_lua_block {{ {code} }}")
    await gateway.get()
    gateway.runtime.exit()
    assert "falseAPI disabled in the context of exit_worker_by_lua*" in gateway.log()
