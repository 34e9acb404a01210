"""One TLS session over memory buffers: ciphertext in, plaintext out and back. No I/O.

`Engine` is what a stream needs of one; `TlsEngine` is the one of Python's ssl, core.openssl.connection.Connection
that of OpenSSL's library itself.

Engines nest: `outer` is the session that this one is spoken through (TLS to a proxy, and TLS through it to the
target), so what is called ciphertext here is always what goes on the wire.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.openssl.hooks import Hooks

_RECORD = 16_384


class Engine(Protocol):
    """A session; any method may raise ssl.SSLError.

    ended, ragged: see TlsEngine. buffered: `read` may have something without more from the wire. waiting: what a
    handshake that has returned False waits for; None: for the wire.
    """

    ended: bool
    ragged: bool
    waiting: Awaitable[Any] | None

    @property
    def buffered(self) -> bool: ...  # noqa: D102
    @property
    def version(self) -> str | None: ...  # noqa: D102
    @property
    def cipher(self) -> str | None: ...  # noqa: D102
    @property
    def alpn(self) -> str | None: ...  # noqa: D102
    @property
    def asked_name(self) -> str | None: ...  # noqa: D102
    @property
    def session_reused(self) -> bool: ...  # noqa: D102
    @property
    def session_id(self) -> str | None: ...  # noqa: D102
    @property
    def current_session(self) -> Any: ...  # noqa: D102

    def feed(self, wire: bytes) -> None: ...  # noqa: D102
    def read(self, limit: int) -> bytes: ...  # noqa: D102
    def write(self, plain: bytes) -> None: ...  # noqa: D102
    def handshake(self) -> bool: ...  # noqa: D102
    def say_goodbye(self) -> None: ...  # noqa: D102
    def outgoing(self) -> bytes: ...  # noqa: D102
    def peer_der(self) -> bytes | None: ...  # noqa: D102


class Terms(Protocol):
    """The settings of one side, from which engines are made; a value, or known by its identity."""

    @property
    def is_server(self) -> bool: ...  # noqa: D102
    @property
    def reuse_sessions(self) -> bool: ...  # noqa: D102
    def name_of(self, dialled: str | None) -> str | None:
        """Clients: the name to send, for a host that was dialled."""
        ...

    def engine(self, *, name: str | None, resume: Any, outer: Engine | None, hooks: Hooks | None) -> Engine:
        """A session. name: see name_of. Raises errors.ConfError when the settings cannot work."""
        ...


class TlsEngine:
    """A session; any method may raise ssl.SSLError.

    ended: the peer has said close_notify, or the wire has ended. ragged: it ended without close_notify, so
    what came before may be cut short.
    """

    __slots__ = ("_in", "_out", "ended", "outer", "ragged", "session", "waiting")

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        resume: ssl.SSLSession | None = None,
        outer: Engine | None = None,
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.session = context.wrap_bio(self._in, self._out, server_side, server_hostname, resume)
        self.outer = outer
        self.ended = False
        self.ragged = False
        self.waiting: Awaitable[Any] | None = None

    @property
    def version(self) -> str | None:
        """The protocol in use ("TLSv1.3")."""
        return self.session.version()

    @property
    def cipher(self) -> str | None:
        """The name of the cipher suite in use."""
        cipher = self.session.cipher()
        return cipher[0] if cipher else None

    @property
    def alpn(self) -> str | None:
        """The application protocol agreed on."""
        return self.session.selected_alpn_protocol()

    @property
    def asked_name(self) -> str | None:
        """Servers: the name that the client asked for (SNI), where the context's sni_callback has kept it."""
        return getattr(self.session, "asked_name", None)

    @property
    def session_reused(self) -> bool:
        """Whether the handshake resumed an earlier session."""
        return bool(self.session.session_reused)

    @property
    def current_session(self) -> ssl.SSLSession | None:
        """The session, to be resumed by another."""
        return self.session.session

    @property
    def session_id(self) -> str | None:
        """The id of the session in hexadecimal digits."""
        session = self.session.session
        return session.id.hex() if session is not None else None

    def peer_der(self) -> bytes | None:
        """The verified certificate of the peer in DER, None without one."""
        return self.session.getpeercert(binary_form=True)

    @property
    def buffered(self) -> bool:
        """Whether `read` may have something without more from the wire."""
        return bool(self._in.pending or self.session.pending())

    def feed(self, wire: bytes) -> None:
        """Take ciphertext from the wire; b"" is its end."""
        if self.outer is None:
            if wire:
                self._in.write(wire)
            else:
                self._in.write_eof()
            return
        self.outer.feed(wire)
        inner = self.outer.read(1 << 30)
        if inner:
            self._in.write(inner)
        if self.outer.ended:
            self._in.write_eof()

    def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of plaintext; b"" when there are none now (see `ended`)."""
        if self.ended:
            return b""
        parts: list[bytes] = []
        left = limit
        while left > 0:
            try:
                part = self.session.read(min(left, _RECORD))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.ended = True
                break
            except ssl.SSLEOFError:
                self.ended = self.ragged = True
                break
            if not part:
                self.ended = True  # close_notify, before we have sent ours
                break
            parts.append(part)
            left -= len(part)
            if not self.buffered:
                break  # asking once more would only cost an exception
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, plain: bytes) -> None:
        """Encrypt all of it; `outgoing` has the result."""
        done = self.session.write(plain)
        if done < len(plain):
            rest = memoryview(plain)
            while done < len(plain):
                done += self.session.write(rest[done:])

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done."""
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def say_goodbye(self) -> None:
        """Put close_notify into `outgoing` (RFC 8446 6.1); reading may go on."""
        try:
            self.session.unwrap()
        except ssl.SSLError:
            return  # nearly always "want read": the peer's own goodbye is not awaited

    def outgoing(self) -> bytes:
        """Ciphertext for the wire, b"" when there is none."""
        data = self._out.read()
        outer = self.outer
        if outer is None:
            return data
        if data:
            outer.write(data)
        return outer.outgoing()
