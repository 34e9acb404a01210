"""One connection of stream {}: its phases, what it counts, and what stands for a request in edge's values and logs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.server import next_serial
from headrace.edge import log
from headrace.edge.accepted import Accepted
from headrace.edge.connection import client_port, client_text
from headrace.edge.values import evaluate, to_bytes
from headrace.errors import ConnectionFailed, Timeout
from headrace.stream.proxy import proxy
from headrace.stream.steps import read_hello

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.core.clock import Clock
    from headrace.core.datagram import DatagramPeer
    from headrace.core.owner import Address
    from headrace.core.proxy_protocol import ProxyHeader
    from headrace.core.stream import Stream
    from headrace.core.tls import TlsStream
    from headrace.edge.tlsport import PortTls
    from headrace.stream.ports import StreamPort
    from headrace.stream.preread import Hello
    from headrace.stream.service import StreamServer
    from headrace.stream.settings import Try
    from headrace.stream.steps import Step

OK, BAD_REQUEST, INTERNAL_ERROR, BAD_GATEWAY = 200, 400, 500, 502
_PIECE: Final = 4096


class Ended(Exception):
    """The session ends here, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Session:
    """See the package. received, sent: bytes of the client, without TLS. begun: bytes of it that are read already.

    id: the number that stands for it where no object may go. phase: "preread" during that. lua: what scripts keep.
    tries: the peers that were asked. hello: what ssl_preread found. datagrams: the client of a UDP session, which then
    also stands where the stream is: its `begun` is the first datagram. on_stop: called when the worker stops.
    """

    method = b""
    header_sent = False
    phase = ""
    redirects = 0
    parent = None
    captures: Sequence[bytes | None] = ()
    client: tuple[bytes, bytes | None] | None = None
    upstream = None

    def __init__(self, port: StreamPort, server: StreamServer, clock: Clock) -> None:
        self.info = port
        self.location = self.server = server
        self.clock = clock
        self.start = clock.now()
        self.id = self.serial = next_serial()
        self.exchange = self.conn = self.main = self
        self.proxied: ProxyHeader | None = None
        self.hello: Hello | None = None
        self.status = 0
        self.received = 0
        self.sent = 0
        self.begun = b""
        self.tries: list[Try] = []
        self.lua: Any = None
        self.on_abort: Callable[[], None] | None = None
        self.abort_on_eof = False
        self.stream: Stream
        self.datagrams: DatagramPeer | None = None
        self.on_stop: Callable[[], None] | None = None
        self._vars: dict[bytes, Any] = {}
        self._cleanups: list[Callable[[], None]] = []

    # what edge's values, logs and limits ask of a request

    def var(self, name: bytes) -> bytes | None:
        """The value of a variable; None when unknown or not set."""
        getter = self.server.variables.find(name)
        return getter(self) if getter else None  # type: ignore[arg-type]

    def get_slot(self, name: bytes) -> bytes | None:
        """The stored value of a variable."""
        value: bytes | None = self._vars.get(name)
        return value

    def set_slot(self, name: bytes, value: bytes) -> None:
        """Store the value of a variable."""
        self._vars[name] = value

    def variables(self) -> dict[bytes, Any]:
        """The stored values of variables."""
        return self._vars

    def set_var(self, name: bytes, value: bytes) -> None:
        """Set a variable. Raises KeyError when unknown, ValueError when it cannot be changed."""
        self.server.variables.setter(name)(self, value)  # type: ignore[arg-type]

    def on_cleanup(self, callback: Callable[[], None]) -> None:
        """Call back when the session has ended and is logged."""
        self._cleanups.append(callback)

    def log_error(self, level: int, message: bytes) -> None:
        """A line of the error log, with what nginx writes behind it."""
        errors = self.server.error_log
        if level > errors.level:
            return
        text = b"*%d %b, %bclient: %b, server: %b" % (
            self.serial, message, self._udp, client_text(self), to_bytes(self.info.spec.text),  # type: ignore[arg-type]
        )  # fmt: skip
        if self.tries:
            last = self.tries[-1]
            text += b', upstream: "%b", bytes from/to client:%d/%d, bytes from/to upstream:%d/%d' % (
                last.name, self.received, self.sent, last.received, last.sent,
            )  # fmt: skip
        errors.line(level, text)

    def note(self, message: bytes) -> None:
        """A line of the error log at info, with nothing behind it."""
        errors = self.server.error_log
        if errors.level >= log.INFO:
            errors.line(log.INFO, b"*%d %b%b" % (self.serial, self._udp, message))

    def trace(self, message: bytes) -> None:
        """A line of the error log at debug."""
        errors = self.server.error_log
        if errors.level >= log.DEBUG:
            errors.line(log.DEBUG, b"*%d %b" % (self.serial, message))

    @property
    def _udp(self) -> bytes:
        return b"" if self.datagrams is None else b"udp "

    def value(self, value: Any) -> bytes:
        """A value of the configuration for this session."""
        return evaluate(value, self)  # type: ignore[arg-type]

    # its life

    async def run(self, sock: socket.socket, peer: Address, tls: PortTls | None) -> None:
        """From the accept to the log line; raises nothing but CancelledError."""
        accepted = Accepted(sock, peer, asyncio.get_running_loop(), self.clock)
        try:
            self.stream = await accepted.open(self.server.proxy_protocol_timeout, proxied=self.info.spec.proxy_protocol)
        except ConnectionFailed as error:
            where = f"{error.message}, client: {accepted.client}, server: {self.info.spec.text}"
            self.server.error_log.line(log.ERR, b"*%d " % self.serial + where.encode(errors="replace"))
            assert accepted.stream is not None
            self.stream, self.status = accepted.stream, BAD_REQUEST
            self._log()
            return
        self.proxied, self.begun = accepted.header, accepted.begun
        encrypt = None if tls is None else partial(accepted.encrypt, tls=tls, timeout=self.server.handshake_timeout)
        await self._run(encrypt)

    async def run_datagrams(self, peer: DatagramPeer, first: bytes) -> None:
        """The session of a client of UDP, from its first datagram. See run."""
        self.datagrams = peer
        self.stream = peer  # type: ignore[assignment] # what sessions ask of a stream it has
        self.begun, self.received = first, len(first)
        await self._run(None)

    async def _run(self, encrypt: Callable[..., Awaitable[TlsStream]] | None) -> None:
        try:
            self.status = await self._phases(encrypt)
        except asyncio.CancelledError:
            self.stream.abort()
            raise
        except Ended as end:
            self.status = end.status
        except ConnectionFailed as error:
            self.status = self.status or OK
            self.log_error(log.INFO, to_bytes(error.message))
        except Exception as error:  # noqa: BLE001 - a fault of one session must not end the worker
            self.status = INTERNAL_ERROR
            self.log_error(log.ERR, b"unexpected error: " + repr(error).encode(errors="replace"))
        finally:
            self._log()  # as nginx: who sees the end of a session finds its line
            self.stream.close()

    async def _phases(self, encrypt: Callable[..., Awaitable[TlsStream]] | None) -> int:
        server = self.server
        if server.error_log.level >= log.INFO:
            like: Any = self
            told = (client_text(like), client_port(like) or b"", to_bytes(self.info.spec.text))
            self.note(b"client %b:%b connected to %b" % told)
        for handler in server.early:
            refused = handler(self)
            if isinstance(refused, int) and refused >= BAD_REQUEST:
                return refused
        if encrypt is not None:
            begun, self.begun = self.begun, b""
            encrypted = await encrypt(self.stream, begun=begun)
            self.stream = encrypted
            self.choose((encrypted.asked_name or "").encode("latin-1", "replace"))
            self._check_client()
        if self.datagrams is None:
            self.received += len(self.begun)
        self.phase = "preread"
        code = await self._steps(self.server.before_hello)
        if code is None and self.server.reads_hello:
            await read_hello(self)
            self.choose(b"" if self.hello is None else self.hello.server_name)
        if code is None:
            code = await self._steps(self.server.preread)
        self.phase = ""
        if code is not None:
            return code
        server = self.server
        if server.content is None:
            return await proxy(self, server.proxy)
        status: int | Awaitable[int] = server.content(self)
        return status if isinstance(status, int) else await status

    async def _steps(self, steps: Sequence[Step]) -> int | None:
        """Take the steps; the status of the one that ends the session."""
        for step in steps:
            code = step(self)
            if code is not None and not isinstance(code, int):
                code = await code
            if code is not None:
                return code
        return None

    def choose(self, name: bytes) -> None:
        """Go on with the server that the client means."""
        if not name or self.info.single:
            return
        self.server, match = self.info.find(name)
        self.location = self.server
        if match is not None:
            self.captures = (match[0], *match.groups())
            for key, value in match.groupdict().items():
                self.set_slot(key.encode(), value or b"")

    def _check_client(self) -> None:
        """Look at the certificate of the client. Raises Ended."""
        tls = self.server.tls
        encrypted: Any = self.stream
        objection = None if tls is None else tls.objection(encrypted.engine)
        if objection is not None:
            self.log_error(log.INFO, to_bytes(objection[1]) + b" while SSL handshaking")
            raise Ended(INTERNAL_ERROR)

    async def more(self, due: float) -> None:
        """One more read into `begun`, before `due` by the clock. Raises Ended when there is no more, or no room."""
        room = self.server.preread_buffer - len(self.begun)
        if room <= 0:
            self.log_error(log.ERR, b"preread buffer full while prereading client data")
            raise Ended(BAD_REQUEST)
        try:
            data = await self.stream.read(min(room, _PIECE), max(due - self.clock.now(), 0.001))
        except Timeout:
            self.log_error(log.INFO, b"client timed out (110: Connection timed out) while prereading client data")
            raise Ended(OK) from None
        self.received += len(data)
        if not data:
            raise Ended(OK)
        self.begun += data

    def _log(self) -> None:
        self.phase = ""
        self.trace(b"finalize stream session: %d" % self.status)
        for handler in self.server.log_handlers:
            try:
                handler(self)
            except Exception as error:  # noqa: BLE001 - the other logs must be written too
                self.log_error(log.ERR, b"unexpected error: " + repr(error).encode(errors="replace"))
        for callback in reversed(self._cleanups):
            callback()
