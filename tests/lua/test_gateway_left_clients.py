"""Clients that leave at each stage of a proxied request: no descriptor stays, nothing is a fault, neighbours are served."""

from __future__ import annotations

import asyncio
import os

HEAD = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n"
STAGES = [
    b"",
    b"POST /p HT",
    HEAD[:-2],
    HEAD,
    HEAD + b"x" * 30000,
    HEAD + b"x" * 70000,
    b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
    b"\x16\x03\x01" + b"\0" * 60,
    b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
    b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n" * 20,
]


async def slowly(_origin, reader, writer, _number) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        if b"70000" in head:
            await reader.readexactly(70000)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"y" * 100000)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"y" * 100000)


async def test_nothing_stays(gateway, origin):
    server = await origin(slowly)
    await gateway.start(
        """
        location /p { access_by_lua_block { ngx.shared.d:incr("n", 1, 0) } proxy_request_buffering off;
            proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://u; }
        location /ok { return 200 ok; }
        """,
        f"lua_shared_dict d 1m; upstream u {{ server {server.address}; keepalive 4; }}",
    )

    async def leave(data: bytes, wait: float) -> None:
        _, writer = await asyncio.open_unix_connection(gateway.path)
        writer.write(data)
        await asyncio.sleep(wait)
        writer.transport.abort()
        assert (await gateway.get("/ok")).text == "ok"

    async def round_of() -> None:
        await asyncio.gather(*(leave(data, wait) for data in STAGES for wait in (0, 0.002, 0.02)))
        await asyncio.sleep(0.1)

    await round_of()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(4):
        await round_of()
    for _ in range(50):
        if len(os.listdir("/proc/self/fd")) <= before + 8:  # a pool on both of its ends
            break
        await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    log = gateway.log()
    assert "Traceback" not in log
    assert "[alert]" not in log
    assert "[crit]" not in log
