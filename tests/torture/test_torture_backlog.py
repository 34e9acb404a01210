"""Backlogs: ten thousand chunks with few descriptors, a peer that is stopped or cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from pathlib import Path

import pytest
from torture_rig import HERE, Client, Connection, Nursery, Sink, drained, judge, relay_conf, until

from headrace.testing.plugin import free_port

NOFILE = 256


async def test_many_queued_chunks_with_few_descriptors(nursery: Nursery, prefix, port, scale, seen):
    """A chunk takes no descriptor, queued or not."""
    chunks = scale("chunks", 3_000, 10_000)
    async with Sink() as sink:
        sink.down = True
        conf = relay_conf(port, sink.port, prefix / "buf", "chunk_limit_records 1\nsegment_size 64k")
        node = await nursery.start(conf, nofile=NOFILE)
        client = Client(port, batch=100)
        async with Connection(port) as connection:
            while client.sent < chunks:
                assert await client.post_on(connection, client.numbers()) == 200
        figures = (await node.stats())["out"]
        queued, descriptors = figures["buffer_queue_length"] + figures["buffer_in_flight"], node.descriptors()
        assert queued == chunks
        assert figures["write_errors"] == 0
        assert descriptors < 64
        memory = node.memory()
        # And a start finds them all again, under the same limit.
        await node.kill()
        node = await nursery.start(conf, nofile=NOFILE)
        sink.down = False
        started = time.monotonic()
        await drained(client.acked, sink)
        rate = chunks / (time.monotonic() - started)
        verdict = judge(client.acked, sink)
        seen(
            f"{queued} chunks at ulimit -n {NOFILE}: {descriptors} descriptors, {memory >> 20} MB; "
            f"after a kill {rate:.0f} chunks/s: {verdict}"
        )
        assert verdict.lost == []
        assert verdict.doubled_requests <= 1
        await node.stop()


class Peer:
    """A sink in a process of its own, which can be stopped: it writes what came into a file."""

    def __init__(self, port: int, path: Path) -> None:
        self.port = port
        self.path = path

    async def __aenter__(self) -> Peer:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "torture_peer.py"),
            str(self.port),
            str(self.path),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert await self.process.stdout.readline()
        return self

    async def __aexit__(self, *_rest: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()

    def requests(self) -> list[tuple[float, list[int]]]:
        """(when, numbers) of each request."""
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [(one[0], one[1]) for one in map(json.loads, lines)]

    def rate(self, since: float, until_: float) -> float:
        """Events a second between the first request and the last in a time."""
        found = [(when, len(numbers)) for when, numbers in self.requests() if since <= when <= until_]
        return sum(count for _, count in found[1:]) / max(found[-1][0] - found[0][0], 1e-9) if found else 0.0

    def numbers(self) -> set[int]:
        return {number for _when, numbers in self.requests() for number in numbers}


@pytest.mark.parametrize("how", ["stopped", "cut off"])
async def test_a_peer_that_is_away(nursery: Nursery, prefix, port, scale, seen, how):
    """Events pile up on disk while the peer is away; memory does not, and the backlog goes at the normal rate."""
    seconds = scale("away", 1, 60)
    batch, lanes, limit = 100, 2, 64 << 20
    extra = (
        f"flush_thread_count {lanes}\nchunk_limit_records 1000\nsegment_size 16m\n"
        f"total_limit_size {limit}\nflush_interval 0.1s\nchunk_limit_size 1m"
    )
    async with Peer(free_port(), prefix / "peer.log") as peer, Away(peer, how) as away:
        node = await nursery.start(relay_conf(port, away.port, prefix / "buf", extra))
        client = Client(port, batch=batch, size=100)
        # The normal rate: what goes through while nothing is in the way.
        client.start(connections=2)
        await until(lambda: len(client.acked) > 5 * batch, "answers")
        begun = time.monotonic()
        await asyncio.sleep(max(seconds / 10, 0.5))
        ended = time.monotonic()
        normal = sum(len(found) for when, found in peer.requests() if begun <= when <= ended) / (ended - begun)
        base = node.memory()
        before = len(client.acked)
        away.begin()
        highest = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            highest = max(highest, node.memory())
        backlog = (await node.stats())["out"]["buffered"]
        await client.stop()
        refused = sum(client.refused.values())
        assert set(client.refused) <= {503}
        away.finish()
        back = time.monotonic()
        while (await node.stats())["out"]["buffered"]:
            assert time.monotonic() - back < max(60, 2 * seconds), "the backlog does not go"
            await asyncio.sleep(0.1)
        drain = peer.rate(back, time.monotonic())
        missing = client.acked - peer.numbers()
        assert not missing
        await node.stop()
        seen(
            f"{how} for {seconds} s: {len(client.acked) - before} acknowledged meanwhile, {refused} refused, backlog "
            f"{backlog} events; memory {base >> 20} MB, then {highest >> 20} MB (limit of the buffer {limit >> 20} MB); "
            f"normal {normal:.0f}/s, drained at {drain:.0f}/s ({100 * drain / max(normal, 1):.0f}%)"
        )
        if scale.full:
            assert highest - base < limit
            assert drain > 0.9 * normal


class Away:
    """A way to a peer that ends for a while: its process is stopped, or the way swallows everything.

    What was open when the way was cut is dead for good, as behind a firewall that has forgotten it.
    """

    def __init__(self, peer: Peer, how: str) -> None:
        self.peer = peer
        self.how = how
        self.port = peer.port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Away:
        if self.how != "stopped":
            self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_rest: object) -> None:
        if self.how != "stopped":
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self) -> None:
        if self.how == "stopped":
            self.peer.process.send_signal(signal.SIGSTOP)
        else:
            self._open.clear()

    def finish(self) -> None:
        if self.how == "stopped":
            self.peer.process.send_signal(signal.SIGCONT)
            return
        for task in list(self._tasks):
            task.cancel()
        self._open.set()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there = None
        try:
            await self._open.wait()
            back, there = await asyncio.open_connection("127.0.0.1", self.peer.port)
            await asyncio.gather(self._pump(reader, there), self._pump(back, writer))
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._open.wait()
            target.write(data)
            await target.drain()
