"""Bombs: refused at once, for little memory, and the neighbours do not notice."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from pathlib import Path

import msgpack
from torture_rig import Client, Connection, Nursery

MB = 1 << 20
MSGPACK = "Content-Type: application/msgpack\r\n"
MOST = 64 * MB
"""Memory that a bomb may cost, beside the bytes that were sent."""

CONF = """
<source>
  @type http
  port PORT
  bind 127.0.0.1
  keepalive_timeout 60s
</source>
<match **>
  @type null
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""


def deep(count: int) -> bytes:
    return b'{"a":' + b"[" * count + b"]" * count + b"}"


def bombs(size: int, millions: int) -> dict[str, tuple[bytes, str]]:
    """Name -> body and header fields. size: bytes that the largest becomes. millions: of values in bodies as they are."""
    zeros = bytes(size)
    spaces = b'{"a":1}' + b" " * size
    lines = b'{"a":1}\n' * (size // 8)
    keys = json.dumps({f"k{number}": 1 for number in range(1_000_000)}).encode()
    return {
        "zeros, gzip": (gzip.compress(zeros), "Content-Encoding: gzip\r\n"),
        "zeros, deflate": (zlib.compress(zeros), "Content-Encoding: deflate\r\n"),
        "spaces, gzip": (gzip.compress(spaces), "Content-Encoding: gzip\r\n"),
        "lines, gzip": (gzip.compress(lines), "Content-Encoding: gzip\r\n"),
        "members, gzip": (gzip.compress(bytes(MB)) * (size // MB), "Content-Encoding: gzip\r\n"),
        "gzip in gzip": (gzip.compress(gzip.compress(zeros)), "Content-Encoding: gzip\r\n"),
        "gzip, gzip": (gzip.compress(gzip.compress(zeros)), "Content-Encoding: gzip, gzip\r\n"),
        "a million keys": (keys, ""),
        "a million keys in gzip": (gzip.compress(keys), "Content-Encoding: gzip\r\n"),
        "many elements": (b'{"a":[' + b"1," * (millions * 1_500_000) + b"1]}", ""),
        "many records": (b"[" + b"{}," * (millions * 1_000_000) + b"{}]", ""),
        "a million keys of msgpack": (msgpack.packb({f"k{n}": 1 for n in range(1_000_000)}), MSGPACK),
        "msgpack, announced": (b"\xdf\x7f\xff\xff\xff", MSGPACK),
        "msgpack, deep": (b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01", MSGPACK),
        "nested 100,000 deep": (deep(100_000), ""),
        "nested millions deep": (b"[" * (millions * 1_000_000), ""),
        "a number of a million digits": (b'{"a":' + b"9" * 1_000_000 + b"}", ""),
        "a form that nests": (b"json=" + deep(100_000), "Content-Type: application/x-www-form-urlencoded\r\n"),
    }


async def test_bombs_over_http(nursery: Nursery, prefix, port, scale, seen):
    node = await nursery.start(CONF.replace("PORT", str(port)))
    for name, (body, fields) in bombs(scale("bomb", 32, 256) * MB, scale("millions", 2, 10)).items():
        neighbours = Client(port)
        neighbours.start(connections=3, pause=0.005)
        await asyncio.sleep(0.05)
        async with Connection(port) as connection:
            assert await connection.post("/t", b'{"n":1}') == 200  # the connection is known to be good
            Path(f"/proc/{node.pid}/clear_refs").write_text("5")  # the peak counts from here
            before = node.memory()
            started = time.monotonic()
            status = await asyncio.wait_for(connection.post("/t", body, fields), 30)
            took = time.monotonic() - started
        cost = node.memory("VmHWM") - before
        known = len(neighbours.acked)
        await asyncio.sleep(0.05)
        await neighbours.stop()
        seen(f"{name}, {len(body) / 1000:.0f} kB: {status} after {took * 1000:.0f} ms, memory up by {cost / MB:.0f} MB")
        assert status in {400, 413, 415}, name
        assert cost <= MOST + len(body), name
        assert len(neighbours.acked) > known > 0
        assert not neighbours.refused
        if scale.full:
            assert took < 1.0, name
    await node.stop()
