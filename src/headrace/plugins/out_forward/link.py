"""One connection to a node: the handshake, messages, and the acknowledgements that come back.

A link belongs to one lane. Messages are written one after the other, each whole; which of them a node has
acknowledged is known by the chunk's id, so a lane may write the next before the last is acknowledged. What a
node sends besides acknowledgements means that the two do not understand each other, and ends the connection: an
acknowledgement must never be taken for another chunk's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgpack

from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed, Side, Timeout
from headrace.pipeline.event import pack_value
from headrace.plugins.forward import handshake
from headrace.plugins.forward.messages import chunk_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.clock import Clock
    from headrace.core.stream import Stream

MAX_REPLY: Final = 64 << 10
"""Bytes of one reply of a node: handshakes and acknowledgements are short."""


class Refused(ConnectionFailed):
    """The node does not accept us, or we do not accept it: the keys, the user, the names."""

    kind = "handshake"


class NoAck(Timeout):
    """The node did not acknowledge a chunk in time; whether it has it is not known."""

    kind = "ack_timeout"


class Identity:
    """Who we are to one node: what its handshake needs. hostname: ours (<security> self_hostname)."""

    __slots__ = ("hostname", "password", "shared_key", "username")

    def __init__(self, hostname: str, shared_key: str, username: str = "", password: str = "") -> None:
        self.hostname = hostname
        self.shared_key = shared_key
        self.username = username
        self.password = password


def _replies() -> msgpack.Unpacker:
    return msgpack.Unpacker(
        raw=False, unicode_errors="surrogateescape", strict_map_key=False, max_buffer_size=MAX_REPLY
    )


class Link:
    """A connection whose handshake is done. title: of the node, for messages.

    waiting: chunks that are written and not acknowledged. idle_since: when it was last used, by the clock.
    """

    __slots__ = ("_replies", "_stream", "_title", "broken", "idle_since", "keepalive", "waiting")

    def __init__(self, stream: Stream, title: str, *, keepalive: bool = True) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.keepalive = keepalive
        """Whether the node lets connections be kept."""
        self.broken: ConnectionFailed | None = None
        self.idle_since = 0.0
        self._stream = stream
        self._title = title
        self._replies = _replies()
        stream.set_owner(self)
        stream.start_reading()

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Write a message; ends when the kernel has all of it. Raises ConnectionFailed."""
        stream = self._stream
        if self.broken is not None:
            raise self.broken
        for piece in pieces:
            stream.append(piece)
        try:
            await stream.drained()
        except ConnectionFailed as error:
            raise self._told(error) from error

    def expect(self, chunk_id: bytes) -> asyncio.Future[None]:
        """Return a future that ends when the node acknowledges the chunk; before the chunk is sent.

        It raises ConnectionFailed when the connection ends before.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[chunk_option(chunk_id)] = future
        return future

    def forget(self, chunk_id: bytes) -> None:
        """Nobody waits for this acknowledgement any more. A late one would be unknown, so the link is given up."""
        if self.waiting.pop(chunk_option(chunk_id), None) is not None and not self._stream.closed:
            self.abort(ConnectionFailed(f"{self._title} owes an acknowledgement", kind="closed"))

    @property
    def alive(self) -> bool:
        """Whether it may be written to; looks at the socket unless the loop does so for an acknowledgement."""
        if self.broken is not None or self._stream.closed:
            return False
        return bool(self.waiting) or self._stream.probe() == "idle"

    def close(self) -> None:
        """Close it; what the kernel has still goes out."""
        self._break(ConnectionFailed(f"the connection to {self._title} is closed", kind="closed"))
        self._stream.close()

    def abort(self, error: ConnectionFailed) -> None:
        """Cut it; all who wait hear the error."""
        self._break(error)
        self._stream.abort()

    # As the owner of the stream.

    def data_received(self, data: bytes) -> None:
        """Take acknowledgements."""
        try:
            self._replies.feed(data)
            for reply in self._replies:
                if not self._acknowledge(reply):
                    return
        except (ValueError, TypeError, msgpack.UnpackException, msgpack.BufferFull, RecursionError):
            self.abort(ConnectionFailed(f"{self._title} sent something that is no reply", kind="protocol"))

    def _acknowledge(self, reply: object) -> bool:
        if isinstance(reply, dict) and (name := reply.get("ack")) is not None:
            future = self.waiting.pop(name.decode("latin-1") if isinstance(name, bytes) else str(name), None)
            if future is None:
                message = f"{self._title} acknowledged a chunk that it did not get on this connection"
                self.abort(ConnectionFailed(message, kind="protocol"))
                return False
            if not future.done():
                future.set_result(None)
            return True
        if isinstance(reply, list) and reply and reply[0] in ("HELO", b"HELO"):
            message = f"{self._title} asks for a shared key: set <security>"
        else:
            message = f"{self._title} sent something that is no acknowledgement"
        self.abort(ConnectionFailed(message, kind="protocol"))
        return False

    def eof_received(self) -> None:
        """The node has closed its side: it reads nothing more."""
        self._break(ConnectionFailed(f"{self._title} closed the connection", kind="closed"))
        if self._stream.chain.length:
            self._stream.abort()  # close() would go on sending what nobody reads
        else:
            self._stream.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        failed = error if isinstance(error, ConnectionFailed) else None
        self._break(self._told(failed or ConnectionFailed("the connection is closed", kind="closed")))

    def _told(self, error: ConnectionFailed) -> ConnectionFailed:
        """The error with the node's name; the first one that broke the link."""
        if self.broken is not None:
            return self.broken
        return type(error)(f"{self._title}: {error.message}", kind=error.kind, side=Side.SERVER)

    def _break(self, error: ConnectionFailed) -> None:
        if self.broken is None:
            self.broken = error
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self.broken)
                future.exception()  # whoever waits gets it; nobody may


async def greet(stream: Stream, identity: Identity, title: str, clock: Clock, seconds: float) -> bool:
    """Do our part of the handshake within `seconds`; return whether the node lets connections be kept.

    Raises Refused, with what the node says, or ConnectionFailed; the caller closes the stream then.
    """
    due = clock.now() + seconds
    replies = _replies()
    salt = handshake.new_salt()
    try:
        greeting = handshake.check_helo(await _reply(stream, replies, title, clock, due))
        answer = handshake.ping(
            greeting,
            salt,
            hostname=identity.hostname,
            shared_key=identity.shared_key,
            username=identity.username,
            password=identity.password,
        )
        stream.write(pack_value(answer))
        reply = await _reply(stream, replies, title, clock, due)
        handshake.check_pong(reply, greeting, salt, hostname=identity.hostname, shared_key=identity.shared_key)
    except handshake.HandshakeError as error:
        raise Refused(f"{title}: {error.message}") from error
    return greeting.keepalive


async def _reply(stream: Stream, replies: msgpack.Unpacker, title: str, clock: Clock, due: float) -> Any:
    while True:
        try:
            return replies.unpack()
        except msgpack.OutOfData:
            pass
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise handshake.HandshakeError("it does not speak the forward protocol") from error
        try:
            data = await stream.read(4096, max(due - clock.now(), 0.0))
        except Timeout as error:
            raise Timeout(f"{title} did not answer in the handshake in time") from error
        if not data:
            hint = "" if isinstance(stream, TlsStream) else " (does it want TLS?)"
            raise Refused(f"{title} closed the connection during the handshake{hint}")
        try:
            replies.feed(data)
        except msgpack.BufferFull as error:
            raise handshake.HandshakeError("it does not speak the forward protocol") from error
