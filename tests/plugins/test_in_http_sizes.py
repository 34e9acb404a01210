"""Bodies of many sizes on one connection."""

from http_rig import client, source


async def test_bodies_of_many_sizes_need_one_plan():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        for size in range(600):
            assert (await conn.post("/t", b'{"m":"%b"}' % (b"x" * size)))[0] == 200
        assert len(plugin._handler._planner.kept) == 1
        assert [len(record["m"]) for record in taken.records] == list(range(600))


async def test_the_size_is_a_field_of_the_record_where_header_fields_are():
    async with source("add_http_headers true") as (plugin, taken), client(plugin.bound) as conn:
        for size in (1, 2, 1, 3):
            assert (await conn.post("/t", b'{"m":"%b"}' % (b"x" * size)))[0] == 200
        assert [int(record["HTTP_CONTENT_LENGTH"]) for record in taken.records] == [9, 10, 9, 11]
        assert len(plugin._handler._planner.kept) == 3
