"""Real servers on unix sockets of their own, and the gateway of the folder above."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trustme

sys.path.insert(0, str(Path(__file__).parents[1]))

from libs_rig import mariadb as mariadb_server
from libs_rig import open_folder, running
from libs_rig import postgres as postgres_server
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


@pytest.fixture(scope="session")
def mariadb():
    """(port, socket) of a MariaDB server."""
    with open_folder() as folder, mariadb_server(folder) as made:
        yield made


@pytest.fixture(scope="session")
def authority():
    """A certificate authority that nobody else knows."""
    return trustme.CA()


@pytest.fixture(scope="session")
def postgres(authority):
    """The port of a PostgreSQL server."""
    cert = authority.issue_cert("localhost", "127.0.0.1")
    pem = cert.cert_chain_pems[0].bytes().decode(), cert.private_key_pem.bytes().decode()
    with open_folder() as folder, postgres_server(folder, pem) as port:
        yield port
