"""What must not grow in the gateway: CPU a request beside locations, servers, idle connections, timers, dict entries.

CPU is the scheduler's own figure of the worker (nanoseconds) over a fixed number of requests; nginx is measured the
same way where it has the module, to show its own line.
"""

from __future__ import annotations

import pathlib
import resource
import socket
from collections.abc import Callable
from typing import Any

from common import Program, free_port, headrace_nginx_command, nginx_command, scheduled_seconds, wait_for, wrk

CONF = """
worker_processes 1;
error_log stderr crit;
pid logs/nginx.pid;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 600s;
    lua_max_pending_timers 100000;
    server_names_hash_bucket_size 128;
    server_names_hash_max_size 8192;
    variables_hash_max_size 4096;
    {http}
    server {{
        listen 127.0.0.1:{port};
        server_name last.example;
        {server}
        location = /measured {{ return 200 "measured\\n"; }}
        location /say {{ content_by_lua_block {{ ngx.say("said") }} }}
    }}
}}
"""
FILL_TIMERS = """
location = /fill { content_by_lua_block {
    local count = 0
    for i = 1, tonumber(ngx.var.arg_n) do
        if ngx.timer.at(3000 + i % 100, function() end) then count = count + 1 end
    end
    ngx.print(count)
} }
"""
FILL_DICT = """
location = /fill { content_by_lua_block {
    local dict = ngx.shared.entries
    for i = 1, tonumber(ngx.var.arg_n) do dict:set("key" .. i, "value" .. i) end
    ngx.print(#dict:get_keys(0))
} }
location = /dict { content_by_lua_block {
    local dict = ngx.shared.entries
    dict:set("mine", "value") ngx.print(dict:get("mine"), dict:incr("count", 1, 0))
} }
"""
SIZES = {
    "locations": (10, 100, 1000),
    "regex_locations": (1, 10, 100),
    "servers": (1, 100, 1000),
    "idle_connections": (0, 1000, 10_000),
    "timers": (0, 1000, 50_000),
    "dict_entries": (10, 1000, 100_000),
}


def locations(size: int) -> dict[str, str]:
    """Prefixes that share a beginning with what is asked for; the wanted one is the last."""
    return {
        "server": "".join(f"location /a/{i}/x/ {{ return 201; }}\n" for i in range(size)),
        "path": f"/a/{size - 1}/x/",
    }


def regex_locations(size: int) -> dict[str, str]:
    """Regular expressions are tried in their order, in nginx too: this line may grow."""
    return {"server": "".join(f"location ~ ^/r{i}/ {{ return 201; }}\n" for i in range(size)), "path": f"/r{size - 1}/"}


def servers(size: int) -> dict[str, str]:
    """Servers of one address, by name; a third of them by wildcard."""
    made = "".join(
        "server {{ listen 127.0.0.1:{{port}}; server_name {name}; return 204; }}\n".format(
            name=f"*.s{i}.example" if i % 3 == 0 else f"s{i}.example"
        )
        for i in range(size - 1)
    )
    return {"http": made, "path": "/measured"}


def idle_connections(_size: int) -> dict[str, str]:
    """See hold()."""
    return {"path": "/measured"}


def timers(size: int) -> dict[str, str]:
    """Pending timers of Lua."""
    return {"server": FILL_TIMERS, "fill": str(size), "path": "/say"}


def dict_entries(size: int) -> dict[str, str]:
    """A shared dictionary with so many keys; a request sets, gets and counts."""
    return {"http": "lua_shared_dict entries 64m;", "server": FILL_DICT, "fill": str(size), "path": "/dict"}


JOBS: dict[str, Callable[[int], dict[str, str]]] = {
    "locations": locations,
    "regex_locations": regex_locations,
    "servers": servers,
    "idle_connections": idle_connections,
    "timers": timers,
    "dict_entries": dict_entries,
}


def ask(port: int, path: str) -> bytes:
    """One request; the whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: last.example\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer


def hold(port: int, count: int) -> list[socket.socket]:
    """Keep-alive connections that have had an answer each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(count + 1000, 4096)), hard))
    held = []
    for _ in range(count):
        held.append(socket.create_connection(("127.0.0.1", port)))
        held[-1].sendall(b"GET /measured HTTP/1.1\r\nHost: last.example\r\n\r\n")
        held[-1].recv(4096)
    return held


def measure(folder: pathlib.Path, name: str, size: int, command: Any, *, rounds: int, seconds: float) -> float | None:
    """CPU microseconds a request: the least of several rounds, since only what disturbs adds to it."""
    parts = JOBS[name](size)
    port = free_port()
    conf = folder / "nginx.conf"
    http, server = parts.get("http", "").replace("{port}", str(port)), parts.get("server", "")
    conf.write_text(CONF.format(port=port, http=http, server=server))
    full = command(folder, conf)
    if full is None:
        return None
    script = folder / "host.lua"
    script.write_text('wrk.headers["Host"] = "last.example"\n')
    with Program(full, core=0, log=folder / "log") as program:
        wait_for(port, program, 30)
        if "fill" in parts:
            answer = ask(port, f"/fill?n={parts['fill']}")
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        held = hold(port, size) if name == "idle_connections" else []
        url = f"http://127.0.0.1:{port}{parts['path']}"
        best = None
        wrk(url, connections=16, seconds=1, core=1, script=script)
        for _ in range(rounds):
            before = scheduled_seconds(program.pid)
            done = wrk(url, connections=16, seconds=seconds, core=1, script=script)
            spent = (scheduled_seconds(program.pid) - before) / done["requests"] * 1e6
            best = spent if best is None else min(best, spent)
        for one in held:
            one.close()
    return best


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Every size of each, in order; the quick form leaves out what lies between."""
    rounds, seconds = (2, 1) if quick else (4, 2)
    full: dict[str, Any] = {}
    for name, sizes in SIZES.items():
        wanted = (sizes[0], sizes[-1]) if quick else sizes
        rows: dict[str, dict[str, float]] = {}
        for program, command in (("headrace", headrace_nginx_command), ("nginx", nginx_command)):
            for size in wanted:
                place = folder / f"{name}-{program}-{size}"
                place.mkdir()
                spent = measure(place, name, size, command, rounds=rounds, seconds=seconds)
                if spent is not None:
                    rows.setdefault(program, {})[str(size)] = spent
        full[name] = {
            "request_us": rows,
            "times": {program: row[str(sizes[-1])] / row[str(sizes[0])] for program, row in rows.items()},
        }
        for program, row in rows.items():
            line = "  ".join(f"{size}: {spent:.1f}" for size, spent in row.items())
            print(f"  {name} {program} us a request: {line}  ({full[name]['times'][program]:.2f})", flush=True)
    return full


GOALS = {f"{name}.times.headrace": 1.25 for name in JOBS if name != "regex_locations"}
