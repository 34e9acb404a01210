"""One client of a forward source: handshake, messages in their order, acknowledgements.

Rules:
- An acknowledgement is written when the batch is as safe as the buffers and `ack_mode` say, and never else.
- Events enter the buffers in the order of the connection. Several messages may wait for the disk together
  (one fsync serves them all); past PENDING of them, or PENDING_BYTES, the connection is not read.
- A full buffer: a client that wants acknowledgements gets none, and the connection is closed, so that it need
  not wait for its timeout before it sends again. Another client would lose what it sent: the connection is
  not read until there is room, and TCP holds the client back.
- A message that cannot be taken is left out, and the connection goes on; a client that waits for its
  acknowledgement waits in vain.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.core.stream import READ_SIZE
from headrace.errors import BufferOverflow
from headrace.pipeline.event import pack_value
from headrace.plugins.forward import handshake
from headrace.plugins.forward.entries import Refused
from headrace.plugins.forward.handshake import HandshakeError
from headrace.plugins.forward.stream import Decoder
from headrace.plugins.in_forward.intake import bring

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.clock import Deadline
    from headrace.core.stream import Stream
    from headrace.pipeline.event import Record
    from headrace.plugins.forward.messages import Message
    from headrace.plugins.in_forward.intake import Brought
    from headrace.plugins.in_forward.server import ForwardServer

PENDING: Final = 64
"""Messages of a connection that wait for their place."""
PENDING_BYTES: Final = 16 << 20
"""Bytes of them."""
MOST_READ: Final = 1 << 19
"""Bytes of one read of a client that has so many under way."""
UNREAD: Final = 1 << 20
"""Bytes of acknowledgements that a client may leave unread."""
RETRY: Final = 0.1
"""Seconds until a full buffer is tried again."""
QUIET: Final = 0.3
"""Seconds of silence after which a client is taken to have nothing under way."""
HANDSHAKE_TIMEOUT: Final = 30.0
"""Seconds for a client to prove itself."""


class Connection:
    """One client (core.owner.Owner). added: fields for each of its records."""

    __slots__ = (
        "_acknowledges", "_added", "_auth", "_busy", "_closing", "_decoder", "_eof", "_held", "_nonce", "_paused",
        "_pending", "_pending_bytes", "_room", "_server", "_stalled", "_timer", "address", "heard", "held", "name",
        "stream",
    )  # fmt: skip

    def __init__(self, server: ForwardServer, stream: Stream, address: str, name: str, added: Record | None) -> None:
        self.stream = stream
        self.address = address
        self.name = name
        self._server = server
        self._added = added
        self._decoder = Decoder()
        self._nonce: bytes | None = None  # while the client has not proved itself
        self._auth = b""
        self._pending = 0
        self._pending_bytes = 0
        self._held: Brought | None = None  # what waits for room
        self._acknowledges = False  # the client has asked for an acknowledgement
        self._paused = False
        self._busy = False
        self._eof = False
        self._closing = False
        self._room = server.room
        self._stalled = False  # it waits until others have finished their messages
        self.held = 0
        self.heard = False
        self._timer: Deadline | None = None
        stream.set_owner(self)
        security = server.security
        if security is not None:
            self._nonce = handshake.new_salt()
            self._auth = handshake.new_salt() if security.user_auth else b""
            self._decoder.values = True
            self._timer = server.clock.deadline(HANDSHAKE_TIMEOUT, self._silent)
            self.stream.write(pack_value(handshake.helo(self._nonce, self._auth, keepalive=not server.deny_keepalive)))
        stream.start_reading()

    # What the stream tells.

    def data_received(self, data: bytes) -> None:
        """Take the messages that are whole."""
        self.heard = True
        stream, size = self.stream, len(data)
        if size == stream.read_size:
            stream.read_size = min(2 * size, MOST_READ)
        elif size < stream.read_size >> 3:
            stream.read_size = max(stream.read_size >> 1, READ_SIZE)
        self._decoder.push(data)
        self._work()

    def eof_received(self) -> None:
        """The client has sent everything; what is not whole is left to it."""
        self._eof = True
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        """It is over. What is in the buffers stays; what waits for room is given up."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._room.leaves(self)
        if self._held is not None and self._eof:
            return  # a client that has sent everything and gone: its last message still waits for room
        self._drop_held("its client is gone")
        self._server.forget(self)

    def go_on(self) -> None:
        """It may be read again, see room.py."""
        self._stalled = False
        self._settle()

    # Messages.

    def _work(self) -> None:
        """Take messages as long as there are any and they may be taken."""
        if self._busy:
            return
        self._busy = True
        decoder = self._decoder
        while not self._closing and self._held is None and self._pending < PENDING:
            if self._pending_bytes >= PENDING_BYTES:
                break
            message = decoder.next()
            if message is None:
                if decoder.error is not None:
                    self._server.refuse(self, decoder.error.message)
                    self._closing = True
                break
            if self._nonce is not None:
                self._shake(message)
            else:
                self._take(message)
        self._busy = False
        if self.stream.chain.length:
            self.stream.flush()
        if (decoder.pending or self.held) and not self.stream.closed:
            self._stalled = not self._room.holds(self, decoder.pending)
        self._settle()

    def _settle(self) -> None:
        """Read on, or not, or close."""
        if self._busy or self.stream.closed:
            return
        idle = not self._pending and self._held is None
        if idle and (self._closing or self._eof):
            self.stream.close()
        elif (
            self._stalled or self._held is not None or self._pending >= PENDING or self._pending_bytes >= PENDING_BYTES
        ):
            self._paused = True
            self.stream.pause_reading()
        elif self._paused and not self._closing:
            self._paused = False
            self.stream.start_reading()

    def _take(self, message: Message) -> None:
        server = self._server
        server.messages += 1
        if server.deny_keepalive:
            self._closing = True
        chunk = message.option("chunk")
        if not server.fits(self, message):
            return
        try:
            brought = bring(message, server.terms, self._added)
        except (Refused, ValueError) as error:
            server.refuse(self, str(error))
            return
        if brought.left_out:
            server.left_out(self, brought)
        if chunk is not None:
            self._acknowledges = True
        if brought.batch.count:
            self._emit(brought, chunk, message.size)
        else:
            self._acknowledge(chunk)

    def _emit(self, brought: Brought, chunk: Any, size: int) -> None:
        try:
            waiting = self._server.emit(brought.tag, brought.batch)
        except Exception as error:  # noqa: BLE001 - the router has logged it; the connection goes on
            self._failed(brought, chunk, error)
            return
        if waiting is None:
            self._server.events += brought.batch.count
            self._acknowledge(chunk)
        else:
            self._wait(waiting, brought, chunk, size)

    def _wait(self, waiting: Awaitable[None], brought: Brought, chunk: Any, size: int) -> None:
        self._pending += 1
        self._pending_bytes += size
        future = asyncio.ensure_future(waiting)
        self._server.waiting.add(future)
        future.add_done_callback(partial(self._waited, brought, chunk, size))

    def _waited(self, brought: Brought, chunk: Any, size: int, future: asyncio.Future[None]) -> None:
        self._server.waiting.discard(future)
        self._pending -= 1
        self._pending_bytes -= size
        if future.cancelled():
            self._closing = True
        elif (error := future.exception()) is not None:
            self._failed(brought, chunk, error)
        else:
            self._server.events += brought.batch.count
            self._acknowledge(chunk)
        self._work()

    def _failed(self, brought: Brought, chunk: Any, error: BaseException) -> None:
        """What was sent is not in the buffers."""
        server = self._server
        full = isinstance(error, BufferOverflow)
        if full:
            server.overflows += 1
        if chunk is not None:
            server.unacknowledged(self, error)
            self._closing = True
        elif full and getattr(error, "retryable", False) and not (self.stream.closed and not self._eof):
            server.hold(self, error)
            self._held = brought
            server.clock.deadline(RETRY, self._retry)
        else:
            server.drop(self, brought, str(error))

    def _retry(self) -> None:
        brought, self._held = self._held, None
        if brought is None:
            return
        self._emit(brought, None, 0)
        if self._held is None:
            self._work()
            if self.stream.closed:
                self._server.forget(self)

    def _drop_held(self, why: str) -> None:
        brought, self._held = self._held, None
        if brought is not None:
            self._server.drop(self, brought, why)

    # Answers.

    def _acknowledge(self, chunk: Any) -> None:
        if chunk is not None:
            self._server.acknowledged += 1
            self._answer({"ack": chunk})

    def _answer(self, value: Any) -> None:
        if self.stream.closed:
            return
        data = json.dumps(value, default=_text).encode() if self._decoder.is_json else pack_value(value)
        if self._busy:
            self.stream.append(data)  # one write for the answers to all that was read at once
        else:
            self.stream.write(data)
        if self.stream.chain.length > UNREAD:
            self._server.refuse(self, "it reads no acknowledgements")
            self.stream.abort()

    # The handshake.

    def _shake(self, message: Message) -> None:
        server = self._server
        assert server.security is not None
        assert self._nonce is not None
        try:
            proof = handshake.check_ping(message.value)
            shared_key = server.security.admit(proof, self.address, self._nonce, self._auth)
        except HandshakeError as error:
            server.deny(self, error.message)
            self._answer(handshake.refusal(error.message))
            self._closing = True
            return
        name = server.security.self_hostname
        self._answer(handshake.pong(proof, self._nonce, hostname=name, shared_key=shared_key))
        self._nonce = None
        self._decoder.values = False
        if self._timer is not None:
            self._timer.cancel()

    def _silent(self) -> None:
        self._server.deny(self, f"no PING within {HANDSHAKE_TIMEOUT:g} s")
        self.stream.abort()

    # The end.

    def drain(self) -> None:
        """Let the client go: it sends again what it has no acknowledgement for; else what is under way is read."""
        if self._acknowledges or self._nonce is not None:
            self._closing = True
            self._settle()
        elif not self.stream.closed:
            self.stream.shutdown_write()
            self.heard = False
            self._server.clock.deadline(QUIET, self._is_quiet)

    def _is_quiet(self) -> None:
        if self.stream.closed:
            return
        if not self.heard and not self._pending and self._held is None:
            self.stream.close()
            return
        self.heard = False
        self._server.clock.deadline(QUIET, self._is_quiet)

    def abort(self) -> None:
        """Cut it."""
        self._eof = False
        self._drop_held("the process ends")
        if self.stream.closed:
            self._server.forget(self)
        else:
            self.stream.abort()


def _text(value: Any) -> str:
    """Bytes in a JSON answer."""
    return bytes(value).decode("latin-1")
