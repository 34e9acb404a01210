"""The client of a session as scripts see it: ngx.say, ngx.flush and the socket of ngx.req.socket.

The session's stream stays the owner of all unsent bytes; what is read for a script and not used goes back to the
session (`begun`), so that what comes after preread_by_lua finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.log import ERR
from headrace.errors import ConnectionFailed, Timeout

if TYPE_CHECKING:
    from headrace.stream.session import Session

Why = tuple[None, bytes]
KEEP: Final = 65_536
"""Bytes that wait for a script before the client is read no further."""


class Client:
    """The owner of a session's stream while scripts run. told: called with bytes, or None and why there are none."""

    def __init__(self, session: Session, told: Callable[[int, bytes | None, bytes | None], None]) -> None:
        self.session = session
        self.told = told
        self.data = session.begun
        session.begun = b""
        self.why: bytes | None = None
        self.waiting = False
        session.stream.set_owner(self)

    def next(self) -> bytes | Why | None:
        """What is here; None: its arrival will be told; None and why nothing comes."""
        if self.data:
            data, self.data = self.data, b""
            return data
        stream = self.session.stream
        if self.why is None and stream.closed:
            self.why = b"closed"
        if self.why is not None:
            return None, self.why
        self.waiting = True
        stream.start_reading()
        return None

    def watch(self) -> None:
        """Notice the end of the client, also while no script reads."""
        self.session.stream.start_reading()

    def data_received(self, data: bytes) -> None:
        """See core.owner.Owner."""
        self.session.received += len(data)
        if self.waiting:
            self.waiting = False
            if not self.session.abort_on_eof:
                self.session.stream.pause_reading()
            self.told(self.session.id, data, None)
            return
        self.data += data
        if len(self.data) > KEEP or not self.session.abort_on_eof:
            self.session.stream.pause_reading()

    def eof_received(self) -> None:
        """See core.owner.Owner."""
        self._over(b"client aborted" if self.session.abort_on_eof else b"closed")

    def connection_lost(self, error: Exception | None) -> None:
        """See core.owner.Owner."""
        kind = getattr(error, "kind", None)
        self._over({"reset": b"connection reset by peer", "broken_pipe": b"broken pipe"}.get(kind or "", b"closed"))

    def _over(self, why: bytes) -> None:
        if self.why is None:
            self.why = why
        session = self.session
        if self.waiting:
            self.waiting = False
            self.told(session.id, None, self.why)
        if session.on_abort is not None:
            gone, session.on_abort = session.on_abort, None
            gone()

    def release(self, rest: bytes) -> None:
        """Scripts are done for now. rest: what they had read and not used."""
        self.session.begun = rest + self.data
        self.data, self.waiting = b"", False
        self.session.stream.pause_reading()
        self.session.stream.set_owner(None)


class ClientApi:
    """sessions: the live ones by handle. bytes_ready, flushed: entries of the VM."""

    def __init__(self, sessions: Mapping[int, Session]) -> None:
        self.sessions = sessions
        self.bytes_ready: Callable[[int, bytes | None, bytes | None], None] = lambda *_: None
        self.flushed: Callable[[int, bytes | None], None] = lambda *_: None
        self.sent: Callable[[int, bytes | None], None] = lambda *_: None
        self._clients: dict[int, Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package api."""
        names = ("output", "flush", "client_kind", "client_next", "client_stop", "client_send", "client_shutdown")
        return {
            name: getattr(self, name)
            for name in (*names, "output_rest", "client_fd", "client_since", "client_status", "preread_limits")
        }

    def client(self, session: Session) -> Client:
        """The owner of the session's stream, made when the first script asks."""
        found = self._clients.get(session.id)
        if found is None:
            found = self._clients[session.id] = Client(session, self._bytes_ready)
        return found

    def _bytes_ready(self, session_id: int, data: bytes | None, why: bytes | None) -> None:
        self.bytes_ready(session_id, data, why)

    def release(self, session: Session, rest: bytes) -> None:
        """Give the stream back to the session, with what was read and not used."""
        client = self._clients.pop(session.id, None)
        if client is not None:
            client.release(rest)

    def client_since(self, session_id: int) -> float:
        """Wall seconds, to the millisecond, at which the session began."""
        session = self.sessions[session_id]
        return round(session.clock.wall_ns() / 1e9 - (session.clock.now() - session.start), 3)

    def client_status(self, session_id: int) -> int:
        """The status, 0 while the session lasts."""
        return self.sessions[session_id].status

    def client_fd(self, session_id: int) -> int:
        """The descriptor of the connection."""
        return self.sessions[session_id].stream.fd

    # writing

    def output(self, session_id: int, data: bytes) -> int:
        """Bytes for the client; 1 when it is gone."""
        session = self.sessions[session_id]
        session.stream.write(data)
        if session.stream.closed:
            return 1
        session.sent += len(data)
        return 0

    def output_rest(self, handle: int, data: bytes, _held: int) -> None:
        """The last bytes."""
        self.output(handle, data)

    def flush(self, session_id: int, seconds: float) -> int | Why:
        """1: all is in the kernel; 0: the end of the flush will be told; None and why when the client is gone."""
        stream = self.sessions[session_id].stream
        if stream.closed:
            return None, b"client aborted"
        if not stream.chain.length:
            return 1
        self._wait(session_id, seconds, self.flushed)
        return 0

    def client_send(self, session_id: int, data: bytes, seconds: float) -> int | Why:
        """1: it is in the kernel; 0: that will be told; None and why not."""
        session = self.sessions[session_id]
        try:
            session.stream.write(data)
        except ConnectionFailed as error:
            session.log_error(ERR, error.message.encode())
            return None, b"error"
        if session.stream.closed:
            return None, b"closed"
        session.sent += len(data)
        if session.datagrams is not None or not session.stream.chain.length:
            return 1
        self._wait(session_id, seconds, self.sent)
        return 0

    def _wait(self, session_id: int, seconds: float, told: Callable[[int, bytes | None], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._drained(session_id, seconds, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drained(self, session_id: int, seconds: float, told: Callable[[int, bytes | None], None]) -> None:
        why = None
        try:
            await self.sessions[session_id].stream.drained(seconds)
        except Timeout:
            why = b"timeout"
        except ConnectionFailed:
            why = b"client aborted"
        told(session_id, why)

    def client_shutdown(self, session_id: int) -> int:
        """No more bytes for the client after those that were written; 0: some of them are still here."""
        stream = self.sessions[session_id].stream
        if stream.chain.length:
            return 0
        stream.shutdown_write()
        return 1

    # reading

    def client_kind(self, session_id: int) -> int:
        """0: nothing may be asked of the client now; 1: a connection; 2: datagrams."""
        session = self.sessions[session_id]
        if session.datagrams is not None:
            return 2
        return 0 if session.stream.chain.length else 1

    def client_next(self, session_id: int) -> bytes | Why | None:
        """Bytes of the client. See Client.next; of datagrams only that which began the session is read."""
        session = self.sessions[session_id]
        if session.datagrams is None:
            return self.client(session).next()
        data, session.begun = session.begun, b""
        return data or (None, b"no more data")

    def client_stop(self, session_id: int) -> None:
        """Nobody waits for bytes any more; those that come are kept for a later read."""
        client = self._clients.get(session_id)
        if client is not None:
            client.waiting = False
            if not client.session.abort_on_eof:
                client.session.stream.pause_reading()

    def preread_limits(self, session_id: int) -> tuple[int, float]:
        """preread_buffer_size in bytes, and the milliseconds of preread_timeout that are left."""
        session = self.sessions[session_id]
        left = session.start + session.server.preread_timeout - session.clock.now()
        return session.server.preread_buffer, max(left * 1000, 1.0)
