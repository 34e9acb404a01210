"""Gateways in front of scripted origins, and nginx with the same configuration beside them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.edge.build import build
from headrace.testing.origin import Origin

CONF = """
worker_processes 1;
error_log {prefix}/error.log info;
events {{}}
http {{
    log_format test "{log}";
    access_log {prefix}/access.log test;
    {http}
    server {{
        listen unix:{path};
        server_name localhost;
        {server}
    }}
}}
"""


class Answer:
    """One answer. fields: in order; headers: by lower-case name, the last one wins."""

    def __init__(self, raw: bytes) -> None:
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.raw, self.line = raw, lines[0]
        self.status = int(lines[0].split()[1]) if head else 0
        self.fields = [tuple(line.split(": ", 1)) for line in lines[1:]]
        self.headers = {name.lower(): value for name, value in self.fields}
        self.whole = True
        if "chunked" in self.headers.get("transfer-encoding", ""):
            body, self.whole = unchunk(body)
        self.body = body


def unchunk(data: bytes) -> tuple[bytes, bool]:
    out = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size or b"0", 16)
        if not length:
            return out, size == b"0"
        out += rest[:length]
        data = rest[length + 2 :]
    return out, False


def request_text(target: str, fields: tuple[str, ...], method: str, body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *fields]
    if body and not any(field.lower().startswith("transfer-encoding") for field in fields):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Side:
    """A server under test on a unix socket: headrace in this loop, or nginx."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "http.sock")

    async def connect(self):
        return await asyncio.open_unix_connection(self.path)

    async def raw(self, data: bytes) -> bytes:
        reader, writer = await self.connect()
        try:
            writer.write(data)
            out = b""
            with contextlib.suppress(ConnectionError):
                while piece := await asyncio.wait_for(reader.read(65536), 20):
                    out += piece
            return out
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def get(self, target: str = "/", *fields: str, method: str = "GET", body: bytes = b"") -> Answer:
        return Answer(await self.raw(request_text(target, fields, method, body)))

    def log(self, name: str = "error.log") -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def text(self, server: str, http: str, log: str) -> str:
        return CONF.format(prefix=self.folder, path=self.path, server=server, http=http, log=log)


class Ours(Side):
    gateway = None
    name = "headrace"

    async def start(self, server: str, http: str = "", log: str = "$status") -> Ours:
        problems = Problems()
        tree = parse(self.text(server, http, log), str(self.folder / "nginx.conf"))
        gateway = build(tree, prefix=str(self.folder), problems=problems, conf_dir=str(self.folder))
        problems.raise_first()
        gateway.open_logs()
        self.gateway = gateway
        loop = asyncio.get_running_loop()
        sockets = {spec.address: gateway.open_socket(spec) for spec in gateway.listens}
        await gateway.start(loop, Clock(loop), sockets)
        return self

    async def stop(self) -> None:
        if self.gateway is not None:
            await self.gateway.stop(0)
        await asyncio.sleep(0)


class Nginx(Side):
    process = None
    name = "nginx"

    async def start(self, server: str, http: str = "", log: str = "$status") -> Nginx:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        conf = self.folder / "nginx.conf"
        temp = "".join(f"{kind}_temp_path {self.folder}/{kind}; " for kind in ("proxy", "client_body", "fastcgi"))
        text = self.text(server, temp + http, log)
        conf.write_text(f"daemon off; master_process off; pid {self.folder}/nginx.pid;\n{text}")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-p", str(self.folder), "-c", str(conf)])
        for _ in range(500):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self.path)
                return self
            assert self.process.poll() is None, self.log()
            await asyncio.sleep(0.02)
        raise AssertionError("nginx does not start")

    async def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            await asyncio.to_thread(self.process.wait, 10)


@pytest.fixture
async def ours(tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir()
    made = Ours(folder)
    yield made
    await made.stop()


@pytest.fixture
async def nginx(tmp_path):
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("nginx is not installed")
    folder = tmp_path / "nginx"
    folder.mkdir()
    made = Nginx(folder)
    yield made
    await made.stop()


@pytest.fixture
async def origin():
    """`await origin(script)` starts a scripted origin on a free port."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(script) -> Origin:
            return await stack.enter_async_context(Origin(script))

        yield make


@pytest.fixture
async def bare():
    """`await bare(handler)` starts a server of raw streams; returns its port. `handler(reader, writer)`."""
    servers, tasks = [], set()

    async def make(handler) -> int:
        async def serve(reader, writer) -> None:
            tasks.add(asyncio.current_task())
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        return server.sockets[0].getsockname()[1]

    yield make
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
