"""Lanes and the turns of the loop: who waited goes on at once, who did not gives way."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.pipeline.lanes import Lanes
from headrace.testing.clock import FakeClock


@pytest.mark.parametrize(("waits", "given_way"), [(True, 0), (False, 10)])
async def test_only_a_lane_that_did_not_wait_gives_way(monkeypatch, waits, given_way):
    loop = asyncio.get_running_loop()
    left, sleeps, done = 10, [], loop.create_future()
    sleep = asyncio.sleep

    async def work():
        if waits:
            future = loop.create_future()
            loop.call_soon(loop.call_soon, future.set_result, None)  # as an answer that comes in a later turn
            await future

    def job(_lane):
        nonlocal left
        if not left:
            if not done.done():
                done.set_result(None)
            return None
        left -= 1
        return work()

    async def counted(seconds):
        sleeps.append(seconds)
        await sleep(seconds)

    lanes = Lanes(1, job=job, lost=print, clock=FakeClock(), log=logging.getLogger("test"))
    monkeypatch.setattr("headrace.pipeline.lanes.asyncio.sleep", counted)
    lanes.start()
    await done
    assert sleeps == [0] * given_way
    await lanes.stop()


async def test_lanes_that_never_wait_leave_the_loop_to_others():
    left, turns = 100, 0

    async def work():
        pass

    def job(_lane):
        nonlocal left
        left -= 1
        return work() if left > 0 else None

    lanes = Lanes(2, job=job, lost=print, clock=FakeClock(), log=logging.getLogger("test"))
    lanes.start()
    while left > 0:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 49
    await lanes.stop()
