"""E.4: the CPU and the system calls of `content_by_lua_block { ngx.say("hello") }` beside nginx."""

from __future__ import annotations

import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from common import Program, children, free_port, headrace_nginx_command, nginx_command, ratios, spread, wait_for, wrk

CONF = """
worker_processes 1;
error_log stderr warn;
pid logs/nginx.pid;
events {{}}
http {{
    access_log off;
    keepalive_requests 100000000;
    server {{
        listen 127.0.0.1:{port};
        location / {{ content_by_lua_block {{ ngx.say("hello") }} }}
        location /return {{ return 200 "hello\\n"; }}
    }}
}}
"""


def counted(worker: int, load: Callable[[], float]) -> tuple[int, float]:
    """System calls of a process, by strace, while `load` runs; and what that gave."""
    trace = subprocess.Popen(["strace", "-f", "-c", "-p", str(worker)], stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)  # until it is attached
    given = load()
    trace.send_signal(signal.SIGINT)
    _, text = trace.communicate(timeout=10)
    total = re.search(r"^100[.,]00\s+\S+\s+\S+\s+(\d+)\s+(?:\d+\s+)?total", text, re.MULTILINE)
    return int(total[1]) if total else 0, given


def system_calls(program: Program, url: str, connections: int) -> float | None:
    """System calls a request, without those of an idle worker; None without strace."""
    if not shutil.which("strace"):
        return None
    worker = children(program.pid)[-1]
    idle, seconds = counted(worker, lambda: time.sleep(2) or 2.5)
    calls, requests = counted(worker, lambda: wrk(url, connections=connections, seconds=3, core=1)["requests"])
    # To hundredths: what opening the connections themselves took is in it.
    return round((calls - idle * 3.5 / seconds) / requests, 2)


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Interleaved runs of both; CPU of the server tree by the operating system."""
    rounds, seconds = (3, 2) if quick else (5, 5)
    servers: dict[str, tuple[int, Program]] = {}
    micros: dict[str, dict[str, list[float]]] = {}
    calls: dict[str, dict[str, float | None]] = {}
    try:
        for name, command in (("headrace", headrace_nginx_command), ("nginx", nginx_command)):
            prefix = folder / name
            prefix.mkdir()
            port = free_port()
            conf = prefix / "nginx.conf"
            conf.write_text(CONF.format(port=port))
            full = command(prefix, conf)
            if full is None:
                continue
            servers[name] = (port, Program(full, core=0, log=folder / f"{name}.log"))
            wait_for(*servers[name])
            wrk(f"http://127.0.0.1:{port}/", connections=16, seconds=1, core=1)
        for _ in range(rounds):
            for path in ("/", "/return"):
                for name, (port, program) in servers.items():
                    before = program.cpu()
                    done = wrk(f"http://127.0.0.1:{port}{path}", connections=64, seconds=seconds, core=1)
                    assert not done["errors"], done
                    micros.setdefault(path, {}).setdefault(name, []).append(
                        (program.cpu() - before) / done["requests"] * 1e6
                    )
        for name, (port, program) in servers.items():
            calls[name] = {str(n): system_calls(program, f"http://127.0.0.1:{port}/", n) for n in (1, 64)}
    finally:
        for _, program in servers.values():
            program.stop()
    result: dict[str, Any] = {
        "cpu_microseconds_a_request": {p: {n: spread(v) for n, v in row.items()} for p, row in micros.items()},
        "system_calls_a_request": calls,
    }
    if "nginx" in servers:
        result["hello_over_nginx"] = ratios(micros["/"]["headrace"], micros["/"]["nginx"])
        result["return_over_nginx"] = ratios(micros["/return"]["headrace"], micros["/return"]["nginx"])
    return result


GOALS = {
    "hello_over_nginx": 2.0,
    "system_calls_a_request.headrace.1": 3.0,
    "system_calls_a_request.headrace.64": 2.1,
}
