"""kill -9 at random moments and at named points: nothing acknowledged is lost, at most the chunk in flight comes twice."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest
from torture_points import PINNED, POINTS, RARE, resolve
from torture_rig import Client, Nursery, Sink, drained, judge, relay_conf, until

LANES = 2


async def begin(nursery: Nursery, conf: str, **spec):
    node = await nursery.begin(conf, **spec)
    await until(lambda: node.ready or node.ended, "the start")
    return node


async def finish(nursery: Nursery, conf: str, client: Client, sink: Sink):
    """A node that nobody kills delivers the rest."""
    sink.hold.clear()
    node = await nursery.start(conf)
    await drained(client.acked, sink)
    await asyncio.sleep(0.1)
    figures = (await node.stats())["out"]
    await node.stop()
    assert figures["received"] + figures["restored"] == figures["delivered"] + figures["buffered"]
    assert not any(figures["dropped"].values())


async def test_kills_at_random_moments(nursery, prefix, port, scale, seen):
    kills = scale("kills", 12, 200)
    chance = random.Random(kills)
    async with Sink() as sink:
        conf = relay_conf(port, sink.port, prefix / "buf", f"flush_thread_count {LANES}")
        client = Client(port)
        client.start(pause=0.001)
        sink.delay = 0.002
        for number in range(kills):
            node = await begin(nursery, conf)
            before = len(client.acked)
            if number % 3:
                await until(lambda before=before: len(client.acked) > before, "an answer")
            await asyncio.sleep(chance.random() ** 2 * 0.3)
            await node.kill()
            assert node.signal == signal.SIGKILL
            seen.progress(number + 1, kills, f"{len(client.acked)} acknowledged")
        await client.stop()
        sink.delay = 0.0
        await finish(nursery, conf, client, sink)
        verdict = judge(client.acked, sink)
        seen(f"{kills} kills: {verdict}")
        assert verdict.lost == []
        assert verdict.acked > kills
        assert verdict.doubled_requests <= kills * LANES


def test_the_named_points_exist():
    assert len(POINTS) >= 12
    for name in POINTS:
        cls, method = resolve(name)
        assert callable(getattr(cls, method)), name


async def test_kills_at_named_points(nursery, prefix, port, scale, seen):
    times = scale("repeat", 1, 3)
    names = [name for _ in range(times) for name in POINTS]
    chance = random.Random(times)
    async with Sink() as sink:
        sink.delay = 0.002
        conf = relay_conf(port, sink.port, prefix / "buf", f"flush_thread_count {LANES}")
        client = Client(port)
        for number, name in enumerate(names):
            nth = 1 if name in RARE else chance.randrange(1, 8)
            if name in PINNED:
                await finish(nursery, conf, client, sink)
            node = await nursery.begin(conf, point=name, nth=nth)
            if name in PINNED:
                await node.up()
                sink.hold.add(client.sent)  # its chunk stays, while the other lane lets chunks come and go
                assert await client.post(1) == 200
                await asyncio.sleep(0.05)
            client.start(pause=0.002)
            try:
                await node.gone()
            except AssertionError:
                pytest.fail(f"the point {name!r} was never passed: {await node.stats()}")
            finally:
                await client.stop()
            assert node.signal == signal.SIGKILL, f"{name}: {node.log.read_text()[-3000:]}"
            sink.hold.clear()
            seen.progress(number + 1, len(names), name)
        sink.delay = 0.0
        await finish(nursery, conf, client, sink)
        verdict = judge(client.acked, sink)
        seen(f"{len(POINTS)} points, {times} times each: {verdict}")
        assert verdict.lost == []
        assert verdict.acked > 0
        assert verdict.doubled_requests <= len(names) * LANES
