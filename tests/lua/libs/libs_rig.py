"""Servers for the tests of libraries, and what is not installed."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

LIBRARIES = "HEADRACE_LUA_LIBRARIES"


def library(name: str) -> None:
    """Skip without a Lua library of the distribution; name: its path below share/lua/5.1."""
    if not Path("/usr/share/lua/5.1", name).exists():
        pytest.skip(f"{name} is not installed")


@contextlib.contextmanager
def running(program: str, *arguments: str, path: str, patience: float = 20, cwd: Path | None = None):
    """A server that listens on a unix socket, until the block ends; patience: seconds until it does."""
    binary = shutil.which(program)
    if binary is None:
        pytest.skip(f"{program} is not installed")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([binary, *arguments], cwd=cwd, **quiet)
    try:
        deadline = time.monotonic() + patience
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
        process.wait(30)


def library_paths() -> str:
    """lua_package_path for the checkouts of HEADRACE_LUA_LIBRARIES: their lib/, src/ and the checkouts themselves."""
    folders = sorted(Path(os.environ[LIBRARIES]).resolve().iterdir())
    roots = [root for folder in folders for root in (folder / "lib", folder / "src", folder)]
    return "".join(f"{root}/?.lua;{root}/?/init.lua;" for root in roots)


def _as(user: str) -> list[str]:
    """The prefix of a command that must not run as root."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if os.geteuid() == 0 else []


def _own(folder: Path, user: str) -> None:
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, user)


@contextlib.contextmanager
def open_folder():
    """A folder with a short path (unix sockets have 107 bytes) that other users may enter."""
    with tempfile.TemporaryDirectory(prefix="hr-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextlib.contextmanager
def mariadb(folder: Path):
    """A MariaDB server with the user `native` (password "secret", mysql_native_password); gives its port and socket."""
    for program in ("mariadbd", "mariadb-install-db", "mariadb"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    user = "mysql" if os.geteuid() == 0 else getpass.getuser()
    data = folder / "mariadb"
    _own(data, user)
    path, port = str(data / "sock"), free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    made = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    subprocess.run([*made, f"--user={user}", "--skip-test-db"], check=True, **quiet)
    options = ["--no-defaults", f"--datadir={data}", f"--socket={path}", f"--user={user}", "--bind-address=127.0.0.1"]
    options += [
        f"--port={port}",
        f"--pid-file={data}/pid",
        "--max-allowed-packet=64M",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    options += ["--plugin-load-add=auth_ed25519"]
    with running("mariadbd", *options, path=path, patience=60):
        grants = (
            "create database db character set utf8mb4;"
            "create user native@'%' identified via mysql_native_password using password('secret');"
            "create user modern@'%' identified via ed25519 using password('secret');"
            "grant all on db.* to native@'%'; grant all on db.* to modern@'%';"
        )
        subprocess.run(["mariadb", "--no-defaults", f"--socket={path}", "-uroot", "-e", grants], check=True)
        yield port, path


@contextlib.contextmanager
def postgres(folder: Path, cert: tuple[str, str]):
    """A PostgreSQL server with users by way of password (md5, scram; password "secret"), and TLS; gives its port.

    cert: PEM of the certificate and of its key.
    """
    bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not bins:
        pytest.skip("PostgreSQL is not installed")
    user = "postgres" if os.geteuid() == 0 else getpass.getuser()
    data = folder / "postgres"
    _own(data, user)
    port = free_port()
    command = [*_as(user), str(bins[-1] / "initdb"), "-D", str(data / "data"), "-U", "root", "--auth=trust", "-N"]
    subprocess.run([*command, "-E", "UTF8"], check=True, stdout=subprocess.DEVNULL, cwd=data)
    for name, pem in zip(("server.crt", "server.key"), cert, strict=True):
        target = data / "data" / name
        target.write_text(pem)
        target.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(target, user)
    (data / "data" / "pg_hba.conf").write_text(
        "local all all trust\nhost all md5 all md5\nhost all scram all scram-sha-256\nhostssl all tls all scram-sha-256\n"
    )
    options = ["-D", str(data / "data"), "-p", str(port), "-k", str(data), "-c", "listen_addresses=127.0.0.1"]
    options += ["-c", "fsync=off", "-c", "ssl=on"]
    path = str(data / f".s.PGSQL.{port}")
    with running(*_as(user), str(bins[-1] / "postgres"), *options, path=path, patience=60, cwd=data):
        ready = [str(bins[-1] / "pg_isready"), "-q", "-h", str(data), "-p", str(port)]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL", 60)
        sql = ["create database db", "set password_encryption='md5'; create user md5 password 'secret'"]
        sql += [
            f"set password_encryption='scram-sha-256'; create user {name} password 'secret'"
            for name in ("scram", "tls")
        ]
        for text in sql:
            base = [str(bins[-1] / "psql"), "-q", "-h", str(data), "-p", str(port), "-U", "root", "-d", "postgres"]
            subprocess.run([*base, "-c", text], check=True)
        grant = "grant all on schema public to md5, scram, tls"
        subprocess.run([*base[:-1], "db", "-c", grant], check=True)
        yield port
