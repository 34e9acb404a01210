"""Logs: syslog, names with variables, subrequests."""

from __future__ import annotations

import os
import re
import socket

import pytest


@pytest.fixture
def receiver(tmp_path):
    """A socket for datagrams, and its path."""
    path = str(tmp_path / "syslog.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(10)
        yield sock, path


async def test_syslog(gateway, receiver):
    sock, path = receiver
    await gateway.start(
        f"access_log syslog:server=unix:{path},facility=user,severity=warn,tag=edge short; "
        f"error_log syslog:server=unix:{path},nohostname warn; location / {{ return 204; }} location /no {{ deny all; }}",
        http="log_format short '$uri $status';",
    )
    await gateway.get("/a")
    assert re.fullmatch(rb"<12>[A-Z][a-z]{2} [ 0-9][0-9] \d\d:\d\d:\d\d \S+ edge: /a 204", sock.recv(4096))
    await gateway.get("/no")
    line = sock.recv(4096)
    assert re.match(
        rb"<187>[A-Z][a-z]{2} [ 0-9][0-9] \d\d:\d\d:\d\d nginx: \d{4}/\d\d/\d\d .*\[error\] .*forbidden", line
    )
    assert not line.endswith(b"\n")


async def test_a_syslog_server_that_comes_back(gateway, tmp_path):
    path = str(tmp_path / "later.sock")
    await gateway.start(
        f"access_log syslog:server=unix:{path} short; location / {{ return 204; }}", http="log_format short '$uri';"
    )
    await gateway.get("/lost")
    for name in ("/first", "/second"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(path)
            sock.settimeout(10)
            await gateway.get(name)
            assert sock.recv(4096).endswith(name.encode())
        os.unlink(path)


async def test_descriptors_of_named_logs_are_kept(gateway, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    await gateway.start(
        f"root {tmp_path}; open_log_file_cache max=1 min_uses=1; access_log {folder}/$arg_n.log short; "
        "location / { return 204; }",
        http="log_format short '$uri';",
    )
    await gateway.get("/1?n=a")
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    await gateway.get("/2?n=a")
    await gateway.get("/3?n=b")
    await gateway.get("/4?n=a")
    assert (tmp_path / "moved" / "a.log").read_text() == "/1\n/2\n"
    assert (folder / "a.log").read_text() == "/4\n"


async def test_a_named_log_wants_the_root(gateway, tmp_path):
    await gateway.start(
        f"root {tmp_path}/$host; access_log {tmp_path}/$host.log; location / {{ return 204; }}", level="error"
    )
    await gateway.get("/")
    assert not (tmp_path / "localhost.log").exists()
    assert 'localhost" existence failed' in gateway.log()


async def test_subrequests_are_logged_where_asked(gateway, tmp_path):
    await gateway.start(
        f"access_log {tmp_path}/a.log short; location / {{ echo_location /in; }} location /in {{ log_subrequest on; echo x; }}",
        http="log_format short '$uri $status';",
    )
    await gateway.get("/")
    assert (tmp_path / "a.log").read_text() == "/in 200\n/ 200\n"
