"""The rig: nodes that can be killed, a client that counts what was acknowledged, a sink that counts what came.

async with Nursery(folder) as nursery, Sink() as sink:
    node = await nursery.start(relay_conf(port, sink.port, folder))
    client = Client(port)
    ...
    verdict = judge(client, sink)        # lost, doubled
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE = 30.0
"""Seconds that anything may take on a busy machine."""

RELAY = """\
<source>
  @type http
  port PORT
  bind 127.0.0.1
  keepalive_timeout 60s
</source>
<match **>
  @type http
  @id out
  endpoint http://127.0.0.1:TARGET/
  reuse_connections true
  open_timeout 5
  read_timeout 5
  <format>
    @type json
  </format>
  <buffer>
    @type file
    path FOLDER
    flush_mode interval
    flush_interval 0.02s
    flush_thread_count 1
    queued_chunks_limit_size 100000
    chunk_limit_records 20
    segment_size 8k
    sync_interval 0.05s
    retry_wait 0.05s
    retry_max_interval 0.2s
    retry_randomize false
    retry_forever true
    EXTRA
  </buffer>
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""


def relay_conf(port: int, target: int, folder: Path | str, extra: str = "") -> str:
    """http in, a file buffer, http out. extra: lines of <buffer>; they win over those that stand there."""
    text = RELAY.replace("PORT", str(port)).replace("TARGET", str(target)).replace("FOLDER", str(folder))
    for line in filter(None, map(str.strip, extra.splitlines())):
        text = re.sub(rf"(?m)^    {line.split()[0]} (?!EXTRA).*\n", "", text)
    return text.replace("EXTRA", "\n    ".join(filter(None, map(str.strip, extra.splitlines()))))


async def until(condition: Any, what: str, patience: float = PATIENCE, pause: float = 0.005) -> None:
    """Wait until `condition()` is true; AssertionError after `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {patience:g} s")
        await asyncio.sleep(pause)


class Node:
    """A process of the nursery."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.ready = False
        self.ended = False
        self.signal: int | None = None
        self.status: int | None = None
        self.figures: dict[str, Any] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self.ended

    def send(self, number: int) -> None:
        """Send a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def up(self) -> Node:
        """Wait until it serves."""
        await until(lambda: self.ready or self.ended, "the node's start")
        assert self.ready, self.log.read_text()[-4000:]
        return self

    async def gone(self, patience: float = PATIENCE) -> None:
        """Wait for its end."""
        await until(lambda: self.ended, "the node's end", patience)

    async def kill(self) -> None:
        """kill -9."""
        self.send(signal.SIGKILL)
        await self.gone()

    async def stop(self) -> None:
        """SIGTERM, and wait."""
        self.send(signal.SIGTERM)
        await self.gone()
        assert self.status == 0, self.log.read_text()[-4000:]

    async def stats(self) -> dict[str, Any]:
        """Figures of all plugins by id."""
        self.figures = None
        self.send(signal.SIGUSR2)
        await until(lambda: self.figures is not None or self.ended, "the figures")
        assert self.figures is not None, "the node has ended"
        return self.figures

    def memory(self, name: str = "VmRSS") -> int:
        """Resident bytes now; VmHWM: the most there ever were."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found.group(1)) * 1024

    def descriptors(self) -> int:
        """Open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Nursery:
    """Starts nodes by fork of a process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[int, Node] = {}
        self._started: asyncio.Queue[int] = asyncio.Queue()

    async def __aenter__(self) -> Nursery:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "torture_nursery.py"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=1 << 24,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_rest: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGCONT)
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "started" in message:
                self._started.put_nowait(message["started"])
            elif "ready" in message:
                self._node(message["ready"]).ready = True
            elif "stats" in message:
                self._node(message["pid"]).figures = message["stats"]
            else:
                node = self._node(message["ended"])
                node.ended, node.signal, node.status = True, message["signal"], message["status"]

    def _node(self, pid: int) -> Node:
        return self.nodes.setdefault(pid, Node(pid, self.folder / "node.log"))

    async def begin(self, conf: str, **spec: Any) -> Node:
        """Start a node and do not wait until it serves."""
        spec |= {"conf": conf, "log": str(self.folder / "node.log"), "root": str(self.folder / "root")}
        if spec.get("user") is not None:
            os.chown(self.folder, spec["user"], -1)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec).encode() + b"\n")
        await self._process.stdin.drain()
        return self._node(await asyncio.wait_for(self._started.get(), PATIENCE))

    async def start(self, conf: str, **spec: Any) -> Node:
        """Start a node and wait until it serves."""
        return await (await self.begin(conf, **spec)).up()


class Sink:
    """An acking HTTP destination in this process. Lines of JSON with a number `n` each.

    requests: the numbers of each request, in order. down: refuses with 503. hold: requests with one of these
    numbers get no answer until they are taken out. delay: seconds before an answer.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.requests: list[list[int]] = []
        self.times: list[float] = []
        self.counts: Counter[int] = Counter()
        self.refused = 0
        self.down = False
        self.hold: set[int] = set()
        self.delay = 0.0

    async def __aenter__(self) -> Sink:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_rest: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                assert length is not None
                body = await reader.readexactly(int(length.group(1)))
                await self._answer([self.number(json.loads(line)) for line in body.splitlines()], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._tasks.discard(task)
            writer.close()

    @staticmethod
    def number(record: dict[str, Any]) -> int:
        """The number of a record."""
        return int(record["n"])

    async def _answer(self, numbers: list[int], writer: asyncio.StreamWriter) -> None:
        if self.down:
            self.refused += 1
            writer.write(b"HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n")
            return
        self.requests.append(numbers)
        self.times.append(time.monotonic())
        self.counts.update(numbers)
        if self.delay:
            await asyncio.sleep(self.delay)
        while self.hold and not self.hold.isdisjoint(numbers):
            await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()


class Client:
    """An acking client: posts numbers that never come again, and notes which of them were acknowledged.

    sent: how many numbers were used. refused: answers other than 200, by status. A number whose post was
    refused or cut off is not sent again, so that every repetition at the sink is the node's.
    """

    def __init__(self, port: int, *, batch: int = 3, size: int = 40) -> None:
        self.port = port
        self.batch = batch
        self.acked: set[int] = set()
        self.sent = 0
        self.refused: Counter[int] = Counter()
        self.last_ack = 0.0
        self._filler = "x" * size
        self._tasks: list[asyncio.Task[None]] = []

    def numbers(self, count: int | None = None) -> list[int]:
        """Numbers that were not used yet."""
        first = self.sent
        self.sent += count or self.batch
        return list(range(first, self.sent))

    def start(self, connections: int = 2, pause: float = 0.0) -> None:
        """Post without end."""
        self._tasks += [asyncio.create_task(self._work(pause)) for _ in range(connections)]

    async def stop(self) -> None:
        """Stop posting."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _work(self, pause: float) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with Connection(self.port) as connection:
                    while True:
                        await self.post_on(connection, self.numbers())
                        if pause:
                            await asyncio.sleep(pause)
            await asyncio.sleep(0.002)

    async def post(self, count: int | None = None, tag: str = "t") -> int:
        """Post numbers on a connection of their own; the status, 0 when there was none."""
        try:
            async with Connection(self.port) as connection:
                return await self.post_on(connection, self.numbers(count), tag)
        except (OSError, asyncio.IncompleteReadError):
            return 0

    async def post_on(self, connection: Connection, numbers: list[int], tag: str = "t") -> int:
        """Post on an open connection; the status."""
        body = "[" + ",".join([f'{{"n":{number},"x":"{self._filler}"}}' for number in numbers]) + "]"
        status = await connection.post(f"/{tag}", body.encode())
        if status == 200:
            self.acked.update(numbers)
            self.last_ack = time.monotonic()
        else:
            self.refused[status] += 1
        return status


class Connection:
    """One HTTP connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_rest: object) -> None:
        self.writer.close()

    async def post(self, path: str, body: bytes, fields: str = "") -> int:
        """Post JSON; the status of the answer. Raises OSError or IncompleteReadError."""
        if "Content-Type" not in fields:
            fields += "Content-Type: application/json\r\n"
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {len(body)}"
        self.writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        if length := re.search(rb"(?i)content-length: *(\d+)", answer):
            self.body = await self.reader.readexactly(int(length.group(1)))
        return int(answer[9:12])


@dataclass
class Verdict:
    """What a client was told against what came."""

    acked: int
    lost: list[int] = field(repr=False)
    doubled: int
    """How many events came more often than once, in all."""
    doubled_requests: int
    """How many requests held such an event."""

    def __str__(self) -> str:
        return (
            f"{self.acked} acknowledged, {len(self.lost)} lost, {self.doubled} twice in {self.doubled_requests} chunks"
        )


def judge(acked: set[int], sink: Sink) -> Verdict:
    """Compare."""
    seen: set[int] = set()
    doubled = repeated = 0
    for numbers in sink.requests:
        again = sum(number in seen for number in numbers)
        doubled += again
        repeated += again > 0
        seen.update(numbers)
    return Verdict(len(acked), sorted(acked - seen), doubled, repeated)


async def drained(acked: set[int], sink: Sink, patience: float = PATIENCE) -> None:
    """Wait until the sink has everything that was acknowledged (or until nothing has come for some seconds)."""
    end = time.monotonic() + patience
    before, quiet = -1, time.monotonic()
    while not acked <= sink.counts.keys():
        now = time.monotonic()
        if len(sink.requests) != before:
            before, quiet = len(sink.requests), now
        if now > end or now - quiet > patience / 2:
            return
        await asyncio.sleep(0.01)
