"""Shared dictionaries of a running gateway: over workers, over a reload, over a worker that is killed."""

from __future__ import annotations

import os
import signal
import urllib.request

from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

CONF = """\
worker_processes 3;
daemon off;
error_log stderr info;
pid nginx.pid;
events {}
http {
    access_log off;
    lua_shared_dict counts 256k;
    server {
        listen 127.0.0.1:PORT;
        location = /incr { content_by_lua_block { ngx.say((ngx.shared.counts:incr("n", 1, 0))) } }
        location = /pid { content_by_lua_block { ngx.say(ngx.worker.pid()) } }
    }
}
"""


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.read().decode().strip()


def test_a_count_goes_on_over_workers_reload_and_death(prefix, headrace):
    port = free_port()
    (prefix / "nginx.conf").write_text(CONF.replace("PORT", str(port)))
    process = headrace("nginx", "-p", str(prefix), "-c", "nginx.conf")
    wait_until(lambda: get_or_none(port), "an answer")
    first = int(get(port, "/incr"))
    pids = {get(port, "/pid") for _ in range(60)}
    assert [int(get(port, "/incr")) for _ in range(30)] == list(range(first + 1, first + 31))
    process.send(signal.SIGHUP)
    wait_until(lambda: get(port, "/pid") not in pids, "a worker of the new generation")
    assert int(get(port, "/incr")) == first + 31
    os.kill(int(get(port, "/pid")), signal.SIGKILL)
    wait_until(lambda: get_or_none(port), "an answer")
    assert int(get(port, "/incr")) == first + 32
    assert process.stop() == 0


def get_or_none(port: int) -> str | None:
    try:
        return get(port, "/pid")
    except OSError:
        return None
