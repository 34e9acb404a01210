"""The gateway: CPU a request of the same nginx.conf beside nginx with its Lua module, path by path.

One configuration for both, keep-alive, wrk on the other core. The upstream of proxy_pass and the Redis server
are shared by both and are not in the figures: CPU is that of the tree of the program under test.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

from common import (
    Program,
    free_port,
    headrace_nginx_command,
    nginx_command,
    ratios,
    spread,
    wait_for,
    wrk,
)

CONF = """
worker_processes 1;
error_log stderr warn;
pid logs/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    lua_package_path "{lua}/?.lua;;";
    lua_shared_dict counters 1m;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port};
        root {folder}/files;
        location = /return {{ return 200 "hello\\n"; }}
        location = /1k {{ }}
        location = /1m {{ }}
        location = /say {{ content_by_lua_block {{ ngx.say("hello") }} }}
        location = /api {{ content_by_lua_file {folder}/api.lua; }}
        location = /json {{ content_by_lua_file {folder}/json.lua; }}
        location = /proxy/1k {{ proxy_pass http://origin/1k; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location = /proxy/1m {{ proxy_pass http://origin/1m; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location = /redis/1 {{ set $commands 1; content_by_lua_file {folder}/redis.lua; }}
        location = /redis/10 {{ set $commands 10; content_by_lua_file {folder}/redis.lua; }}
        location = /part {{ internal; return 200 "part\\n"; }}
        location = /five {{ content_by_lua_file {folder}/five.lua; }}
    }}
}}
"""

ORIGIN = """
worker_processes 1;
error_log stderr crit;
pid logs/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""

API = """
local ngx = ngx
local args = ngx.req.get_uri_args()
local headers = ngx.req.get_headers()
local name = args.name or ngx.var.arg_name or "world"
local found = ngx.re.match(name, [[^(\\w)(\\w*)$]], "jo")
local title = found and (string.upper(found[1]) .. found[2]) or name
local clean = ngx.re.gsub(title, "[<>&]", "", "jo")
local visits = ngx.shared.counters:incr("visits", 1, 0)
ngx.ctx.visits = visits
local token = ngx.encode_base64(ngx.md5_bin(clean .. ngx.var.remote_addr))
ngx.header["Content-Type"] = "text/html; charset=utf-8"
ngx.header["X-Token"] = ngx.escape_uri(token)
ngx.header["Cache-Control"] = "private"
ngx.status = 200
local view = { title = clean, method = ngx.req.get_method(), uri = ngx.var.uri, agent = headers["User-Agent"] or "-",
    host = ngx.var.host, time = ngx.http_time(ngx.time()), unescaped = ngx.unescape_uri("a%20b"),
    crc = ngx.crc32_short(clean) }
local page = string.gsub([[<html><head><title>{{title}}</title></head><body>
<p>{{method}} {{uri}} on {{host}} by {{agent}} at {{time}}</p><p>{{unescaped}} {{crc}}</p></body></html>
]], "{{(%w+)}}", view)
ngx.print(page)
"""

JSON = """
local cjson = require "cjson"
local text = [[{"user":{"id":12345,"name":"somebody","email":"somebody@example.com",
"roles":["admin","editor","viewer"]},
"items":[{"id":1,"price":12.5,"tags":["a","b"]},{"id":2,"price":7.25,"tags":["c"]},{"id":3,"price":99,"tags":[]}],
"paid":true,"note":null,"address":{"street":"Long Road 1","city":"Town","zip":"12345"}}]]
local order = cjson.decode(text)
local total = 0
for _, item in ipairs(order.items) do total = total + item.price end
order.total = total
ngx.header["Content-Type"] = "application/json"
ngx.say(cjson.encode(order))
"""

REDIS = """
local redis = require "nginx.redis"
local red = redis:new()
red:set_timeout(1000)
local ok, err = red:connect("unix:{folder}/redis.sock")
if not ok then return ngx.exit(500) end
for i = 1, tonumber(ngx.var.commands) do
    local value = red:get("key")
    if value ~= "value" then return ngx.exit(500) end
end
red:set_keepalive(60000, 128)
ngx.say("done")
"""

FIVE = """
local parts = {{ "/part" }, { "/part" }, { "/part" }, { "/part" }, { "/part" }}
local a, b, c, d, e = ngx.location.capture_multi(parts)
ngx.print(a.body, b.body, c.body, d.body, e.body)
"""

JOBS = {
    "return": ("/return", 2.0),
    "static_1k": ("/1k", 2.2),
    "static_1m": ("/1m", 1.2),
    "say": ("/say", 1.8),
    "api_20_calls": ("/api?name=somebody", 1.5),
    "json_cjson": ("/json", 1.3),
    "proxy_1k": ("/proxy/1k", 3.0),
    "proxy_1m": ("/proxy/1m", 1.5),
    "redis_1": ("/redis/1", 1.3),
    "redis_10": ("/redis/10", 1.3),
    "subrequests_5": ("/five", 1.5),
}
"""Path and goal: at most so many times nginx's CPU a request."""


def prepare(folder: pathlib.Path) -> None:
    """The files that both serve and run."""
    (folder / "files").mkdir()
    folder.chmod(0o755)
    (folder / "files" / "1k").write_bytes(b"x" * 1024)
    (folder / "files" / "1m").write_bytes(b"x" * (1 << 20))
    for name, text in (("api", API), ("json", JSON), ("five", FIVE), ("redis", REDIS.replace("{folder}", str(folder)))):
        (folder / f"{name}.lua").write_text(text)


def redis(folder: pathlib.Path) -> Program | None:
    """A Redis server on a unix socket, with one key; None where it is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        return None
    path = folder / "redis.sock"
    command = [binary, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    program = Program(command, core=1, log=folder / "redis.log")
    wait_for(str(path), program)
    subprocess.run(["redis-cli", "-s", str(path), "set", "key", "value"], check=True, capture_output=True)
    return program


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Interleaved runs of both, path by path."""
    prepare(folder)
    rounds, seconds = (1, 1) if quick else (5, 4)
    started: list[Program] = []
    servers: dict[str, tuple[int, Program]] = {}
    micros: dict[str, dict[str, list[float]]] = {}
    jobs = dict(JOBS)
    try:
        origin_port = free_port()
        origin = folder / "origin"
        origin.mkdir()
        (origin / "nginx.conf").write_text(ORIGIN.format(port=origin_port, folder=folder))
        command = nginx_command(origin, origin / "nginx.conf")
        if command is None:
            return {"left_out": "nginx with its Lua module is not installed"}
        started.append(Program(command, core=1, log=folder / "origin.log"))
        wait_for(origin_port, started[-1])
        store = redis(folder)
        if store is None:
            jobs = {name: job for name, job in jobs.items() if not name.startswith("redis")}
        else:
            started.append(store)
        for name, make in (("headrace", headrace_nginx_command), ("nginx", nginx_command)):
            prefix = folder / name
            prefix.mkdir()
            port = free_port()
            conf = prefix / "nginx.conf"
            conf.write_text(CONF.format(port=port, origin=origin_port, folder=folder, lua="/usr/share/lua/5.1"))
            full = make(prefix, conf)
            assert full is not None
            servers[name] = (port, Program(full, core=0, log=folder / f"{name}.log"))
            started.append(servers[name][1])
            wait_for(*servers[name])
        for _ in range(rounds):
            for job, (path, _goal) in jobs.items():
                for name, (port, program) in servers.items():
                    url = f"http://127.0.0.1:{port}{path}"
                    wrk(url, connections=32, seconds=1, core=1)
                    before = program.cpu()
                    done = wrk(url, connections=32, seconds=seconds, core=1)
                    assert not done["errors"], (name, job, done)
                    spent = (program.cpu() - before) / done["requests"] * 1e6
                    micros.setdefault(job, {}).setdefault(name, []).append(spent)
    finally:
        for program in reversed(started):
            program.stop()
    return {
        "cpu_microseconds_a_request": {job: {n: spread(v) for n, v in row.items()} for job, row in micros.items()},
        "over_nginx": {job: ratios(row["headrace"], row["nginx"]) for job, row in micros.items()},
    }


GOALS = {f"over_nginx.{job}": goal for job, (_path, goal) in JOBS.items()}
