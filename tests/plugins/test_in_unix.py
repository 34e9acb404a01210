"""Source unix: the forward protocol on a unix socket, in both of its forms."""

import asyncio

import msgpack
import pytest
from http_rig import problems_of
from network_rig import running

TIME = 1_700_000_000


async def send(path, *pieces):
    _, writer = await asyncio.open_unix_connection(path)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    return writer


@pytest.mark.parametrize(
    "message",
    [
        msgpack.packb(["a.b", TIME, {"n": 1}]) + msgpack.packb(["a.b", TIME, {"n": 2}]),
        msgpack.packb(["a.b", [[TIME, {"n": 1}], [TIME, {"n": 2}]]]),
        msgpack.packb(["a.b", msgpack.packb([TIME, {"n": 1}]) + msgpack.packb([TIME, {"n": 2}])]),
        b'["a.b", %d, {"n": 1}]["a.b", [[%d, {"n": 2}]]]' % (TIME, TIME),
    ],
    ids=["message", "forward", "packed", "json"],
)
@pytest.mark.parametrize("tag", [None, "mine"])
async def test_messages(tmp_path, message, tag):
    path = tmp_path / "made" / "s.sock"
    async with running(f"@type unix\npath {path}\n" + (f"tag {tag}" if tag else "")) as rig:
        writer = await send(path, message[:7], message[7:])
        assert await rig.events(2) == [{"n": 1}, {"n": 2}]
        assert set(rig.taken.tags) == {tag or "a.b"}
        assert set(rig.taken.times) == {TIME * 10**9}
        assert rig.plugin.stats()["events"] == 2
        writer.close()


async def test_what_is_no_message_costs_the_connection_and_nothing_else(tmp_path):
    path = tmp_path / "s.sock"
    async with running(f"@type unix\npath {path}") as rig:
        bad = await send(path, b"\xc1\xc1\xc1")
        await rig.until(lambda: rig.plugin.stats()["refused"] == 1)
        good = await send(path, msgpack.packb(["t", TIME, {"n": 1}]))
        assert await rig.events(1) == [{"n": 1}]
        bad.close()
        good.close()


def test_what_is_refused():
    assert "1 to 107 bytes" in problems_of("input", f"<source>\n@type unix\npath /{'x' * 200}\n</source>")[0][0]
    assert '"backlog"' in problems_of("input", "<source>\n@type unix\npath /x\nbacklog 0\n</source>")[0][0]
