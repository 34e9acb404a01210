"""Messages by TCP and TLS.

A connection is not read while what it sent before has no place yet: TCP then holds its sender back, and a worker
holds at most one read of each connection.

At the end of the source the clients are told by a FIN: polite ones connect anew, elsewhere. The others are read on
until nothing has come for QUIET (LONGEST in all), so that what they had under way is not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

from headrace.core.listener import Listener
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed
from headrace.plugins.network.frames import FrameError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from headrace.pipeline.event import Record
    from headrace.plugins.network.clients import AllowList
    from headrace.plugins.network.frames import Frames
    from headrace.plugins.network.source import NetworkSource
    from headrace.plugins.patience import Groups
    from headrace.plugins.transport import Transport

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a client's TLS handshake."""
QUIET: Final = 0.3
"""Seconds of silence after which a client is taken to have nothing under way."""
LONGEST: Final = 10.0
"""Seconds for which a client that does not mind the FIN is read on."""


class StreamServer:
    """The listener of a source, and its connections."""

    def __init__(
        self,
        source: NetworkSource,
        transport: Transport,
        frames: Callable[[], Frames],
        *,
        keepalive: bool,
        allowed: AllowList | None,
    ) -> None:
        self.source = source
        self.context = source.context
        self._transport = transport
        self._frames = frames
        self._keepalive = keepalive
        self._allowed = allowed
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False
        self.accepted = 0
        context = self.context
        self._listener = Listener(
            context.sockets[source.listen.key],
            context.loop,
            context.clock,
            self._accept,
            shared=context.settings.workers > 1,
            exhausted=self._out_of_descriptors,
        )

    def start(self) -> None:
        """Accept from now on. Raises ConfError for a certificate that cannot be made."""
        self._transport.open()
        self._listener.start()

    def _out_of_descriptors(self, error: OSError) -> None:
        self.source.log.error("no connection can be accepted: %s", error.strerror)

    def _accept(self, sock: socket.socket, peer: Any) -> None:
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self._allowed is not None and address not in self._allowed:
            self.source.deny(address)
            sock.close()
            return
        self.accepted += 1
        self._transport.prepare(sock)
        if self._keepalive:
            with contextlib.suppress(OSError):  # gone already: the first recv says so
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        context, tls = self.context, self._transport.tls
        extra = self.source.extra_now(address) if self.source.wants_peer else {}
        if tls is None and extra is not None:
            self._serve(Stream(sock, context.loop, context.clock, peer=peer), extra)
        elif tls is None:
            self.spawn(self._name(Stream(sock, context.loop, context.clock, peer=peer), address))
        else:
            self.spawn(self._shake(TlsStream(sock, context.loop, context.clock, tls, peer=peer), address))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something of a connection; `stop` cancels it."""
        task = self.context.loop.create_task(work, name=self.source.plugin_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _shake(self, stream: TlsStream, address: str) -> None:
        try:
            await stream.handshake(HANDSHAKE_TIMEOUT)
        except ConnectionFailed as error:
            self.source.log.debug("TLS handshake failed: %s", error.message)
            return
        except asyncio.CancelledError:
            stream.abort()
            raise
        await self._name(stream, address)

    async def _name(self, stream: Stream, address: str) -> None:
        try:
            extra = await self.source.extra_of(address) if self.source.wants_peer else {}
        except asyncio.CancelledError:
            stream.abort()
            raise
        self._serve(stream, extra)

    def _serve(self, stream: Stream, extra: Record) -> None:
        connection = Connection(self, stream, self._frames(), extra or None)
        self.connections.add(connection)
        self._empty.clear()
        stream.set_owner(connection)
        stream.start_reading()
        if self.draining:
            connection.drain()

    def take(self, messages: Any, extra: Record | None) -> Awaitable[None] | None:
        """Messages of one connection to the router."""
        source = self.source
        source.messages += len(messages)
        groups: Groups = {}
        convert = source.convert
        for message in messages:
            convert(message, extra, groups)
        return source.emitter.patiently(groups) if groups else None

    def forget(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def quiesce(self) -> None:
        """Accept nothing new; let the clients end, and wait for them as long as they send."""
        self._listener.close()
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        await self._empty.wait()

    def stop(self) -> None:
        """Cut what is open."""
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.stream.abort()
        self._transport.close()

    def stats(self) -> dict[str, Any]:
        """Connections now and ever, and clients that were denied."""
        return {"connections": len(self.connections), "accepted": self.accepted, "denied": self.source.denied}


class Connection:
    """One client (core.owner.Owner)."""

    __slots__ = ("_busy", "_eof", "_extra", "_frames", "_heard", "_server", "stream")

    def __init__(self, server: StreamServer, stream: Stream, frames: Frames, extra: Record | None) -> None:
        self._server = server
        self._frames = frames
        self._extra = extra
        self._busy = False  # what was read has no place yet
        self._eof = False
        self._heard = False
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        """Take the messages that are complete; read no more until they have their place."""
        self._heard = True
        frames = self._frames
        before = frames.dropped
        try:
            messages = frames.feed(data)
        except FrameError as error:
            self._server.source.not_matched(data, error)
            self.stream.close()
            return
        if frames.dropped != before:
            self._server.source.was_too_long(frames.dropped - before, frames)
        pending = self._server.take(messages, self._extra) if messages else None
        if pending is not None:
            self._busy = True
            self.stream.pause_reading()
            self._server.spawn(self._wait(pending))

    async def _wait(self, pending: Awaitable[None]) -> None:
        await pending
        self._busy = False
        if self._eof:
            self.stream.close()
        elif not self.stream.closed:
            self.stream.start_reading()

    def eof_received(self) -> None:
        """The client has sent everything. A message without its end is no message, as in Fluentd."""
        self._eof = True
        if not self._busy:
            self.stream.close()

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._server.forget(self)

    def drain(self) -> None:
        """Tell the client to go; close when nothing comes any more."""
        if not self.stream.closed:
            self.stream.shutdown_write()
            self._heard = False
            clock = self._server.context.clock
            clock.deadline(QUIET, self._is_quiet, clock.now() + LONGEST)

    def _is_quiet(self, end: float) -> None:
        if self.stream.closed:
            return
        clock = self._server.context.clock
        if not self._busy and (not self._heard or clock.now() >= end):
            self.stream.close()
            return
        self._heard = False
        clock.deadline(QUIET, self._is_quiet, end)
