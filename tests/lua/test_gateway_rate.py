"""limit_rate: what goes at once, what waits, and that nothing is lost of it."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import ConfError

BODY = b"0123456789abcdef" * 4096  # 64 KB
SERVER = """
location = /lua { limit_rate 20k; content_by_lua_block { ngx.print(("0123456789abcdef"):rep(4096)) } }
location = /wait { limit_rate 200k; content_by_lua_block { ngx.sleep(0.001) ngx.print(("0123456789abcdef"):rep(4096)) } }
location = /after { limit_rate 1; limit_rate_after 1m; content_by_lua_block { ngx.print(("0123456789abcdef"):rep(4096)) } }
location = /set { set $limit_rate 400k; content_by_lua_block { ngx.print(("0123456789abcdef"):rep(4096)) } }
location = /small { limit_rate 1; return 204; }
location = /file { limit_rate 200k; alias PREFIX/file; }
location = /none { limit_rate 0; return 200 "all"; }
"""


async def start(gateway, tmp_path):
    (tmp_path / "file").write_bytes(BODY)
    await gateway.start(SERVER.replace("PREFIX", str(tmp_path)))


@pytest.mark.parametrize("path", ["/wait", "/after", "/set", "/file"])
async def test_everything_arrives(gateway, tmp_path, path):
    await start(gateway, tmp_path)
    answer = await gateway.get(path)
    assert (answer.status, answer.body) == (200, BODY)


async def test_the_first_second_goes_at_once_and_the_rest_waits(gateway, tmp_path):
    await start(gateway, tmp_path)
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET /lua HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    data = b""
    while len(data) < 20_000:
        data += await asyncio.wait_for(reader.read(65536), 10)
    assert 20 << 10 <= len(data) < 41 << 10  # a second's worth, or little more
    writer.close()


async def test_the_connection_goes_on_and_the_log_counts_what_was_sent(gateway, tmp_path):
    await start(gateway, tmp_path)
    raw = await gateway.raw(
        b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    assert raw.count(b"HTTP/1.1 200 OK") == 2
    assert raw.endswith(b"all")


async def test_a_client_that_leaves_ends_it(gateway, tmp_path):
    await start(gateway, tmp_path)
    _, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET /lua HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.sleep(0.1)
    writer.transport.abort()
    assert (await gateway.get("/small")).status == 204


async def test_what_is_no_rate_is_refused(gateway):
    with pytest.raises(ConfError, match='"limit_rate" directive invalid value'):
        await gateway.start("location / { limit_rate fast; }")
