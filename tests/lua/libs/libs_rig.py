"""Servers for the tests of libraries, and what is not installed."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest


def library(name: str) -> None:
    """Skip without a Lua library of the distribution; name: its path below share/lua/5.1."""
    if not Path("/usr/share/lua/5.1", name).exists():
        pytest.skip(f"{name} is not installed")


@contextlib.contextmanager
def running(program: str, *arguments: str, path: str):
    """A server that listens on a unix socket, until the block ends."""
    binary = shutil.which(program)
    if binary is None:
        pytest.skip(f"{program} is not installed")
    process = subprocess.Popen([binary, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
                sock.connect(path)
                break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield path
    finally:
        process.terminate()
        process.wait(10)
