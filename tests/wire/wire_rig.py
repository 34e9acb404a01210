"""What the wire tests share: scripted origins in a thread, raw clients, curl, figures, configurations.

The processes under test are real, and a test waits for them in its own thread; so a scripted origin has a
thread and an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.testing.origin import Origin, Received, Script
from headrace.testing.plugin import need
from headrace.testing.process import HeadraceProcess, Launcher, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"

NO_LOG_EVENTS = "<label @FLUENT_LOG>\n<match **>\n@type null\n</match>\n</label>\n"
"""Keeps the engine's own lines out of the catch-alls whose events a test counts."""

SENDER = """\
<source>
  @type sample
  sample {"hello":"world"}
  tag sample
  rate 5000
</source>
<match **>
  @type http
  endpoint http://localhost:9000
  open_timeout 2
  reuse_connections true
  <format>
    @type json
  </format>
  <buffer>
    flush_interval 10s
    chunk_limit_records 1
    flush_thread_count 32
  </buffer>
</match>
"""

RECEIVER = """\
<system>
  workers 1
</system>
<source>
  @type http
  port 9000
  bind 0.0.0.0
  body_size_limit 32m
  keepalive_timeout 10s
</source>
<match **>
  @type flowcounter_simple
  unit second
</match>
"""

GATEWAY = """\
error_log /dev/stderr info;
worker_processes auto;
events {}
http {
    server {
        listen 50000;
        location / {
            content_by_lua_block {
                ngx.say("hello")
                --ngx.flush(true)
                local sock = ngx.socket.tcp()
                local ok, err = sock:connect("unix:/tmp/echo.sock")
                assert(ok)
                ngx.update_time()
                local t1 = ngx.now()
                for _ = 1,100000 do
                    local sent = sock:send("hello")
                    local data = sock:receive(5)
                    assert(data=="hello")
                end
                ngx.log(ngx.INFO, "uds finish")
                ngx.update_time()
                local t2 = ngx.now()
                ngx.say("uds: ", t2-t1)
                sock:close()
                ngx.exit(200)
            }
        }
    }
}
"""


@contextlib.contextmanager
def origin(script: Script | None = None, *, port: int = 0, tls: Any = None) -> Iterator[Origin]:
    """A running scripted origin; its counters may be read from the test's thread."""
    made = Origin(port=port, tls=tls) if script is None else Origin(script, port=port, tls=tls)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    try:
        run(made.__aenter__())
        try:
            yield made
        finally:
            run(made.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def records(requests: list[Received]) -> list[Any]:
    """The JSON records of requests, a line each."""
    return [json.loads(line) for request in list(requests) for line in request.body.splitlines()]


class Client:
    """One raw connection."""

    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_rest: object) -> None:
        self.sock.close()

    def send(self, data: bytes, *, end: bool = False) -> None:
        """Write; a peer that has closed already is no failure of the test. end: half-close."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)
            if end:
                self.sock.shutdown(socket.SHUT_WR)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer, read to its end."""
        return Answer(self.sock, method)

    def ask(self, data: bytes, method: str = "GET") -> Answer:
        """Write and read one answer."""
        self.send(data)
        return self.answer(method)

    def rest(self) -> bytes:
        """Everything until the peer closes."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.sock.recv(65536):
                data += piece
        return data


class Answer:
    """An answer as the standard library reads it; interim answers are kept in `interim`."""

    def __init__(self, sock: socket.socket, method: str) -> None:
        self._file = _Unbuffered(sock)
        self.interim: list[int] = []
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self._file.take(1)
            line, _, fields = head.partition(b"\r\n")
            self.version, _, rest = line.decode().partition(" ")
            self.status = int(rest[:3])
            if self.status >= 200:
                break
            self.interim.append(self.status)
        self.headers: dict[str, str] = {}
        for field in fields.decode("latin-1").split("\r\n"):
            name, colon, value = field.partition(":")
            if colon:
                self.headers[name.lower()] = value.strip()
        self.chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self.body = self._body(method)

    def _body(self, method: str) -> bytes:
        if method == "HEAD" or self.status in {204, 304}:
            return b""
        if self.chunked:
            body = b""
            while size := int(self._file.line(), 16):
                body += self._file.take(size)
                assert self._file.take(2) == b"\r\n"
            while self._file.line():
                pass
            return body
        length = self.headers.get("content-length")
        return self._file.all() if length is None else self._file.take(int(length))


class _Unbuffered:
    """Takes no byte of a socket that belongs to the next answer."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._sock.recv(size - len(data))
            if not piece:
                raise http.client.IncompleteRead(data)
            data += piece
        return data

    def line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.take(1)
        return line[:-2]

    def all(self) -> bytes:
        data = b""
        while piece := self._sock.recv(65536):
            data += piece
        return data


def get(port: int, path: str = "/") -> Answer:
    """One GET on a connection of its own."""
    with Client(port) as client:
        return client.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())


def post(port: int, path: str, body: bytes, kind: str = "application/json") -> Answer:
    """One POST on a connection of its own."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    with Client(port) as client:
        return client.ask(head.encode() + body)


def chunks(*pieces: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def listens(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_listens(port: int, process: HeadraceProcess) -> None:
    """Wait until the process serves; shows what it printed when it does not."""

    def up() -> bool:
        assert process.running, process.output
        return listens(port)

    try:
        wait_until(up, f"port {port}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{process.output}") from None


def curl_output(*arguments: object) -> bytes:
    """What one curl prints."""
    return subprocess.run(
        [need("curl"), "-sS", "--max-time", "20", *map(str, arguments)],
        capture_output=True,
        check=True,
        env={name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
    ).stdout


def curl(*arguments: object) -> tuple[int, bytes]:
    """Status and body of one request by curl."""
    body, _, status = curl_output(*arguments, "-w", "\n%{http_code}").rpartition(b"\n")
    return int(status), body


def stats(launcher: Launcher, process: HeadraceProcess) -> dict[str, Any]:
    """The total of `headrace stats --json`."""
    done = launcher.run("headrace", "stats", process.pid, "--json")
    assert done.returncode == 0, done.stderr
    total: dict[str, Any] = json.loads(done.stdout)["total"]
    return total


def plugin(total: dict[str, Any], kind: str) -> dict[str, Any]:
    """The figures of the first plugin whose id begins with `kind`."""
    found: dict[str, Any] = next(value for name, value in total["pipeline"]["plugins"].items() if name.startswith(kind))
    return found


def kill(process: HeadraceProcess) -> None:
    """End the master and its workers at once, as a power cut would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def echo(launcher: Launcher, path: Path) -> HeadraceProcess:
    """The echo server of the examples."""
    process = launcher.start([sys.executable, str(EXAMPLES / "gateway" / "echo.py"), str(path)])

    def up() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) == 0

    wait_until(up, "the echo server")
    return process
