"""What the tests of the forward source share: a pipeline around it on free ports, and a raw client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import msgpack

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.core.listener import open_listener
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.context import Settings
from headrace.pipeline.event import unpacker
from headrace.plugins.in_forward import ForwardInput
from headrace.plugins.registry import lookup as built_in
from headrace.testing.pipelines import Direct, Script

OWN = {("output", "script"): Script, ("output", "direct"): Direct}
QUIET = "<label @FLUENT_LOG>\n<match **>\n@type null\n</match>\n</label>\n"


def lookup(kind, name):
    return OWN.get((kind, name)) or built_in(kind, name)


class Rig:
    """A running pipeline with a forward source."""

    def __init__(self, pipeline, port):
        self.pipeline = pipeline
        self.port = port

    def of(self, cls, index=0):
        return [plugin for plugin in self.pipeline.plugins if type(plugin) is cls][index]

    @property
    def source(self):
        return self.of(ForwardInput)

    @property
    def stats(self):
        return self.source.stats()

    @property
    def direct(self):
        return self.of(Direct)

    @property
    def records(self):
        return [record for _tag, _time, record in self.direct.events]

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)


def conf(parameters="", match="@type direct", before=""):
    return f"<source>\n@type forward\nbind 127.0.0.1\nport 0\n{parameters}\n</source>\n{before}\n<match **>\n{match}\n</match>\n{QUIET}"


def problems_of(text):
    problems = Problems()
    build_pipeline(parse(text, "test.conf", env={}, hostname="h", worker_id="0"), lookup=lookup, problems=problems)
    return [str(error) for error in problems.errors], [str(error) for error in problems.warnings]


@contextlib.asynccontextmanager
async def forward(parameters="", match="@type direct", before="", *, stop=True, **settings):
    """A running forward source and what it leads to."""
    problems = Problems()
    tree = parse(conf(parameters, match, before), "test.conf", env={}, hostname="h", worker_id="0")
    pipeline = build_pipeline(tree, lookup=lookup, problems=problems, settings=Settings(**settings))
    problems.raise_first()
    sock = open_listener(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(sock.getsockname())
    udp.setblocking(False)
    tcp_spec, udp_spec = pipeline.listens
    loop = asyncio.get_running_loop()
    port = sock.getsockname()[1]
    await pipeline.start(loop, Clock(loop), {tcp_spec.key: sock, udp_spec.key: udp})
    try:
        yield Rig(pipeline, port)
    finally:
        if stop:
            async with asyncio.timeout(15):
                await pipeline.stop(3)


class Client:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self._source = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape")

    async def send(self, *data):
        for piece in data:
            self.writer.write(piece)
        await self.writer.drain()

    async def value(self):
        """The next msgpack value."""
        async with asyncio.timeout(15):
            while True:
                try:
                    return self._source.unpack()
                except msgpack.OutOfData:
                    data = await self.reader.read(65536)
                    if not data:
                        raise EOFError from None
                    self._source.feed(data)

    async def ack(self):
        return (await self.value())["ack"]

    async def text(self):
        """The next JSON value, sent in one piece."""
        async with asyncio.timeout(15):
            return json.loads(await self.reader.read(65536))

    async def at_end(self):
        async with asyncio.timeout(15):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True


@contextlib.asynccontextmanager
async def client(port, **options):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


__all__ = ["Client", "Rig", "client", "conf", "forward", "problems_of", "unpacker"]
