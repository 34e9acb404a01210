"""The handshakes of a socket: which server a client means, and what that server's settings and scripts do.

A `Handshake` stands where variables and logs have a request: it knows the connection, and no request yet.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from headrace.core.http1.server import next_serial
from headrace.core.openssl.hooks import ACCESS_DENIED, UNRECOGNIZED_NAME, Hooks, Refused
from headrace.edge import log
from headrace.edge.connection import peer_text
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.core.clock import Clock
    from headrace.core.openssl.connection import Connection
    from headrace.core.openssl.context import Context
    from headrace.core.proxy_protocol import ProxyHeader
    from headrace.core.stream import Stream
    from headrace.core.tls import TlsStream
    from headrace.edge.tlsserver import ServerTls


class Handshake:
    """One handshake. server: the one chosen so far. engine: its session, which scripts may change.

    handle: the number by which scripts know it, 0 without scripts. note: what logs say about the script that runs.
    owner: the port. header: of the PROXY protocol.
    """

    parent = None
    captures: Sequence[bytes | None] = ()
    client: tuple[bytes, bytes | None] | None = None
    upstream = None
    handle = 0
    note = b""

    def __init__(self, owner: Any, server: Any, stream: TlsStream, engine: Connection) -> None:
        self.info = owner
        self.server = self.location = server
        self.stream = stream
        self.engine = engine
        self.serial = next_serial()
        self.proxied: ProxyHeader | None = None
        self._vars: dict[bytes, bytes] = {}
        self._cleanups: list[Callable[[], object]] = []

    @property
    def exchange(self) -> Handshake:
        """What values of a request look for there is here (no attribute: nothing is to refer to itself)."""
        return self

    conn = main = exchange

    @property
    def peer(self) -> Any:
        """The client's address."""
        return self.stream.peer

    def var(self, name: bytes) -> bytes | None:
        """The value of a variable; None when unknown, not set, or a matter of requests."""
        getter = self.server.variables.find(name)
        with contextlib.suppress(AttributeError):
            found: bytes | None = getter(self) if getter else None
            return found
        return None

    def get_slot(self, name: bytes) -> bytes | None:
        """The stored value of a variable."""
        return self._vars.get(name)

    def set_slot(self, name: bytes, value: bytes) -> None:
        """Store the value of a variable."""
        self._vars[name] = value

    def on_cleanup(self, callback: Callable[[], object]) -> None:
        """Call back when the handshake has ended, in whatever way."""
        self._cleanups.append(callback)

    def end(self) -> None:
        """The handshake has ended."""
        callbacks, self._cleanups = self._cleanups, []
        for callback in callbacks:
            callback()

    def log_error(self, level: int, message: bytes) -> None:
        """A line of the error log, with what nginx writes behind it."""
        errors = self.error_log
        if level <= errors.level:
            where = (self.serial, message, peer_text(self), to_bytes(self.info.spec.text))  # type: ignore[arg-type]
            errors.line(level, b"*%d %b, client: %b, server: %b" % where)

    @property
    def error_log(self) -> Any:
        """The log of the server."""
        server = self.server
        return server.error_log if hasattr(server, "error_log") else server.location.error_log


class PortTls:
    """What connections of one socket shake hands with.

    owner: the port (it has a `spec`). default: the server of a client that names none. choose: the server of a name.
    alpn: the protocols that this socket offers; None: those of the server. local: the same for single addresses that a
    wildcard socket stands for.
    """

    def __init__(
        self,
        owner: Any,
        default: Any,
        choose: Callable[[str], Any] | None = None,
        alpn: tuple[str, ...] | None = None,
    ) -> None:
        self.owner = owner
        self.default = default
        self.choose = choose
        tls: ServerTls = default.tls
        assert tls.context is not None
        self.terms: Context = tls.context
        self.hooks = Hooks(alpn=alpn, server_name=self._server_name)
        self.local: dict[str, PortTls] = {}

    def use(self, servers: Sequence[ServerTls]) -> None:
        """Look at what the servers of the socket do, so that the rest is not asked for."""
        hooks = self.hooks
        if any(tls.client_hello for tls in servers):
            hooks.client_hello = self._client_hello
        if any(tls.certificate or tls.late for tls in servers):
            hooks.certificate = self._certificate
        if any(tls.session_fetch for tls in servers):
            hooks.session_get = self._session_get
        if any(tls.session_store for tls in servers):
            hooks.session_new = self._session_new

    def of(self, stream: Stream) -> PortTls:
        """What holds for the local address of a connection."""
        return self.local.get(stream.local[0], self) if self.local else self

    def begin(self, stream: TlsStream, header: ProxyHeader | None) -> Handshake:
        """A handshake begins."""
        engine: Any = stream.engine
        made = engine.data = Handshake(self.owner, self.default, stream, engine)
        made.proxied = header
        return made

    @staticmethod
    async def check(stream: TlsStream, clock: Clock) -> None:
        """Ask about the certificate of the client, where its server wants that."""
        engine: Any = stream.engine
        handshake: Handshake = engine.data
        tls: ServerTls | None = handshake.server.tls
        if tls is not None and tls.ocsp is not None:
            await tls.ocsp.look(engine, clock, handshake.log_error)

    @staticmethod
    def end(stream: TlsStream) -> None:
        """A handshake has ended: nothing asks for it any more (with early data it goes on for a while)."""
        engine: Any = stream.engine
        if engine.data is not None:
            engine.data.end()
        if not engine.early:
            engine.data = None

    def _server_name(self, engine: Connection, name: str | None) -> Context | None:
        handshake: Handshake = engine.data
        if name and self.choose is not None:
            handshake.server = handshake.location = self.choose(name)
        tls: ServerTls | None = handshake.server.tls
        if tls is None:
            return None
        if tls.reject:
            raise Refused("the server rejects handshakes", UNRECOGNIZED_NAME)
        if tls.checks and engine.session_reused and engine.version == "TLSv1.3" and engine.session_name != name:
            # Who was asked for no certificate must not go on where one is wanted (CVE-2025-23419).
            raise Refused("the session was made with another server", ACCESS_DENIED)
        return tls.context

    def _client_hello(self, engine: Connection) -> Awaitable[None] | None:
        tls: ServerTls | None = engine.data.server.tls
        step = None if tls is None else tls.client_hello
        return None if step is None else step(engine.data)

    def _certificate(self, engine: Connection) -> Awaitable[None] | None:
        handshake: Handshake = engine.data
        tls: ServerTls | None = handshake.server.tls
        if tls is None:
            return None
        for late in tls.late:
            try:
                engine.use_pair(late.load(handshake))
            except ConfError as error:
                handshake.log_error(log.ERR, to_bytes(error.message) + b" while SSL handshaking")
                raise
        return None if tls.certificate is None else tls.certificate(handshake)

    def _session_get(self, engine: Connection, identity: bytes) -> Awaitable[bytes | None] | bytes | None:
        tls: ServerTls | None = engine.data.server.tls
        fetch = None if tls is None else tls.session_fetch
        return None if fetch is None else fetch(engine.data, identity)

    def _session_new(self, engine: Connection, identity: bytes, der: bytes) -> None:
        tls: ServerTls | None = engine.data.server.tls
        if tls is not None and tls.session_store is not None:
            tls.session_store(engine.data, identity, der)
