"""What the tests of the HTTP plugins share: a pipeline around one plugin, and a raw client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import tempfile

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.core.listener import open_listener
from headrace.pipeline.context import Context, Settings
from headrace.plugins import registry


class Taken:
    """A collector that keeps what it takes; `refuse` is raised, or awaited when it is awaitable."""

    def __init__(self):
        self.batches: list[tuple[str, list]] = []
        self.refuse = None

    def emit(self, tag, batch):
        if isinstance(self.refuse, Exception):
            raise self.refuse
        self.batches.append((tag, list(batch.events())))
        return self.refuse(tag, batch) if callable(self.refuse) else None

    @property
    def records(self):
        return [record for _, events in self.batches for _, record in events]

    @property
    def tags(self):
        return [tag for tag, _ in self.batches]

    @property
    def times(self):
        return [time for _, events in self.batches for time, _ in events]


def context_of(problems=None, **settings):
    return Context(registry.lookup, problems or Problems(), Settings(**settings), logging.getLogger("headrace.test"))


def make(kind, text, context=None):
    """The plugin of a configuration; raises its first error."""
    context = context or context_of()
    (directive,) = parse(text, "test.conf", env={})
    plugin = context.make(kind, directive)
    context.problems.raise_first()
    return plugin


def problems_of(kind, text):
    """The messages of what is wrong with a configuration, and the warnings."""
    context = context_of()
    (directive,) = parse(text, "test.conf", env={})
    context.make(kind, directive)
    return [str(error) for error in context.problems.errors], [str(error) for error in context.problems.warnings]


@contextlib.asynccontextmanager
async def source(parameters="", *, taken=None):
    """A running http source on a free port, and what came out of it."""
    taken = taken or Taken()
    context = context_of()
    context.root.add_output("**", taken)
    plugin = make("input", f"<source>\n@type http\nbind 127.0.0.1\nport 0\n{parameters}\n</source>\n", context)
    (spec,) = plugin.listeners()
    sock = open_listener(("127.0.0.1", 0))
    plugin.bound = sock.getsockname()[1]
    loop = asyncio.get_running_loop()
    context.run_on(loop, Clock(loop), {spec.address: sock})
    await plugin.start()
    try:
        yield plugin, taken
    finally:
        async with asyncio.timeout(10):
            await plugin.quiesce()
            await plugin.stop()
            await plugin.close()


class Running:
    """A running http output, seen from outside."""

    def __init__(self, plugin, log):
        self.plugin = plugin
        self.runner = plugin.runner
        self.log = log

    def stats(self):
        return self.plugin.stats()

    def failures(self):
        return self.runner.stats()["retry_count"]

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)

    async def idle(self):
        """Every event is delivered or given up."""
        await self.until(lambda: not self.runner.stats()["buffered"])

    async def failed(self, count):
        await self.until(lambda: self.failures() >= count)

    async def given_up(self, reason):
        """A chunk is in the backup, and the log says why."""
        await self.until(lambda: self.runner.stats()["dropped"]["backed_up"])
        assert reason in self.log.getvalue()


@contextlib.asynccontextmanager
async def output(parameters):
    """A running http output (a `Running`), and a coroutine function (tag, batch) that emits to it."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logger = logging.getLogger("headrace.test")
    logger.addHandler(handler)
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(root_dir=folder)
        plugin = make("output", f"<match **>\n@type http\n{parameters}\n</match>\n", context)
        context.root.add_output("**", plugin)
        loop = asyncio.get_running_loop()
        clock = Clock(loop)
        context.run_on(loop, clock, {})
        await plugin.start()
        await plugin.runner.start()

        async def emit(tag, batch):
            waiting = context.root.emit(tag, batch)
            if waiting is not None:
                await waiting

        try:
            yield Running(plugin, log), emit
        finally:
            async with asyncio.timeout(20):
                await plugin.runner.stop(clock.now() + 10)
                await plugin.stop()
                await plugin.close()
            logger.removeHandler(handler)


class Client:
    """One connection, written to and read from as bytes."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def reply(self):
        """(status, headers by lower-case name, body) of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = head[:-4].decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(line.split()[1]), headers, body

    async def ask(self, data):
        self.writer.write(data)
        return await self.reply()

    async def post(self, path, body, content_type="application/json", *headers, method="POST"):
        fields = [f"{method} {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *headers]
        if content_type:
            fields.append(f"Content-Type: {content_type}")
        return await self.ask("\r\n".join([*fields, "", ""]).encode() + body)

    async def at_end(self):
        async with asyncio.timeout(10):
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
