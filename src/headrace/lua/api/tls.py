"""TLS of cosockets: sessions over the socket's own descriptor, by handle.

The waiting is Lua's: every function tries once and says what it needs. "again": more from the peer; "write": room
in the kernel.
"""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.core.tls_config import TlsConfig, handshake_error
from headrace.core.tls_engine import TlsEngine
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.core.tls_engine import Engine

Why = tuple[None, bytes]
_AGAIN: Why = (None, b"again")
_WRITE: Why = (None, b"write")
_SESSIONS = 1024
_CLIENTS = 256
"""Client certificates of scripts, each with a file in memory."""


class _Session:
    __slots__ = ("engine", "fd", "key", "left", "name", "unsent")

    def __init__(self, fd: int, engine: Engine, name: str) -> None:
        self.fd = fd
        self.engine = engine
        self.name = name
        self.unsent = b""

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


class TlsApi:
    """configs: the TLS settings by the number that a location's settings carry (lua_ssl_*)."""

    def __init__(self, configs: Sequence[TlsConfig]) -> None:
        self.configs = configs
        self._open: dict[int, _Session] = {}
        self._files: dict[bytes, int] = {}
        self._saved: dict[int, Any] = {}
        self._handles = itertools.count(1)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = (
            *("tls_open", "tls_handshake", "tls_read", "tls_write", "tls_close", "tls_session"),
        )
        return {name: getattr(self, name) for name in names}

    def tls_open(self, fd: int, config: int, resume: int, name: bytes, verify: int, client: bytes) -> int | Why:
        """Begin a session as client.

        verify: the certificate must be trusted, and for `name` when one is given. client: the PEM text of our own key
        and certificates, b"" for those of the settings.
        """
        settings = self.configs[config]
        host = name.decode("latin-1") or None
        settings = replace(
            settings, verify_mode="peer" if verify else "none", verify_hostname=bool(verify and host is not None)
        )
        try:
            if client:
                settings = replace(settings, cert=self._file_of(client), key=None)
            context = settings.context()
            engine = TlsEngine(context, server_side=False, server_hostname=host, resume=self._saved.get(resume))
        except (ConfError, ValueError, OSError) as error:
            return None, str(error).encode("utf-8", "surrogateescape")
        handle = next(self._handles)
        self._open[handle] = _Session(fd, engine, host or "peer")
        return handle

    def _file_of(self, pem: bytes) -> str:
        """A file in memory with this text, the same one each time: contexts are kept by the names of their files."""
        fd = self._files.get(pem)
        if fd is None:
            if len(self._files) >= _CLIENTS:
                raise ValueError("too many different client certificates")
            fd = self._files[pem] = os.memfd_create("client-certificate")
            os.write(fd, pem)
        return f"/proc/self/fd/{fd}"

    def adopt(self, fd: int, engine: Engine) -> int:
        """A session that is open already (that of the client)."""
        handle = next(self._handles)
        self._open[handle] = _Session(fd, engine, "client")
        return handle

    def tls_handshake(self, handle: int) -> int | tuple[int, bytes]:
        """1: done; 2: wants to read; 3: wants to write; 0 and why: failed."""
        session = self._open[handle]
        try:
            while True:
                done = session.engine.handshake()
                if not session.push():
                    return 3
                if done:
                    return 1
                if not session.pull():
                    return 2
        except (ssl.SSLError, OSError) as error:
            session.unsent += session.engine.outgoing()
            failed = handshake_error(error, session.name)
            prefix = ""
            if isinstance(error, ssl.SSLCertVerificationError):
                # OpenResty's words: "20: unable to get local issuer certificate", "certificate host mismatch"
                mismatch = error.verify_code in {62, 64}
                prefix = "certificate host mismatch: " if mismatch else f"{error.verify_code}: {error.verify_message}: "
            else:
                prefix = "handshake failed: "
            return 0, (prefix + failed.message).encode("utf-8", "surrogateescape")

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

    def tls_session(self, handle: int) -> int | None:
        """A number that stands for the session, to be resumed by a later handshake."""
        found = self._open[handle].engine.current_session
        if found is None:
            return None
        number = next(self._handles)
        self._saved[number] = found
        while len(self._saved) > _SESSIONS:
            del self._saved[next(iter(self._saved))]
        return number

    def tls_close(self, handle: int) -> None:
        """Say goodbye if there is room, and forget the session; the descriptor is Lua's to close."""
        session = self._open.pop(handle, None)
        if session is None:
            return
        try:
            session.engine.say_goodbye()
            session.push()
        except (OSError, ssl.SSLError, ValueError):
            return
