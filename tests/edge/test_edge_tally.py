"""stub_status: the figures of all workers, those that are gone too."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

from headrace.core.http1.settings import ServerStats
from headrace.edge.tally import Tally


def worker(loop, **counted: int) -> tuple[Tally, ServerStats]:
    stats = ServerStats(**counted)
    tally = Tally()
    tally.start(SimpleNamespace(counters=stats), loop, None, {})
    return tally, stats


def seen(tally: Tally) -> tuple[int, int, int, int]:
    now = tally.total()
    return now.accepted, now.connections, now.requests, now.busy


async def test_each_sees_all():
    loop = asyncio.get_running_loop()
    one, stats = worker(loop, accepted=3, connections=2, requests=10, answered=9)
    other, _ = worker(loop, accepted=5, connections=1, requests=4, answered=4)
    assert seen(one) == seen(other) == (8, 3, 14, 1)
    stats.requests += 1
    assert seen(one) == (8, 3, 15, 2)
    assert seen(other) == (8, 3, 15, 2)
    await other.stop(0)
    assert seen(one) == (8, 2, 15, 2)
    third, _ = worker(loop)
    assert seen(third) == (8, 2, 15, 2)
    await one.stop(0)
    await third.stop(0)


async def test_what_a_killed_worker_has_counted_stays_but_its_connections():
    loop = asyncio.get_running_loop()
    one, _ = worker(loop, accepted=1)
    pid = os.fork()
    if not pid:
        try:
            child = Tally()
            child.start(SimpleNamespace(counters=ServerStats(accepted=7, connections=7, requests=7)), loop, None, {})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert seen(one) == (8, 0, 7, 0)
    await one.stop(0)
