"""Every function of the Lua API in every phase: allowed or refused, and with which words; the data is nginx's.

scripts/phases.py writes the data anew from the nginx that is installed.
"""

from __future__ import annotations

import asyncio

import phases_rig
import pytest
from phases_rig import authority, configuration, drive, read, settled


async def test_every_call_in_every_phase(gateway, tmp_path):
    authority(tmp_path)
    report = tmp_path / "report"
    await gateway.start(*configuration(tmp_path, report))
    await asyncio.to_thread(drive, gateway.path, tmp_path)
    await asyncio.to_thread(settled, report, "timer")
    await gateway.stop()
    wrong = phases_rig.differences(read(report))
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
def test_the_data_is_what_nginx_does(nginx, tmp_path):
    authority(tmp_path)
    report = tmp_path / "report"
    get = nginx(*configuration(tmp_path, report, phases_rig.skipped()))
    drive(str(get.folder / "http.sock"), tmp_path)
    settled(report, "timer")
    get.stop()
    found = read(report)
    wrong = [
        f"{phase}, {name}: {found[phase].get(name)!r}, not {expected!r}"
        for phase, names in phases_rig.known().items()
        for name, expected in names.items()
        if expected not in ("crash", found[phase].get(name))
    ]
    assert not wrong, "\n".join(wrong)


BEFORE = """
    server_rewrite_by_lua_block {
        if ngx.var.uri == "/jump" then ngx.req.set_uri("/other", true) ngx.header.X_After = "1" end
    }
    location = /other { return 200 other; }
    location = /jump { return 200 jump; }
    location = /late {
        return 200 late;
        log_by_lua_block { ngx.status = 500 ngx.header["X-Late"] = "1" ngx.log(ngx.WARN, "logged ", ngx.status) }
    }
"""


async def changes(get, log) -> None:
    jumped = await get("/jump")
    assert (jumped.text, jumped.headers.get("x-after")) == ("other", None)
    assert (await get("/late")).text == "late"
    await asyncio.sleep(0)
    assert "logged 200" in log()
    assert "attempt to set ngx.status after sending out response headers" in log()
    assert "attempt to set ngx.header.HEADER after sending out response headers" in log()


async def test_a_jump_before_there_is_a_location_and_changes_when_all_is_sent(gateway):
    await gateway.start(BEFORE)
    await changes(gateway.get, gateway.log)


@pytest.mark.peer
async def test_the_same_in_nginx(nginx):
    get = nginx(BEFORE)

    async def asked(target):
        return await asyncio.to_thread(get, target)

    await changes(asked, (get.folder / "error.log").read_text)
