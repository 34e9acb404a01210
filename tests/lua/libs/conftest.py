"""Real servers on unix sockets of their own, and the gateway of the folder above."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from libs_rig import running
from lua_rig import gateway, nginx

__all__ = ["gateway", "nginx"]


@pytest.fixture
def redis(tmp_path):
    """The path of a Redis server's socket."""
    path = str(tmp_path / "redis.sock")
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    with running("redis-server", *options, path=path):
        yield path


@pytest.fixture
def memcached(tmp_path):
    """The path of a memcached server's socket."""
    path = str(tmp_path / "memcached.sock")
    with running("memcached", "-s", path, "-u", "root", "-m", "8", path=path):
        yield path
