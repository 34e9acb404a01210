"""Bodies with a name: the http source gives their batches ids, and says that it knows names."""

import pytest
from http_rig import Taken, client, source

from headrace.plugins.chunk_names import batch_id

ONE, TWO = "0123456789abcdef" * 2, "fedcba9876543210" * 2


class Named(Taken):
    """Keeps the ids of batches."""

    def __init__(self):
        super().__init__()
        self.ids = []

    def emit(self, tag, batch):
        self.ids.append(batch.id)
        return super().emit(tag, batch)


async def post(peer, *headers, path="/t"):
    status, fields, _ = await peer.post(path, b'{"a":1}', "application/json", *headers)
    assert status == 200
    return fields.get("headrace-dedupe")


async def test_a_name_becomes_the_id_and_the_answer_says_so():
    taken = Named()
    async with source(taken=taken) as (plugin, _), client(plugin.bound) as peer:
        for name in (ONE, TWO, ONE, ONE.upper()):
            assert await post(peer, f"X-Headrace-Chunk: {name}") == "1"
        assert await post(peer, f"x-headrace-chunk: {TWO}") == "1"
        assert await post(peer, f"X-Headrace-Chunk: {ONE}", path="/u") == "1"
        one, two = batch_id(b"t", ONE.encode()), batch_id(b"t", TWO.encode())
        assert taken.ids == [one, two, one, batch_id(b"t", ONE.upper().encode()), two, batch_id(b"u", ONE.encode())]
        assert len(set(taken.ids)) == 4


@pytest.mark.parametrize("name", ["", "short", "x" * 32, ONE + "0"])
async def test_what_is_no_name_is_none(name):
    taken = Named()
    async with source(taken=taken) as (plugin, _), client(plugin.bound) as peer:
        assert await post(peer, f"X-Headrace-Chunk: {name}") is None
        assert await post(peer) is None
        assert taken.ids == [None, None]


async def test_it_can_be_switched_off():
    taken = Named()
    async with source("deduplicate false", taken=taken) as (plugin, _), client(plugin.bound) as peer:
        assert await post(peer, f"X-Headrace-Chunk: {ONE}") is None
        assert taken.ids == [None]


async def test_heads_are_known_whatever_the_name():
    async with source() as (plugin, _), client(plugin.bound) as peer:
        for number in range(50):
            await post(peer, f"X-Headrace-Chunk: {number:032x}")
        planner = plugin._handler._planner
        assert len(planner._named) == 1
        assert planner.kept == {}


async def test_the_name_is_no_field_of_the_record():
    async with source("add_http_headers true") as (plugin, taken), client(plugin.bound) as peer:
        await post(peer, f"X-Headrace-Chunk: {ONE}")
        assert "HTTP_X_HEADRACE_CHUNK" not in taken.records[0]
        assert taken.records[0]["HTTP_HOST"] == "h"
