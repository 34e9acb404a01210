"""The pytest plugin: free ports, a temporary prefix, processes of headrace, peers.

Use it with `pytest_plugins = ["headrace.testing.plugin"]`. Rules it holds tests to: no fixed port,
no process left behind, waiting is for a condition with a generous deadline and never a fixed sleep.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.testing.process import HeadraceProcess, Launcher

NO_SKIP = "HEADRACE_NO_SKIP"
"""Set to 1 where every peer is installed (CI): a missing one fails the test that needs it."""

FLUENTD = "HEADRACE_PEER_FLUENTD"
"""The command of a real Fluentd; optional even under HEADRACE_NO_SKIP."""

_LOWEST_PORT = 10240
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago. Where the code under test can bind port 0, do that instead."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different free TCP ports.

    They lie outside the range of ephemeral ports: no client connection of another test takes one meanwhile.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            sock = socket.socket(family, socket.SOCK_STREAM)
            held.append(sock)
            try:
                sock.bind((host, random.randrange(_LOWEST_PORT, _first_ephemeral())))  # noqa: S311 - no secret
            except OSError:
                held.pop().close()
        return [int(sock.getsockname()[1]) for sock in held]
    finally:
        for sock in held:
            sock.close()


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        first = 32768
    return first if first > _LOWEST_PORT + 1000 else 65536


def need(program: str) -> str:
    """The path of `program`; skips the test without it, or fails it under HEADRACE_NO_SKIP=1."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}")
    if found is None:
        _missing(f"{program} is not installed (scripts/install-servers.sh)")
    return found


def need_file(path: Path, reason: str) -> Path:
    """`path`, when it is there; skips the test with `reason` without it, or fails it under HEADRACE_NO_SKIP=1."""
    if not path.exists():
        _missing(reason)
    return path


def need_nginx_lua() -> tuple[str, str]:
    """nginx and the `load_module` lines that give it its Lua module."""
    nginx = need("nginx")
    folder = Path("/usr/lib/nginx/modules")
    modules = [folder / "ndk_http_module.so", folder / "ngx_http_lua_module.so"]
    if not all(module.exists() for module in modules):
        _missing("nginx's Lua module is not installed (scripts/install-servers.sh)")
    return nginx, "".join(f"load_module {module};\n" for module in modules)


def need_fluentd() -> list[str]:
    """The command of a real Fluentd, from the environment; skips the test without it."""
    command = os.environ.get(FLUENTD)
    if not command:
        pytest.skip(f"no Fluentd: {FLUENTD} is not set")
    return shlex.split(command)


def _missing(reason: str) -> NoReturn:
    if os.environ.get(NO_SKIP) == "1":
        pytest.fail(f"{reason}, and {NO_SKIP}=1 forbids skipping", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def prefix() -> Iterator[Path]:
    """An empty folder with a short path (unix sockets have 107 bytes), removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))
    folder.chmod(0o755)  # workers of a test run by root may be somebody else
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def port() -> int:
    """One free TCP port of 127.0.0.1."""
    return free_port()


@pytest.fixture
def headrace(prefix: Path) -> Iterator[Launcher]:
    """Start processes of headrace in `prefix`: `headrace("nginx", "-p", prefix, ...)`; all are ended afterwards."""
    launcher = Launcher(prefix)
    try:
        yield launcher
    finally:
        launcher.end_all()


__all__ = [
    "HeadraceProcess",
    "Launcher",
    "free_port",
    "free_ports",
    "headrace",
    "need",
    "need_fluentd",
    "need_nginx_lua",
    "port",
    "prefix",
]
