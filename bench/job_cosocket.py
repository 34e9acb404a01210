"""E.1: round trips of five bytes over a unix socket, behind an ngx.say that is flushed or not."""

from __future__ import annotations

import pathlib
import re
import statistics
import subprocess
import time
import urllib.request
from typing import Any

from common import Program, compile_c, free_port, headrace_nginx_command, nginx_command, ratios, spread, wait_for

HERE = pathlib.Path(__file__).parent / "cosocket"
SIZES = (10_000, 30_000, 100_000)

CONF = """
worker_processes 1;
error_log stderr warn;
pid logs/nginx.pid;
events {{}}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            content_by_lua_block {{
                local count = tonumber(ngx.var.arg_n)
                ngx.say("hello")
                if ngx.var.arg_flush == "1" then ngx.flush(true) end
                local sock = ngx.socket.tcp()
                assert(sock:connect("unix:{echo}"))
                ngx.update_time()
                local start = ngx.now()
                for _ = 1, count do
                    sock:send("hello")
                    local data = sock:receive(5)
                    assert(data == "hello")
                end
                ngx.update_time()
                ngx.say("uds: ", ngx.now() - start)
                sock:close()
            }}
        }}
    }}
}}
"""


def ask(port: int, count: int, flush: int) -> float:
    """Seconds that one request's round trips took, as its handler measured them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/?n={count}&flush={flush}", timeout=300) as reply:
        match = re.search(r"uds: ([\d.]+)", reply.read().decode())
    assert match
    return float(match[1])


def measure(folder: pathlib.Path, *, server_core: int, echo_core: int, rounds: int) -> dict[str, Any]:
    """All programs in turn, round by round, on the given cores."""
    echo = compile_c(HERE / "echo.c", folder)
    client = compile_c(HERE / "client.c", folder)
    path = str(folder / f"echo-{server_core}-{echo_core}.sock")
    times: dict[str, dict[str, list[float]]] = {}
    cpu: dict[str, list[float]] = {}
    servers: dict[str, tuple[int, Program]] = {}
    with Program([str(echo), path], core=echo_core, log=folder / "echo.log") as echoing:
        wait_for(path, echoing)
        try:
            for name, command in (("headrace", headrace_nginx_command), ("nginx", nginx_command)):
                prefix = folder / f"{name}-{server_core}-{echo_core}"
                prefix.mkdir()
                port = free_port()
                conf = prefix / "nginx.conf"
                conf.write_text(CONF.format(port=port, echo=path))
                full = command(prefix, conf)
                if full is None:
                    continue
                servers[name] = (port, Program(full, core=server_core, log=folder / f"{name}.log"))
                wait_for(*servers[name])
                ask(port, 2_000, 0)
            for _ in range(rounds):
                for size in SIZES:
                    for flush in (0, 1):
                        for name, (port, program) in servers.items():
                            before = program.cpu()
                            taken = ask(port, size, flush)
                            key = f"{size}/{'flushed' if flush else 'unflushed'}"
                            times.setdefault(name, {}).setdefault(key, []).append(taken)
                            if size == SIZES[-1] and not flush:
                                cpu.setdefault(name, []).append(program.cpu() - before)
                    start = time.monotonic()
                    subprocess.run(
                        ["taskset", "-c", str(server_core), str(client), path, str(size)],
                        check=True,
                        stdout=subprocess.DEVNULL,
                    )
                    times.setdefault("c", {}).setdefault(f"{size}/unflushed", []).append(time.monotonic() - start)
        finally:
            for _, program in servers.values():
                program.stop()
    big, small = f"{SIZES[-1]}/unflushed", f"{SIZES[0]}/unflushed"
    ours = times["headrace"]
    result: dict[str, Any] = {
        "seconds": {name: {key: spread(values) for key, values in row.items()} for name, row in times.items()},
        "cpu_seconds_100k_unflushed": {name: statistics.median(values) for name, values in cpu.items()},
        "per_round_trip_100k_over_10k": ratios([t / SIZES[-1] for t in ours[big]], [t / SIZES[0] for t in ours[small]]),
        "unflushed_over_flushed": ratios(ours[big], ours[f"{SIZES[-1]}/flushed"]),
        "over_c": ratios(ours[big], times["c"][big]),
    }
    if "nginx" in times:
        result["over_nginx"] = ratios(ours[big], times["nginx"][big])
        # How far below nginx a program can get here at all: it depends on what waking a core costs this machine.
        result["c_over_nginx"] = ratios(times["c"][big], times["nginx"][big])
    return result


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Two cores (server on 0, echo on 1) and everything on core 0."""
    rounds = 3 if quick else 5
    return {
        "two_cores": measure(folder, server_core=0, echo_core=1, rounds=rounds),
        "one_core": measure(folder, server_core=0, echo_core=0, rounds=rounds),
    }


GOALS = {
    "two_cores.per_round_trip_100k_over_10k": 1.15,
    "two_cores.unflushed_over_flushed": 1.1,
    "two_cores.over_nginx": 0.45,
    "two_cores.over_c": 1.25,
    "one_core.over_nginx": 1.3,
}
