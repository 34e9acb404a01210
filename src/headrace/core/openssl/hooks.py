"""What a server may be asked in the middle of a handshake.

A port gives a `Hooks` to each connection that it accepts. Every hook is optional, gets the connection (with
`connection.data`, whatever the port has put there), and runs outside of OpenSSL's callbacks: it may call anything.
Where the answer may be an awaitable, the handshake waits for it and then goes on:

1. client_hello: before version, server name and certificate are looked at. `connection.hello` has what the client
   said; `connection.set_protocols` restricts the versions.
2. session_get: a client wants to resume the session with this id, which OpenSSL itself does not know. The answer is
   its DER (i2d_SSL_SESSION), or None. It is asked before the handshake begins, by what the ClientHello says.
3. server_name: chooses the context by the name that the client asked for (None: it named none). It must answer at
   once: it is called within OpenSSL. `Refused` ends the handshake with an alert.
4. certificate: version and cipher are known, the certificate is to be chosen: `connection.clear_certificates`,
   `use_certificates`, `use_key`, `set_ocsp_response`, `verify_client`.
5. session_new: a session was made: its id and its DER, to be kept.

What a hook raises ends the handshake with an alert; `TlsStream.handshake` raises it again, as the cause of a
ConnectionFailed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from headrace.core.openssl.connection import Connection
    from headrace.core.openssl.context import Context

UNRECOGNIZED_NAME: Final = 112
ACCESS_DENIED: Final = 49
INTERNAL_ERROR: Final = 80
HANDSHAKE_FAILURE: Final = 40


class Refused(Exception):
    """A hook does not want this handshake. alert: what to tell the client (RFC 8446 6)."""

    def __init__(self, message: str, alert: int = HANDSHAKE_FAILURE) -> None:
        super().__init__(message)
        self.alert = alert


@dataclass(slots=True)
class Hooks:
    """See the module. alpn: the protocols to offer, in place of those of the context."""

    alpn: tuple[str, ...] | None = None
    client_hello: Callable[[Connection], Awaitable[None] | None] | None = None
    session_get: Callable[[Connection, bytes], Awaitable[bytes | None] | bytes | None] | None = None
    server_name: Callable[[Connection, str | None], Context | None] | None = None
    certificate: Callable[[Connection], Awaitable[None] | None] | None = None
    session_new: Callable[[Connection, bytes, bytes], None] | None = None


class Stapler(Protocol):
    """What has the OCSP responses of a context's certificates."""

    def response(self, connection: Connection, certificate: int) -> bytes | None:
        """The response to staple on a connection for a certificate (its X509), None when there is none yet."""
        ...


NO_HOOKS: Final = Hooks()
