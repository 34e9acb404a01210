"""Reloads and zero-downtime restarts under load: every number that was sent arrives once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import msgpack
import pytest
from torture_rig import Connection, Sink, until

from headrace.testing.plugin import free_ports

CONF = """\
<source>
  @type http
  port {http}
  bind 127.0.0.1
</source>
<source>
  @type forward
  port {forward}
  bind 127.0.0.1
</source>
<source>
  @type udp
  port {udp}
  bind 127.0.0.1
  tag udp
  <parse>
    @type json
  </parse>
</source>
<source>
  @type tcp
  port {tcp}
  bind 127.0.0.1
  tag tcp
  <parse>
    @type json
  </parse>
</source>
<source>
  @type syslog
  port {syslog}
  bind 127.0.0.1
  tag syslog
</source>
<source>
  @type unix
  path {folder}/sock
</source>
<source>
  @type tail
  path {folder}/tailed.log
  pos_file {folder}/pos
  tag tail
  read_from_head true
  refresh_interval 1s
  <parse>
    @type json
  </parse>
</source>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
<match **>
  @type http
  endpoint http://127.0.0.1:{target}/
  reuse_connections true
  <format>
    @type json
  </format>
  <buffer>
    BUFFER
    flush_mode interval
    flush_interval 0.1s
    flush_thread_count 2
    retry_wait 0.1s
    retry_max_interval 0.5s
  </buffer>
</match>
"""
PORTS = ("http", "forward", "udp", "tcp", "syslog")
PROTOCOLS = (*PORTS, "unix", "tail")
APART = 1_000_000
"""Numbers of different protocols."""


class NumberSink(Sink):
    @staticmethod
    def number(record):
        return int(record["n"] if "n" in record else record["message"].rpartition("=")[2])


class Senders:
    """One sender for each protocol; `sent` holds the numbers that must arrive."""

    def __init__(self, ports: dict[str, int], folder: Path, count: int, pause: float) -> None:
        self.ports = ports
        self.folder = folder
        self.count = count
        self.pause = pause
        self.sent: dict[str, list[int]] = {name: [] for name in PROTOCOLS}
        self.done = dict.fromkeys(PROTOCOLS, 0)

    async def all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in PROTOCOLS:
                group.create_task(getattr(self, name)(self._numbers(name)))

    async def _numbers(self, name: str):
        first = PROTOCOLS.index(name) * APART + len(self.sent[name])
        for number in range(first, first + self.count):
            await asyncio.sleep(self.pause)
            self.sent[name].append(number)
            yield number
            self.done[name] += 1

    async def http(self, numbers) -> None:
        connection = None
        async for number in numbers:
            while True:
                try:
                    if connection is None:
                        connection = await Connection(self.ports["http"]).__aenter__()
                    assert await connection.post("/t", b'{"n":%d}' % number) == 200
                    break
                except ConnectionRefusedError:
                    raise
                except (OSError, asyncio.IncompleteReadError):
                    connection.writer.close()
                    connection = None

    async def forward(self, numbers) -> None:
        await self._acking(numbers, lambda: asyncio.open_connection("127.0.0.1", self.ports["forward"]))

    async def unix(self, numbers) -> None:
        await self._acking(numbers, lambda: asyncio.open_unix_connection(str(self.folder / "sock")))

    async def _acking(self, numbers, connect) -> None:
        """The forward protocol: what is not acknowledged is sent again."""
        streams = None
        async for number in numbers:
            name = os.urandom(12).hex()
            message = msgpack.packb(["forward", [[int(time.time()), {"n": number}]], {"chunk": name}])
            while True:
                try:
                    if streams is None:
                        streams = await connect()
                    streams[1].write(message)
                    if msgpack.unpackb(await streams[0].read(4096)) == {"ack": name}:
                        break
                except ConnectionRefusedError:
                    raise
                except (OSError, ValueError):
                    pass
                streams[1].close()
                streams = None

    async def tail(self, numbers) -> None:
        path = self.folder / "tailed.log"
        async for number in numbers:
            with path.open("a") as file:
                file.write(f'{{"n":{number}}}\n')
            if number % 100 == 99:
                path.rename(self.folder / "tailed.log.1")

    async def _datagrams(self, numbers, port: int, text: str) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            async for number in numbers:
                sock.sendto((text % number).encode(), ("127.0.0.1", port))

    async def udp(self, numbers) -> None:
        await self._datagrams(numbers, self.ports["udp"], '{"n":%d}')

    async def syslog(self, numbers) -> None:
        await self._datagrams(numbers, self.ports["syslog"], "<14>Nov 30 12:00:00 host app: n=%d")

    async def tcp(self, numbers) -> None:
        """A client that goes when it is told to; without acknowledgements it can do no more."""
        streams = None
        async for number in numbers:
            if streams is None or streams[0].at_eof():
                if streams is not None:
                    streams[1].close()
                streams = await asyncio.open_connection("127.0.0.1", self.ports["tcp"])
            streams[1].write(b'{"n":%d}\n' % number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(streams[0].read(1), 0.0005)
        streams[1].close()


@pytest.mark.parametrize(("buffer", "workers"), [("file", 1), ("memory", 1), ("file", 2)])
async def test_every_number_once(headrace, prefix, scale, seen, buffer, workers):
    count = scale("messages", 100, 500)
    ports = dict(zip((*PORTS, "target"), free_ports(6), strict=True))
    pid_file = prefix / "pid"
    text = f"@type file\n    path {prefix}/buf" if buffer == "file" else "@type memory"
    conf = prefix / "fluent.conf"
    system = f"<system>\n  workers {workers}\n</system>\n"
    conf.write_text(system + CONF.replace("BUFFER", text).format(**ports, folder=prefix))
    async with NumberSink(ports["target"]) as sink:
        process = headrace("fluentd", "-c", conf, "--daemon", pid_file, "-o", prefix / "log")
        await until(lambda: not process.running, "the daemon")
        assert process.wait() == 0, process.output
        log = prefix / "log"
        try:
            senders = Senders(ports, prefix, count, 0.002)
            rounds = (signal.SIGHUP, signal.SIGUSR2, signal.SIGHUP)
            for number in rounds:
                sending = asyncio.create_task(senders.all())
                start = min(senders.done.values())
                await until(lambda start=start: min(senders.done.values()) >= start + count // 4, "a quarter")
                pid = int(pid_file.read_text())
                serve = log.read_text().count("worker is now running") + workers
                os.kill(pid, number)
                await until(lambda serve=serve: log.read_text().count("worker is now running") >= serve, "new workers")
                await sending
            sent = {number for numbers in senders.sent.values() for number in numbers}
            with contextlib.suppress(AssertionError):
                await until(lambda: sent <= sink.counts.keys(), "everything", patience=20)
            lost = {name: sorted(set(numbers) - sink.counts.keys()) for name, numbers in senders.sent.items()}
            twice = sorted(number for number, times in sink.counts.items() if times > 1)
            seen(f"{buffer}, {workers} workers: {len(rounds)} x {count} by {', '.join(PROTOCOLS)}: {len(sent)} sent, "
                 f"{sum(map(len, lost.values()))} lost, {len(twice)} twice")  # fmt: skip
            assert not any(lost.values()), f"{lost}\n{log.read_text()[-3000:]}"
            assert twice == [], log.read_text()[-3000:]
        finally:
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                await until(lambda: not pid_file.exists(), "the end")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
