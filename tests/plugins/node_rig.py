"""Scripted forward nodes for tests of senders, and a running forward output."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import io
import logging
import socket
import struct
import tempfile

import msgpack
import zstandard
from http_rig import Running, context_of, make

from headrace.core.clock import Clock
from headrace.pipeline.event import unpack_events
from headrace.plugins.forward import handshake

RAW = {"raw": False, "unicode_errors": "surrogateescape", "strict_map_key": False, "max_buffer_size": 1 << 28}


class Node:
    """A node on a free port. answers: for each message in turn ack, silent, hold, close, reset, ack and reset, wrong,
    garbage; then `then`.

    shared_key: asks for a handshake; users: name -> password. keep: what its HELO says of keepalive.
    """

    def __init__(self, *, port=0, shared_key=None, users=None, hostname="node", keep=True, tls=None, host="127.0.0.1"):
        self.host = host
        self.port = port
        self.shared_key = shared_key
        self.users = users or {}
        self.hostname = hostname
        self.keep = keep
        self.tls = tls
        self.answers = []
        self.then = "ack"
        self.messages = []
        self.connections = []
        """For each message the number of its connection."""
        self.accepts = 0
        self.open = 0
        self.refused = []
        self.close_after = None
        self.on_message = None
        self.peer_certs = []
        self.late = []

    async def __aenter__(self):
        self.tasks = set()
        self.writers = set()
        self.server = await asyncio.start_server(self.serve, self.host, self.port, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def stop(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def serve(self, reader, writer):
        self.accepts += 1
        self.open += 1
        number = self.accepts
        task = asyncio.current_task()
        self.tasks.add(task)
        self.writers.add(writer)
        if self.tls:
            self.peer_certs.append(writer.get_extra_info("peercert"))
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self.talk(reader, writer, number)
        finally:
            self.open -= 1
            self.tasks.discard(task)
            self.writers.discard(writer)
            writer.close()

    async def talk(self, reader, writer, number):
        unpacker = msgpack.Unpacker(**RAW)

        async def following():
            while True:
                for value in unpacker:
                    return value
                data = await reader.read(65536)
                if not data:
                    return None
                unpacker.feed(data)

        if self.shared_key is not None and not await self.greet(writer, following):
            return
        while (message := await following()) is not None:
            if not isinstance(message, list):
                return  # whatever it is, it is not the forward protocol
            self.messages.append(message)
            self.connections.append(number)
            if self.on_message:
                self.on_message(message)
            answer = self.answers.pop(0) if self.answers else self.then
            chunk = message[2].get("chunk")
            if answer == "close":
                return
            if answer == "reset":
                writer.transport.abort()
                return
            if answer == "ack and reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.write(msgpack.packb({"ack": chunk}))
                writer.transport.abort()
                return
            if answer == "hold":
                self.late.append((writer, chunk))
            elif answer == "wrong":
                writer.write(msgpack.packb({"ack": "AAAA"}))
            elif answer == "garbage":
                writer.write(b"\xc1\xc1\xc1")
            elif answer == "ack" and chunk is not None:
                writer.write(msgpack.packb({"ack": chunk}))
            if self.close_after is not None and answer != "silent":
                await writer.drain()
                await asyncio.sleep(self.close_after)
                return

    def release(self):
        """Acknowledge what was held back, the last one first."""
        for writer, chunk in reversed(self.late):
            writer.write(msgpack.packb({"ack": chunk}))
        self.late.clear()

    async def greet(self, writer, following):
        nonce, auth = handshake.new_salt(), handshake.new_salt() if self.users else b""
        writer.write(msgpack.packb(handshake.helo(nonce, auth, keepalive=self.keep)))
        message = await following()
        if message is None:
            return False
        proof = handshake.check_ping(message)
        password = self.users.get(proof.username.decode(), "")
        known = not self.users or proof.knows_password(auth, password)
        if proof.knows_key(nonce, self.shared_key) and known:
            writer.write(
                msgpack.packb(handshake.pong(proof, nonce, hostname=self.hostname, shared_key=self.shared_key))
            )
            return True
        self.refused.append(proof)
        writer.write(msgpack.packb(handshake.refusal("shared_key mismatch" if known else "username/password mismatch")))
        return False

    @property
    def records(self):
        return [record for message in self.messages for _time, record in events(message)]

    @property
    def numbers(self):
        return [record["n"] for record in self.records]


def raw_entries(message):
    """The entries of a message as bytes, as they came."""
    entries = message[1]
    return entries.encode("utf-8", "surrogateescape") if isinstance(entries, str) else entries


def events(message):
    data = raw_entries(message)
    how = message[2].get("compressed", "text")
    if how == "gzip":
        data = gzip.decompress(data)
    elif how == "zstd":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return unpack_events(data)


def chunk_id(message):
    return base64.b64decode(message[2]["chunk"])


def server_text(node, extra=""):
    return f"<server>\nhost {node.host}\nport {node.port}\n{extra}\n</server>\n"


@contextlib.asynccontextmanager
async def output(parameters, *, buffer="flush_mode immediate\nretry_wait 0.05\nretry_max_interval 0.1", folder=None):
    """A running forward output (a `Running`), and a coroutine function (tag, batch) that emits to it."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logger = logging.getLogger("headrace.test")
    logger.addHandler(handler)
    with tempfile.TemporaryDirectory() as temporary:
        context = context_of(root_dir=folder or temporary)
        text = f"<match **>\n@type forward\n@id out\n{parameters}\n<buffer tag>\n{buffer}\n</buffer>\n</match>\n"
        plugin = make("output", text, context)
        context.root.add_output("**", plugin)
        loop = asyncio.get_running_loop()
        clock = Clock(loop)
        context.run_on(loop, clock, {})
        for nested in plugin._discoveries:
            await nested.start()
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
                await plugin.runner.stop(clock.now() + 5)
                for nested in plugin._discoveries:
                    await nested.stop()
                await plugin.stop()
                await plugin.close()
            logger.removeHandler(handler)
