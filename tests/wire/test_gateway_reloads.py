"""H08, H11: a hundred reloads under load, and a thousand slow clients beside a normal one."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

import wire_rig as rig
from test_gateway import Gateway, request

from headrace.testing.process import wait_until

RELOADS = 100
CONF = """\
worker_processes 2;
error_log error.log warn;
worker_shutdown_timeout 20s;
events { worker_connections 4096; }
http {
    access_log off;
    upstream self { server 127.0.0.1:PORT; keepalive 4; }
    lua_shared_dict counts 64k;
    server {
        listen 127.0.0.1:PORT;
        client_header_timeout 30s;
        location = /generation { return 200 "GENERATION"; }
        location = /say { content_by_lua_block { ngx.shared.counts:incr("said", 1, 0) ngx.say("said") } }
        location = /said { content_by_lua_block { ngx.print(ngx.shared.counts:get("said")) } }
        location = /parts {
            content_by_lua_block { ngx.print(ngx.location.capture("/say").body) ngx.sleep(0.01) ngx.print("end") }
        }
        location = /proxy { proxy_pass http://self/say; }
        location = /long {
            content_by_lua_block { for i = 1, 40 do ngx.say(("x"):rep(999)) ngx.flush(true) ngx.sleep(0.02) end }
        }
    }
}
"""
ANSWERS = {"/say": b"said\n", "/parts": b"said\nend", "/proxy": b"said\n", "/long": (b"x" * 999 + b"\n") * 40}


class Load:
    """Clients that ask until they are told to stop; whatever is not the whole answer is a failure."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failures: list[str] = []
        self.answers: dict[str, int] = {}
        self.threads: list[threading.Thread] = []

    def add(self, name: str, ask: Callable[[], None]) -> None:
        def run() -> None:
            while not self.done.is_set():
                try:
                    ask()
                except Exception as error:  # every kind is a failure of a request
                    self.failures.append(f"{name}: {error!r}")
                    return
                self.answers[name] = self.answers.get(name, 0) + 1

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def end(self) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()


def asker(gateway: Gateway, path: str) -> Callable[[], None]:
    """One request over a connection of its own."""

    def ask() -> None:
        answer = rig.get(gateway.port, path)
        assert (answer.status, answer.body) == (200, ANSWERS[path])

    return ask


class Kept:
    """Requests over one connection. One that the gateway closed between two answers is opened again (RFC 9112 9.3.1);
    a part of an answer, or a connection of its own that gives none, is a failure."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.client = gateway.client()
        self.fresh = True
        self.answered = 0

    def ask(self) -> None:
        self.client.send(request("/say"))
        if not self._has_begun():
            assert not self.fresh, "a new connection was closed without an answer"
            self._open()
            return
        answer = self.client.answer()
        assert (answer.status, answer.body) == (200, ANSWERS["/say"])
        self.fresh = False
        self.answered += 1
        if answer.headers.get("connection") == "close":
            self._open()

    def _has_begun(self) -> bool:
        try:
            return self.client.sock.recv(1, socket.MSG_PEEK) != b""
        except ConnectionError:
            return False

    def _open(self) -> None:
        self.client.sock.close()
        self.client = self.gateway.client()
        self.fresh = True


def test_a_hundred_reloads_under_load(headrace):
    gateway = Gateway(headrace, CONF)
    conf = gateway.folder / "nginx.conf"
    text = conf.read_text()
    load, kept = Load(), Kept(gateway)
    for path in ANSWERS:
        load.add(path, asker(gateway, path))
    load.add("kept", kept.ask)
    try:
        for generation in range(RELOADS):
            conf.write_text(text.replace("GENERATION", str(generation)))
            gateway.process.send(signal.SIGHUP)
            wait_until(
                lambda wanted=b"%d" % generation: rig.get(gateway.port, "/generation").body == wanted,
                f"generation {generation}",
            )
            assert not load.failures, load.failures
    finally:
        load.end()
    assert load.failures == []
    assert all(count > 10 for count in load.answers.values()), load.answers
    said = kept.answered + sum(load.answers[name] for name in ("/say", "/parts", "/proxy"))
    assert int(rig.get(gateway.port, "/said").body) == said  # the dictionary has every one of them
    assert "alert" not in gateway.log()


def test_a_thousand_slow_clients_beside_a_normal_one(headrace):
    """H08, at size: they hold a connection each and nothing else."""
    gateway = Gateway(headrace, CONF)
    slow: list[socket.socket] = []
    try:
        for number in range(1000):
            sock = socket.create_connection(("127.0.0.1", gateway.port))
            sock.sendall(b"GET /say HTTP/1.1\r\nHo" if number % 2 else b"G")
            slow.append(sock)
        with gateway.client() as normal:
            for _ in range(50):
                assert normal.ask(request("/say")).body == b"said\n"
                assert normal.ask(request("/parts")).body == b"said\nend"
        for number, sock in enumerate(slow):
            sock.sendall(b"st: a\r\nConnection: close\r\n\r\n" if number % 2 else b"ET /say HTTP/1.0\r\n\r\n")
        for sock in slow:
            sock.settimeout(30)
            answer = b""
            while piece := sock.recv(4096):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"said\n") or b"said\n" in answer
    finally:
        for sock in slow:
            sock.close()
