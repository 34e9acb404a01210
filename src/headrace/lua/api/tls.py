"""TLS of cosockets: sessions over the socket's own descriptor, by handle.

The waiting is Lua's: every function tries once and says what it needs. "again": more from the peer; "write": room
in the kernel.
"""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.core.openssl.context import Context
from headrace.core.openssl.failure import OpensslError, UnexpectedEof
from headrace.core.openssl.library import library
from headrace.errors import ConfError
from headrace.lua.api.pem import certificates, private_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.core.openssl.sessions import Session
    from headrace.core.openssl.settings import Settings
    from headrace.core.tls_engine import Engine

Why = tuple[None, bytes]
_AGAIN: Why = (None, b"again")
_WRITE: Why = (None, b"write")
_SESSIONS = 1024
_STATUS_TYPE, _OCSP = 65, 1  # SSL_CTRL_SET_TLSEXT_STATUS_REQ_TYPE, TLSEXT_STATUSTYPE_ocsp


class _Open:
    """fd: the descriptor. unsent: what the kernel had no room for.

    verify, name: whether the certificate of the peer is looked at, and whom it has to be for.
    """

    __slots__ = ("engine", "fd", "kept", "name", "unsent", "verify")

    def __init__(self, fd: int, engine: Engine, name: str | None = None, *, verify: bool = False) -> None:
        self.fd = fd
        self.engine = engine
        self.name = name
        self.verify = verify
        self.unsent = b""
        self.kept: list[_Kept] = []

    def push(self) -> bool:
        """Write what is to go out; False when the kernel has no room. Raises OSError."""
        self.unsent += self.engine.outgoing()
        while self.unsent:
            try:
                sent = os.write(self.fd, self.unsent)
            except BlockingIOError:
                return False
            self.unsent = self.unsent[sent:]
        return True

    def pull(self) -> bool:
        """Read once from the wire; False when there is nothing. Raises OSError."""
        try:
            self.engine.feed(os.read(self.fd, 65536))
        except BlockingIOError:
            return False
        return True


class _Kept:
    """A session that a script may resume. With TLS 1.3 what is needed for that comes after the handshake.

    engine: of the connection, as long as that is open.
    """

    __slots__ = ("engine", "session")

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.session: Session | None = None

    def best(self) -> Session | None:
        """What there is of it now."""
        if self.engine is not None:
            self.session = self.engine.current_session or self.session
        return self.session


class TlsApi:
    """settings: those of TLS by the number that a location's settings carry (lua_ssl_*)."""

    def __init__(self, settings: Sequence[Settings]) -> None:
        self.settings = settings
        self._contexts: dict[int, Context] = {}
        self._open: dict[int, _Open] = {}
        self._saved: dict[int, _Kept] = {}
        self._handles = itertools.count(1)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = ("open", "handshake", "read", "write", "close", "session", "reused", "pointer")
        return {f"tls_{name}": getattr(self, f"tls_{name}") for name in names}

    def tls_open(
        self, fd: int, context: int, resume: int, name: bytes, verify: int, client: bytes, status: int
    ) -> int | Why:
        """Begin a session as client.

        verify: the certificate must be trusted, and for `name` when one is given. client: the PEM text of our own key
        and certificates, b"" for those of the settings. status: ask for an OCSP response (RFC 6066 8).
        """
        host = name.decode("latin-1") or None
        kept = self._saved.get(int(resume))
        try:
            used = self._contexts.get(context)
            if used is None:
                used = self._contexts[context] = Context(self.settings[context])
            engine = used.engine(name=host, resume=kept.best() if kept else None)
            if client:
                engine.use_certificates(certificates(client))
                engine.use_key(private_key(client))
        except ConfError as error:
            return None, error.message.encode("utf-8", "surrogateescape")
        if status:
            library().SSL_ctrl(engine.pointer, _STATUS_TYPE, _OCSP, None)
        handle = next(self._handles)
        self._open[handle] = _Open(fd, engine, host, verify=bool(verify))
        return handle

    def tls_pointer(self, handle: int) -> int:
        """The address of OpenSSL's own object (SSL *); it lives until tls_close."""
        engine: Any = self._open[int(handle)].engine  # an openssl.Connection: tls_open makes no other
        pointer: int = engine.pointer
        return pointer

    def adopt(self, fd: int, engine: Engine) -> int:
        """A session that is open already (that of the client)."""
        handle = next(self._handles)
        self._open[handle] = _Open(fd, engine)
        return handle

    def tls_handshake(self, handle: int) -> int | tuple[int, bytes, bytes]:
        """1: done; 2: wants to read; 3: wants to write; 0, why and the line of the log: failed."""
        session = self._open[handle]
        try:
            while True:
                done = session.engine.handshake()
                if not session.push():
                    return 3
                if done:
                    return self._look_at_certificate(session)
                if not session.pull():
                    return 2
        except UnexpectedEof:
            return 0, b"handshake failed", b"peer closed connection in SSL handshake"
        except OpensslError as error:
            session.unsent += session.engine.outgoing()
            text = f"SSL_do_handshake() failed (SSL: {error.queue})"
        except (OSError, ConfError) as error:
            text = f"SSL_do_handshake() failed: {error}"
        return 0, b"handshake failed", text.encode("utf-8", "surrogateescape")

    @staticmethod
    def _look_at_certificate(session: _Open) -> int | tuple[int, bytes, bytes]:
        """As OpenResty does: after the handshake, and in its words."""
        engine: Any = session.engine
        if not session.verify:
            return 1
        if engine.verify_code:
            said = f"{engine.verify_code}: {engine.verify_message}".encode()
            return 0, said, b"lua ssl certificate verify error: (%b)" % said
        name = session.name
        if name is not None and not engine.matches(name):
            line = b'lua ssl certificate does not match host "%b"' % name.encode("latin-1")
            return 0, b"certificate host mismatch", line
        return 1

    def tls_read(self, handle: int, limit: int) -> bytes | Why:
        """Some plaintext, or None and "again", "write", "closed", or the words of an error."""
        session = self._open[handle]
        try:
            while True:
                data = session.engine.read(limit)
                room = session.push()
                if data:
                    return data
                if not room:
                    return _WRITE
                if session.engine.ended:
                    return None, b"closed"
                if not session.pull():
                    return _AGAIN
        except ssl.SSLError as error:
            return None, (error.reason or str(error)).replace("_", " ").lower().encode()
        except OSError as error:
            return None, os.strerror(error.errno or 0).lower().encode()

    def tls_write(self, handle: int, data: bytes) -> int | Why:
        """Encrypt and send; the call is repeated with b"" until it returns 1."""
        session = self._open[handle]
        try:
            if data:
                session.engine.write(data)
            return 1 if session.push() else _WRITE
        except ssl.SSLError as error:
            return None, (error.reason or str(error)).replace("_", " ").lower().encode()
        except OSError as error:
            return None, os.strerror(error.errno or 0).lower().encode()

    def tls_session(self, handle: int) -> int:
        """A number that stands for the session, to be resumed by a later handshake."""
        session = self._open[handle]
        number = next(self._handles)
        kept = self._saved[number] = _Kept(session.engine)
        session.kept.append(kept)
        while len(self._saved) > _SESSIONS:
            del self._saved[next(iter(self._saved))]
        return number

    def tls_reused(self, handle: int) -> int:
        """1 when the handshake went on with an earlier session."""
        return 1 if self._open[handle].engine.session_reused else 0

    def tls_close(self, handle: int) -> None:
        """Say goodbye if there is room, and forget the session; the descriptor is Lua's to close."""
        session = self._open.pop(handle, None)
        if session is None:
            return
        for kept in session.kept:
            kept.best()
            kept.engine = None
        try:
            session.engine.say_goodbye()
            session.push()
        except (OSError, ssl.SSLError, ValueError):
            return
