"""A gateway on sockets of its own, in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.edge.build import build


class Running:
    """A started gateway; `ports` are the real ports in the order of `listens`."""

    def __init__(self, gateway, ports, prefix):
        self.gateway = gateway
        self.ports = ports
        self.prefix = prefix

    @property
    def port(self):
        return self.ports[0]

    async def raw(self, data: bytes, *, port: int | None = None, eof: bool = True) -> bytes:
        """Send bytes (and shut down for writing), return everything that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def get(self, target: str, *fields: str, method: str = "GET", host: str = "localhost", body: bytes = b""):
        """One request on a connection of its own: (status, headers by lower-case name, body)."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return split(await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body, eof=False))

    def log(self, name: str) -> str:
        return (self.prefix / "logs" / name).read_text()


def split(answer: bytes):
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b": ")
        headers[name.decode().lower()] = value.decode("latin-1")
    return int(status.split()[1]), headers, body


@pytest.fixture
def build_conf(tmp_path):
    """Build a configuration text: (gateway, problems)."""

    def make(text: str):
        problems = Problems()
        path = tmp_path / "nginx.conf"
        tree = parse(text, str(path))
        return build(tree, prefix=str(tmp_path), problems=problems, conf_dir=str(tmp_path)), problems

    return make


@pytest.fixture
def errors(build_conf):
    """The messages of a configuration that is wrong."""
    return lambda text: [error.message for error in build_conf(text)[1].errors]


@pytest.fixture
async def serve(build_conf, tmp_path: Path):
    """Start a configuration; sockets listen on free ports whatever it says, but with `real`."""
    started = []

    async def start(text: str, *, real: bool = False) -> Running:
        if "events" not in text:
            text = "events {}\n" + text
        gateway, problems = build_conf(text)
        assert problems.errors == []
        (tmp_path / "logs").mkdir(exist_ok=True)
        sockets = {}
        for spec in gateway.listens:
            if real or isinstance(spec.address, str):
                sockets[spec.address] = gateway.open_socket(spec)
                continue
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            sock.listen()
            sock.setblocking(False)
            sockets[spec.address] = sock
        ports = [s.getsockname()[1] for s in sockets.values() if s.family == socket.AF_INET]
        loop = asyncio.get_running_loop()
        await gateway.start(loop, Clock(loop), sockets)
        started.append(gateway)
        return Running(gateway, ports, tmp_path)

    yield start
    for gateway in started:
        await gateway.stop(0.0)
        await asyncio.sleep(0)


@pytest.fixture
async def http(serve):
    """Start `http { access_log off; server { listen 127.0.0.1:80; ... } }` around some lines."""

    async def start(lines: str, outer: str = "access_log off;") -> Running:
        return await serve(f"http {{ {outer} server {{ listen 127.0.0.1:80; server_name localhost; {lines} }} }}")

    return start
