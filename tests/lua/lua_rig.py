"""A gateway with Lua on a unix socket of its own, scripted origins, and nginx with its Lua module beside it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.edge.build import build
from headrace.edge.registry import families
from headrace.lua.directives import LuaFamily

CONF = """
error_log {prefix}/error.log {level};
events {{}}
http {{
    access_log off;
    {http}
    server {{
        listen {listen};
        {server}
    }}
}}
"""


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.raw = raw
        self.head = head
        self.status = int(lines[0].split()[1]) if head else 0
        self.fields = [tuple(line.split(": ", 1)) for line in lines[1:]]
        self.headers = {name.lower(): value for name, value in self.fields}
        if "chunked" in self.headers.get("transfer-encoding", ""):
            body = unchunk(body)
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode("latin-1")


def unchunk(data: bytes) -> bytes:
    out = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return out
        out += rest[:length]
        data = rest[length + 2 :]
    raise AssertionError("the chunked body has no end")


class LuaGateway:
    """`await gateway.start(server=..., http=...)`, then `await gateway.get("/path")`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "http.sock")
        self.gateway = None
        self.runtime = None
        self.warnings: list[str] = []

    async def start(self, server: str = "", http: str = "", level: str = "info") -> LuaGateway:
        text = CONF.format(prefix=self.folder, listen="unix:" + self.path, server=server, http=http, level=level)
        family, problems = LuaFamily(), Problems()
        tree = parse(text, str(self.folder / "nginx.conf"))
        gateway = build(tree, prefix=str(self.folder), problems=problems, families=[*families(), family])
        self.warnings = [str(warning) for warning in problems.warnings]
        problems.raise_first()
        gateway.open_logs()
        self.gateway, self.runtime = gateway, family.runtime
        loop = asyncio.get_running_loop()
        sockets = {spec.address: gateway.open_socket(spec) for spec in gateway.listens}
        if self.runtime is not None:
            self.runtime.use_error_log(gateway.error_log)
            self.runtime.run_init()
            self.runtime.attach(loop)
        await gateway.start(loop, Clock(loop), sockets)
        return self

    async def content(self, code: str, **kw: str) -> LuaGateway:
        """One location for everything, answered by this code."""
        return await self.start("location / { content_by_lua_block {\n" + code + "\n} }", **kw)

    async def raw(self, data: bytes, *, eof: bool = False) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def get(self, target: str = "/", *fields: str, method: str = "GET", body: bytes = b"") -> Answer:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return Answer(await self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body))

    def log(self) -> str:
        path = self.folder / "error.log"
        return path.read_text() if path.exists() else ""

    async def stop(self) -> None:
        if self.runtime is not None:
            self.runtime.exit()
        if self.gateway is not None:
            await self.gateway.stop(0)
        if self.runtime is not None:
            self.runtime.detach()


@pytest.fixture
async def gateway(tmp_path):
    made = LuaGateway(tmp_path)
    yield made
    await made.stop()


class Origin:
    """A scripted server: `script(reader, writer, number)` runs for each connection; `accepted` counts them."""

    def __init__(self, path: str, script) -> None:
        self.path = path
        self.address = "unix:" + path
        self.script = script
        self.accepted = 0
        self.received = b""
        self.tasks: set[asyncio.Task] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(self._serve, self.path)

    async def _serve(self, reader, writer) -> None:
        self.tasks.add(asyncio.current_task())
        self.accepted += 1
        try:
            await self.script(self, reader, writer, self.accepted)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def origin(tmp_path):
    """`await origin(script)` starts a server on a unix socket."""
    made: list[Origin] = []

    async def make(script) -> Origin:
        one = Origin(str(tmp_path / f"origin{len(made)}.sock"), script)
        made.append(one)
        await one.start()
        return one

    yield make
    for one in made:
        await one.stop()


async def silent(_origin, reader, _writer, _number) -> None:
    await reader.read()


async def echo(_origin, reader, writer, _number) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def sending(*pieces: bytes, close: bool = True):
    """A script that sends the pieces one by one, each in a turn of its own."""

    async def script(_origin, reader, writer, _number) -> None:
        sock = writer.get_extra_info("socket")
        del sock
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        if not close:
            await reader.read()

    return script


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(path) == 0


MODULES = Path("/usr/lib/nginx/modules")


@pytest.fixture
def nginx(tmp_path):
    """`nginx(server, http="")` starts nginx with the Lua module on a unix socket; returns a function to get an answer."""
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(binary).exists() or not (MODULES / "ngx_http_lua_module.so").exists():
        pytest.skip("nginx with its Lua module is not installed")
    running: list[subprocess.Popen] = []

    def start(server: str, http: str = ""):
        folder = tmp_path / "nginx"
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        path = str(folder / "http.sock")
        text = CONF.format(prefix=folder, listen="unix:" + path, server=server, http=http, level="info")
        names = ("ndk_http", "ngx_http_lua", "ngx_http_echo", "ngx_http_headers_more_filter", "ngx_http_set_misc")
        paths = [MODULES / f"{name}_module.so" for name in names]
        loads = "".join(f"load_module {path};\n" for path in paths if path.exists())
        (folder / "nginx.conf").write_text(f"{loads}daemon off; master_process off; pid {folder}/nginx.pid;\n" + text)
        running.append(subprocess.Popen([binary, "-p", str(folder), "-c", str(folder / "nginx.conf")]))
        deadline = time.monotonic() + 10
        while not _listens(path):
            assert time.monotonic() < deadline
            time.sleep(0.02)

        def get(target: str, *fields: str, method: str = "GET", body: bytes = b"") -> Answer:
            lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *fields]
            if body:
                lines.append(f"Content-Length: {len(body)}")
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(10)
                sock.connect(path)
                sock.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
                raw = b""
                while data := sock.recv(65536):
                    raw += data
            return Answer(raw)

        def stop() -> None:
            running[-1].terminate()
            running[-1].wait(10)

        get.folder, get.stop = folder, stop
        return get

    yield start
    for process in running:
        process.terminate()
        process.wait(10)
