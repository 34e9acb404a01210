"""rpc_endpoint: what the master answers, and the signals that follow."""

import json
import signal
import socket
import time

import pytest

from headrace.core.listener import open_listener
from headrace.supervisor.events import Events
from headrace.supervisor.rpc import RpcServer, RpcSettings


class Log:
    def __init__(self):
        self.lines = []

    def write(self, level, message):
        self.lines.append((level, message))


class Rig:
    def __init__(self, *, shows=False):
        self.events = Events([])
        self.sent = []
        self.log = Log()
        self.server = RpcServer(self.events, self.log, self.sent.append)
        self.sock = open_listener(("127.0.0.1", 0))
        self.settings = RpcSettings("rpc", "<ROOT>\n</ROOT>", shows=shows)
        self.server.serve(self.settings, {"rpc": self.sock})

    def client(self):
        sock = socket.create_connection(self.sock.getsockname())
        sock.setblocking(False)
        return sock

    def step(self):
        self.events.later(0.002, lambda: None)
        self.events.run_once(lambda number: None)

    def reply(self, client):
        data = b""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.step()
            try:
                piece = client.recv(65536)
            except BlockingIOError:
                continue
            except ConnectionResetError:  # it has sent more than was read
                return data or b"HTTP/1.1 4"
            if not piece:
                client.close()
                return data
            data += piece
        raise AssertionError("no answer")

    def ask(self, path, *, method="GET"):
        client = self.client()
        client.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        head, _, body = self.reply(client).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    def close(self):
        self.server.close()
        self.sock.close()
        self.events.close()


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("call", "signals"),
    [
        ("processes.interruptWorkers", [signal.SIGINT]),
        ("processes.killWorkers", [signal.SIGTERM]),
        ("processes.flushBuffersAndKillWorkers", [signal.SIGUSR1, signal.SIGTERM]),
        ("processes.zeroDowntimeRestart", [signal.SIGUSR2]),
        ("plugins.flushBuffers", [signal.SIGUSR1]),
        ("config.reload", [signal.SIGHUP]),
        ("config.gracefulReload", [signal.SIGHUP]),
        ("config.dump", []),
    ],
)
def test_calls(rig, call, signals):
    assert rig.ask(f"/api/{call}?x=1") == (200, {"ok": True})
    assert rig.sent == signals


def test_the_configuration_is_shown_only_when_it_may_be(rig):
    assert rig.ask("/api/config.getDump")[0] == 404
    shows = Rig(shows=True)
    assert shows.ask("/api/config.getDump") == (200, {"conf": "<ROOT>\n</ROOT>", "ok": True})
    shows.close()
    rig.ask("/api/config.dump")
    assert ("info", "dump in-memory config\n<ROOT>\n</ROOT>") in rig.log.lines


def test_what_is_no_call(rig):
    assert rig.ask("/api/nix") == (404, {"message": "Not found", "ok": False})
    client = rig.client()
    client.send(b"nonsense\r\n\r\n")
    assert b" 400 " in rig.reply(client)
    client = rig.client()
    client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
    assert rig.reply(client).startswith(b"HTTP/1.1 4")
    assert rig.sent == []


def test_slow_and_many_clients_do_not_hold_the_others_up(rig):
    idle = [rig.client() for _ in range(30)]
    for client in idle[:10]:
        client.send(b"GET /api/config.dump HTTP/1.1\r\n")
    for _ in range(40):
        rig.step()
    for client in idle:
        client.close()
    assert rig.ask("/api/config.dump") == (200, {"ok": True})
    for _ in range(10):
        rig.step()
    assert rig.server._clients == set()


def test_another_program_brings_another_socket(rig):
    other = open_listener(("127.0.0.1", 0))
    rig.server.serve(RpcSettings("new", "x"), {"new": other})
    first, rig.sock = rig.sock, other
    assert rig.ask("/api/config.dump") == (200, {"ok": True})
    first.close()
    rig.server.serve(None, {})
    client = rig.client()
    client.send(b"GET /api/config.dump HTTP/1.1\r\n\r\n")
    for _ in range(20):
        rig.step()
    with pytest.raises(BlockingIOError):
        client.recv(10)
    client.close()
