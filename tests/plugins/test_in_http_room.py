"""The bytes of bodies that a source holds over all its connections."""

import asyncio
import gzip
import json
import math

from http_rig import client, problems_of, source

PART = b"POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
LARGE = json.dumps({"m": "x" * 200_000}).encode()


async def held(plugin, size):
    """So many bytes of bodies are held."""
    async with asyncio.timeout(20):
        while plugin.stats()["body_bytes"] != size:
            await asyncio.sleep(0.002)


async def test_bodies_over_all_connections_are_bounded_and_those_under_way_come_to_their_end():
    async with (
        source("body_size_limit 300k\nunfinished_size_limit 300k") as (plugin, taken),
        client(plugin.bound) as first,
        client(plugin.bound) as second,
    ):
        first.writer.write(PART % len(LARGE) + LARGE[:150_000])
        await held(plugin, 150_000)
        for _ in range(2):  # the declared length is enough to say no; the connection stays
            status, headers, body = await second.post("/t", LARGE)
            assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "Keep-Alive")
            assert b"150000 bytes of bodies are waiting" in body
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (LARGE[:90_000], LARGE[90_000:]))
        head = b"POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (await second.ask(head + chunks + b"0\r\n\r\n"))[0] == 503
        assert (await second.post("/t", b'{"small":1}'))[0] == 200
        await held(plugin, 150_000)
        assert (await first.ask(LARGE[150_000:]))[0] == 200
        await held(plugin, 0)
        assert (await second.post("/t", LARGE))[0] == 200
        assert [len(record) for record in taken.records] == [1, 1, 1]
        assert plugin.stats()["refused"] == {"503": 3}


async def test_a_body_that_waits_for_the_buffer_counts_as_it_is_expanded():
    async with (
        source("body_size_limit 300k\nunfinished_size_limit 300k") as (plugin, taken),
        client(plugin.bound) as first,
        client(plugin.bound) as second,
    ):
        room = asyncio.Event()
        taken.refuse = lambda _tag, _batch: room.wait()
        packed = gzip.compress(LARGE)
        asking = asyncio.ensure_future(first.post("/t", packed, "application/json", "Content-Encoding: gzip"))
        await held(plugin, len(LARGE))
        small = json.dumps({"m": "x" * 110_000}).encode()
        assert (await second.post("/t", small))[0] == 503
        await held(plugin, len(LARGE))
        assert len(taken.batches) == 1
        room.set()
        assert (await asking)[0] == 200
        await held(plugin, 0)
        assert (await second.post("/t", small))[0] == 200


async def test_a_connection_that_ends_gives_its_room_back():
    async with source("body_size_limit 300k\nunfinished_size_limit 300k") as (plugin, taken):
        async with client(plugin.bound) as conn:
            conn.writer.write(PART % len(LARGE) + LARGE[:150_000])
            await held(plugin, 150_000)
        await held(plugin, 0)
        assert not taken.batches


def test_the_bound_and_the_limit_of_one_body():
    assert "must not be less" in problems_of("input", "<source>\n@type http\nunfinished_size_limit 1m\n</source>")[0][0]
    for lines in ("unfinished_size_limit 0", "body_size_limit 1g", "unfinished_size_limit 32m"):
        assert problems_of("input", f"<source>\n@type http\n{lines}\n</source>") == ([], [])


async def test_a_large_body_with_the_bound_of_every_source():
    for lines, limit in (("", 256 << 20), ("body_size_limit 1g", 1 << 30), ("unfinished_size_limit 0", math.inf)):
        async with source(lines) as (plugin, _):
            assert plugin._handler.room.limit == limit
