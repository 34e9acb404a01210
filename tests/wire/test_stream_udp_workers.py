"""Datagrams over workers: with reuseport a client stays with one; a reload brings new ones, which have the socket."""

from __future__ import annotations

import contextlib
import signal
import socket

from headrace.testing.process import wait_until

CONF = """\
worker_processes 2;
daemon off;
error_log stderr info;
pid nginx.pid;
events {}
stream {
    lua_shared_dict counts 256k;
    server {
        listen 127.0.0.1:PORT udp reuseport;
        content_by_lua_block {
            local sock = ngx.req.socket()
            ngx.shared.counts:incr("n", 1, 0)
            sock:send(ngx.worker.pid() .. " " .. ngx.shared.counts:get("n"))
        }
    }
}
"""


@contextlib.contextmanager
def client(port: int):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        sock.settimeout(0.5)
        yield sock


def answer(sock: socket.socket) -> tuple[int, int] | None:
    """The process that answers, and how many it and the others have answered; None without an answer."""
    with contextlib.suppress(TimeoutError, ConnectionRefusedError):
        sock.send(b"?")
        pid, count = sock.recv(100).split()
        return int(pid), int(count)
    return None


def ask(sock: socket.socket) -> tuple[int, int]:
    """An answer, after all that may be lost."""
    found: list[tuple[int, int]] = []
    wait_until(lambda: (one := answer(sock)) is not None and not found.append(one), "an answer")
    return found[0]


def test_a_client_stays_with_a_worker(prefix, headrace):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    (prefix / "nginx.conf").write_text(CONF.replace("PORT", str(port)))
    process = headrace("nginx", "-p", str(prefix), "-c", "nginx.conf")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(port)) for _ in range(24)]
        first = [ask(one)[0] for one in clients]
        assert len(set(first)) == 2
        assert [ask(one)[0] for one in clients] == first
        count = ask(clients[0])[1]
        process.send(signal.SIGHUP)
        wait_until(lambda: {ask(one)[0] for one in clients}.isdisjoint(first), "workers of the new generation")
        assert ask(clients[0])[1] > count
    assert process.stop() == 0
