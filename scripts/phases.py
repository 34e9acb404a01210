"""Write tests/lua/phases.json: which functions of the Lua API the nginx that is installed refuses in which phase.

    python scripts/phases.py

A call that ends the process is noted as "crash", and left out of the next try.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lua"))

import lua_rig
import phases_rig

NGINX = "/usr/sbin/nginx"
MODULES = ("ndk_http", "ngx_http_lua", "ngx_http_echo", "ngx_http_set_misc")


def main() -> None:
    """Ask nginx until it has survived."""
    crashes: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        phases_rig.authority(folder)
        while crash := _asked(folder, crashes):
            crashes.append(crash)
        found = phases_rig.read(folder / "report")
    for phase, call in crashes:
        found[phase][call] = "crash"
    phases_rig.keep(found)


def _asked(folder: Path, crashes: list[tuple[str, str]]) -> tuple[str, str] | None:
    """One run; the phase and the call that it did not survive, if there is one."""
    report, path = folder / "report", folder / "http.sock"
    report.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    skipped = "|" + "".join(f"{phase} {call}|" for phase, call in crashes)
    server, http = phases_rig.configuration(folder, report, skipped)
    loads = "".join(f"load_module {lua_rig.MODULES}/{module}_module.so;\n" for module in MODULES)
    text = lua_rig.CONF.format(prefix=folder, listen=f"unix:{path}", server=server, http=http, level="info")
    (folder / "nginx.conf").write_text(f"{loads}daemon off; master_process off; pid {folder}/nginx.pid;\n{text}")
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")])
    for socket_name in ("", *phases_rig.HANDSHAKE):
        while process.poll() is None and not (folder / (socket_name or "http.sock")).exists():
            time.sleep(0.05)
    if process.poll() is None:
        phases_rig.drive(str(path), folder)
        phases_rig.settled(report, "timer")
        process.terminate()
    if process.wait(10) == 0:
        return None
    phase, call, step = report.read_text().splitlines()[-1].split("\t")[:3]
    if step != "calls":
        raise SystemExit(f"nginx ended with {process.returncode}; the last call was {call} in {phase}")
    return phase, call


if __name__ == "__main__":
    main()
