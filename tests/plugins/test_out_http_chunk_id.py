"""The id of a chunk in the requests of out_http: who sees it, and that it stays the same."""

import re

import pytest
from http_rig import output

from headrace.pipeline.event import Batch
from headrace.testing.origin import Origin, ok

BUFFER = """
<buffer>
  flush_mode immediate
  chunk_limit_records 1
  retry_wait 0.01
  retry_randomize false
</buffer>
"""
BUSY = ok(status="503 Busy")
KNOWS = ok(headers=["Headrace-Dedupe: 1"])


async def sent(script, parameters="", count=3):
    """The X-Headrace-Chunk of each request, None without."""
    async with Origin(script) as origin:
        async with output(f"endpoint {origin.url('/x')}\nreuse_connections true\n{parameters}{BUFFER}") as (
            plugin,
            emit,
        ):
            for number in range(count):
                await emit("t", Batch.one(1, {"n": number}))
                await plugin.idle()
            figures = plugin.stats()
        return [request.header("x-headrace-chunk") for request in origin.requests], figures


async def test_a_receiver_that_knows_ids_gets_one_with_each_chunk():
    ids, figures = await sent([KNOWS])
    assert len(set(ids)) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    assert figures["endpoints_that_know_ids"] == 1


async def test_others_see_it_until_their_first_answer():
    ids, figures = await sent([ok()])
    assert ids[0] is not None
    assert ids[1:] == [None, None]
    assert figures["endpoints_that_know_ids"] == 0


async def test_a_receiver_that_learns_it_later():
    ids, _ = await sent([ok(), ok(body=b"x"), KNOWS, KNOWS], count=4)
    assert [one is not None for one in ids] == [True, False, False, True]


@pytest.mark.parametrize("script", [[BUSY, KNOWS], [BUSY, BUSY, ok()]])
async def test_a_chunk_that_is_sent_again_keeps_its_id(script):
    ids, _ = await sent(script, count=1)
    assert len(ids) == len(script)
    assert len(set(ids)) == 1
    assert ids[0] is not None


@pytest.mark.parametrize(("mode", "shown"), [("true", 3), ("false", 0)])
async def test_the_setting_decides(mode, shown):
    ids, _ = await sent([ok()], f"chunk_id_header {mode}\n")
    assert len([one for one in ids if one]) == shown
