"""Disks that refuse: full, not writable, EIO, short writes. Nothing acknowledged is lost, the node lives and takes again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import pytest
from torture_rig import Client, Nursery, Sink, drained, judge, relay_conf, until

RESUME = 5.0
"""Seconds in which events are taken again after the cause has gone."""


async def refused(client: Client, count: int = 3) -> None:
    """Wait until posts are refused because nothing can be kept."""
    before = client.refused[503]
    await until(lambda: client.refused[503] >= before + count, "refusals")


async def resumed(client: Client, since: float) -> float:
    """Seconds from `since` until an event was acknowledged."""
    await until(lambda: client.last_ack > since, "an answer after the cause was gone", RESUME)
    return client.last_ack - since


async def finish(node, client, sink, seen, what: str, waits: list[float]) -> None:
    await client.stop()
    await drained(client.acked, sink)
    figures = (await node.stats())["out"]
    assert figures["received"] == figures["delivered"] + figures["buffered"]
    await node.stop()
    verdict = judge(client.acked, sink)
    seen(f"{what}: {verdict}, {client.refused[503]} refused; taken again after {max(waits) * 1000:.0f} ms at most")
    assert set(client.refused) == {503}
    assert verdict.lost == []
    assert verdict.doubled == 0


async def test_a_full_disk_that_drains(nursery: Nursery, tmpfs, prefix, port, seen):
    """The destination is down, the disk runs full; when the destination is back, the disk becomes free."""
    async with Sink() as sink:
        sink.down = True
        conf = relay_conf(port, sink.port, tmpfs / "buf", "chunk_limit_records 100\nsegment_size 512k")
        node = await nursery.start(conf)
        client = Client(port, batch=20, size=1000)
        client.start()
        await refused(client)
        await until(lambda: len(client.acked) > 5000, "a full disk")
        since = time.monotonic()
        sink.down = False
        await finish_resumed(node, client, sink, seen, "the disk is full, then drained", since)


async def finish_resumed(node, client, sink, seen, what, since) -> None:
    waits = [await resumed(client, since)]
    await finish(node, client, sink, seen, what, waits)


@pytest.mark.parametrize("segment", ["512k", "64m"])
async def test_a_disk_that_somebody_else_fills(nursery: Nursery, tmpfs, prefix, port, scale, seen, segment):
    """Events come and go while the disk is full again and again."""
    async with Sink() as sink:
        conf = relay_conf(port, sink.port, tmpfs / "buf", f"segment_size {segment}")
        node = await nursery.start(conf)
        client = Client(port, batch=5, size=300)
        client.start()
        waits = []
        times = scale("fills", 2, 10)
        for number in range(times):
            before = len(client.acked)
            await until(lambda before=before: len(client.acked) > before + 50, "answers")
            refusals = client.refused[503] + 3
            with (tmpfs / "ballast").open("wb", buffering=0) as ballast:
                while client.refused[503] < refusals:  # what the journal gives back meanwhile is taken too
                    with contextlib.suppress(OSError):
                        while True:
                            ballast.write(bytes(4096))
                    await asyncio.sleep(0.01)
            since = time.monotonic()
            (tmpfs / "ballast").unlink()
            waits.append(await resumed(client, since))
            seen.progress(number + 1, times)
        await finish(node, client, sink, seen, f"{times} times full, segments of {segment}", waits)


async def test_a_full_disk_with_one_chunk_that_stays(nursery: Nursery, tmpfs, prefix, port, seen):
    """What the disk holds is mostly delivered, and one chunk at its beginning is not: there is room all the same."""
    async with Sink() as sink:
        extra = "chunk_limit_records 100\nflush_thread_count 2\nsegment_size 512k"
        node = await nursery.start(relay_conf(port, sink.port, tmpfs / "buf", extra))
        client = Client(port, batch=20, size=1000)
        sink.hold.add(0)
        assert await client.post(1) == 200
        await asyncio.sleep(0.1)
        client.start()
        await until(lambda: len(client.acked) > 20_000, "two and a half times what the disk can hold")
        refusals = client.refused[503]
        sink.hold.clear()
        await client.stop()
        await drained(client.acked, sink)
        await node.stop()
        verdict = judge(client.acked, sink)
        seen(f"one chunk stays: {verdict}, {refusals} refused")
        assert verdict.lost == []


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("append", "EIO"),
        ("append", "short"),
        ("append", "ENOSPC"),
        ("create", "EACCES"),
        ("sync_dir", "EIO"),
        ("truncate", "EIO"),
        ("sync", "EIO"),
        ("unlink", "EIO"),
        ("open_read", "EMFILE"),
    ],
)
@pytest.mark.parametrize("sync", ["write", "fsync"])
async def test_operations_that_fail(nursery: Nursery, prefix, port, scale, seen, operation, kind, sync):
    """The operation fails for a while, for all files of the buffer."""
    async with Sink() as sink:
        faults = {operation: kind}
        if operation == "truncate":  # it is needed after a write that failed half way
            faults["append"] = "EIO"
        conf = relay_conf(port, sink.port, prefix / "buf", f"sync {sync}")
        node = await nursery.start(conf, faults=faults)
        client = Client(port)
        client.start(pause=0.001)
        waits = []
        times = scale("faults", 1, 5)
        for _ in range(times):
            before = len(client.acked)
            await until(lambda before=before: len(client.acked) > before + 20, "answers")
            node.send(signal.SIGUSR1)
            await asyncio.sleep(0.5 if scale.full else 0.05)
            assert node.alive
            since = time.monotonic()
            node.send(signal.SIGUSR1)
            waits.append(await resumed(client, since))
        await client.stop()
        await drained(client.acked, sink)
        assert node.alive
        await node.stop()
        verdict = judge(client.acked, sink)
        told = f"{operation} {kind}, sync {sync}, {times} times"
        seen(f"{told}: {verdict}, {client.refused[503]} refused; taken again after {max(waits) * 1000:.0f} ms at most")
        assert set(client.refused) <= {503}
        assert verdict.lost == []
        assert verdict.doubled == 0


async def test_a_folder_that_may_not_be_written(nursery: Nursery, prefix, port, seen):
    """As somebody who is not root: root may write everywhere."""
    folder = prefix / "buf"
    async with Sink() as sink:
        node = await nursery.start(relay_conf(port, sink.port, folder), user=65534 if os.geteuid() == 0 else None)
        client = Client(port)
        client.start(pause=0.001)
        await until(lambda: len(client.acked) > 30, "answers")
        journal = next(folder.glob("journal.*"))
        mode = journal.stat().st_mode
        journal.chmod(0o500)
        try:
            await refused(client)
            assert node.alive
        finally:
            journal.chmod(mode)
        waits = [await resumed(client, time.monotonic())]
        await finish(node, client, sink, seen, "a folder that may not be written", waits)
