"""The listener of a forward source, its connections, and what they count."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from headrace.core.listener import Listener
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed, Timeout
from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_forward.connection import Connection
from headrace.plugins.in_forward.room import PATIENCE, Room
from headrace.plugins.network.clients import Names

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headrace.pipeline.event import Record
    from headrace.plugins.forward.messages import Message
    from headrace.plugins.in_forward.intake import Brought, Terms
    from headrace.plugins.in_forward.room import Holder
    from headrace.plugins.in_forward.served import Served

TLS_TIMEOUT: Final = 10.0
"""Seconds for a client's TLS handshake."""
SEND_TIMEOUT: Final = 60.0
"""Seconds without progress after which a client that reads no acknowledgements is cut."""


class ForwardServer:
    """Serves the clients of one source."""

    def __init__(self, source: Served, terms: Terms) -> None:
        self.source = source
        self.terms = terms
        self.security = source.security if source.security.directive is not None else None
        self.deny_keepalive = source.deny_keepalive
        self.emit = source.router.emit
        context = self._context = source.context
        self.clock = context.clock
        self.connections: set[Connection] = set()
        self.room = Room(source.unfinished_size_limit, context.clock, self._cut)
        self.waiting: set[asyncio.Future[None]] = set()
        """What the buffers have not answered yet; kept here so that it is not collected."""
        self.accepted = self.messages = self.events = self.acknowledged = self.unacked = 0
        self.refused = self.invalid = self.overflows = self.dropped = self.denied = self.held = 0
        self._lines = {name: Throttle() for name in ("refused", "invalid", "full", "dropped", "denied", "size", "tls")}
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False
        wants_names = source.source_hostname_key is not None or bool(source.resolve_hostname)
        self._names = Names(context.loop, context.clock) if wants_names else None
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
        self.source.transport.open()
        self._listener.start()

    def _out_of_descriptors(self, error: OSError) -> None:
        self.source.log.error("no connection can be accepted: %s", error.strerror)

    # New connections.

    def _accept(self, sock: socket.socket, peer: Any) -> None:
        self.accepted += 1
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        source, context = self.source, self._context
        source.transport.prepare(sock)
        if source.keeps_alive:
            with contextlib.suppress(OSError):  # gone already: the first recv says so
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tls = source.transport.tls
        if tls is not None:
            self._spawn(self._shake(TlsStream(sock, context.loop, context.clock, tls, peer=peer), address))
            return
        stream = Stream(sock, context.loop, context.clock, peer=peer)
        name = address if self._names is None else self._names.get(address)
        if name is None:
            self._spawn(self._name(stream, address))
        else:
            self._serve(stream, address, name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._context.loop.create_task(work, name=self.source.plugin_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, stream: TlsStream, address: str) -> None:
        try:
            await stream.handshake(TLS_TIMEOUT)
        except ConnectionFailed as error:
            # A connection that is opened and closed, as monitors do, is no news. A peer that speaks otherwise is, and
            # one that says nothing: it waits for a HELO without TLS.
            why = error.__cause__
            if isinstance(error, Timeout) or (isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError)):
                self._lines["tls"].log(self.source.log, logging.WARNING, "%s", error.message)
            else:
                self.source.log.debug("%s", error.message)
            return
        except asyncio.CancelledError:
            stream.abort()
            raise
        await self._name(stream, address)

    async def _name(self, stream: Stream, address: str) -> None:
        try:
            name = address if self._names is None else await self._names.find(address)
        except asyncio.CancelledError:
            stream.abort()
            raise
        self._serve(stream, address, name)

    def _serve(self, stream: Stream, address: str, name: str) -> None:
        source = self.source
        added: Record = {}
        if source.source_address_key is not None:
            added[source.source_address_key] = address
        if source.source_hostname_key is not None:
            added[source.source_hostname_key] = name
        stream.send_timeout = SEND_TIMEOUT
        self._empty.clear()
        connection = Connection(self, stream, address, name, added or None)
        self.connections.add(connection)
        if self._draining:
            connection.drain()

    def forget(self, connection: Connection) -> None:
        """A connection is over, and nothing of it waits."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    # What connections have to tell.

    def fits(self, connection: Connection, message: Message) -> bool:
        """Whether a message is not larger than chunk_size_limit; warn of one that is near to it."""
        source, size = self.source, message.size
        tag = message.tag.decode("utf-8", "replace")
        if source.chunk_size_limit is not None and size > source.chunk_size_limit:
            self.refused += 1
            text = "Input chunk size is larger than 'chunk_size_limit', dropped: tag=%r host=%s limit=%d size=%d"
            self._log("size", text, tag, connection.name, source.chunk_size_limit, size)
            return False
        if source.chunk_size_warn_limit is not None and size > source.chunk_size_warn_limit:
            text = "Input chunk size is larger than 'chunk_size_warn_limit': tag=%r host=%s limit=%d size=%d"
            self._log("size", text, tag, connection.name, source.chunk_size_warn_limit, size)
        return True

    def refuse(self, connection: Connection, why: str) -> None:
        """A message, or all that a connection sends, cannot be taken."""
        self.refused += 1
        self._log("refused", "incoming chunk is broken: host=%s: %s", connection.name, why)

    def left_out(self, connection: Connection, brought: Brought) -> None:
        """Some entries of a message are no events."""
        self.invalid += brought.left_out
        text = "skip invalid event: host=%s tag=%r: %d of the message"
        self._log("invalid", text, connection.name, brought.tag, brought.left_out)

    def unacknowledged(self, connection: Connection, error: BaseException) -> None:
        """A client gets no acknowledgement."""
        self.unacked += 1
        self._log("full", "no acknowledgement, the connection is closed: host=%s: %s", connection.name, error)

    def hold(self, connection: Connection, error: BaseException) -> None:
        """A client is not read until there is room."""
        self.held += 1
        self._log("full", "the buffer is full, the sender is held back: host=%s: %s", connection.name, error)

    def drop(self, connection: Connection, brought: Brought, why: str) -> None:
        """Events of a client that wants no acknowledgement are lost."""
        count = brought.batch.count
        self.dropped += count
        text = "%d events are lost: host=%s tag=%r: %s"
        self._log("dropped", text, count, connection.name, brought.tag, why, level=logging.ERROR)

    def deny(self, connection: Connection, why: str) -> None:
        """A client has not proved that it may send."""
        self.denied += 1
        self._log("denied", "Authentication failed: address=%s: %s", connection.address, why)

    def _cut(self, connection: Holder) -> None:
        assert isinstance(connection, Connection)
        self.refuse(connection, f"it sent a part of a message, then nothing for {PATIENCE:g} s, while others wait")
        connection.stream.abort()

    def _log(self, line: str, message: str, *args: object, level: int = logging.WARNING) -> None:
        self._lines[line].log(self.source.log, level, message, *args)

    # The end.

    async def quiesce(self) -> None:
        """Accept nothing new; finish what came whole, and let the clients go."""
        self._listener.close()
        self._draining = True
        for connection in list(self.connections):
            connection.drain()
        await self._empty.wait()

    def stop(self) -> None:
        """Cut what is open: nothing of it was acknowledged."""
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.abort()

    def stats(self) -> dict[str, Any]:
        """Figures of all connections; see the fields' names."""
        return {
            "connections": len(self.connections),
            "accepted": self.accepted,
            "denied": self.denied,
            "messages": self.messages,
            "events": self.events,
            "acknowledged": self.acknowledged,
            "unacknowledged": self.unacked,
            "refused": self.refused,
            "invalid_events": self.invalid,
            "overflows": self.overflows,
            "held": self.held,
            "unfinished_bytes": self.room.used,
            "stalled": len(self.room.stalled),
            "dropped": self.dropped,
        }
