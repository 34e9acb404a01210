"""TLS of a virtual server: its context, what it wants of clients, and what is decided for each connection.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html. A server of http and one of stream have the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.certificates import KeyPair, load_pair
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.core.openssl.connection import Connection
    from headrace.core.openssl.context import Context
    from headrace.edge.ocsp import ClientCheck
    from headrace.edge.tlsport import Handshake

OPTIONAL_ERRORS: Final = frozenset({18, 19, 20, 21})
"""What `optional_no_ca` overlooks: certificates of which nobody knows the issuer (X509_V_ERR_...)."""


@dataclass(slots=True)
class LateCertificate:
    """A certificate and key of which a variable says where they are (or what: `data:`). folder: of relative paths."""

    cert: Value
    key: Value
    folder: str
    passphrases: tuple[bytes, ...] = field(default=(), repr=False)

    def sources(self, request: Any) -> tuple[str, str, tuple[bytes, ...]] | None:
        """Where they are for a connection, with the passphrases; None when the variable is empty."""
        cert, key = (self._source(value, request) for value in (self.cert, self.key))
        return (cert, key, self.passphrases) if cert else None

    def load(self, request: Any) -> KeyPair:
        """Read them for a connection. Raises ConfError."""
        cert, key = (self._source(value, request) for value in (self.cert, self.key))
        return load_pair(cert, key, self.passphrases)

    def _source(self, value: Value, request: Any) -> str:
        return located(evaluate(value, request).decode("utf-8", "surrogateescape"), self.folder)


def located(source: str, folder: str) -> str:
    """A file beside the configuration; what is not a path is left alone."""
    return source if not source or source.startswith(("/", "data:", "engine:")) else f"{folder}/{source}"


Step = Callable[["Handshake"], Awaitable[None] | None]


@dataclass
class ServerTls:
    """See the module.

    context: None: the server has no certificate, and connections keep the default server's. verify: "off", "on",
    "optional", "optional_no_ca". late: certificates that depend on the connection. ocsp: how
    clients' certificates are asked about. client_hello, certificate,
    session_fetch, session_store: what scripts do in a handshake; see core.openssl.hooks, which calls them with the
    connection's Handshake (session_fetch with the id too, session_store with the id and the DER).
    """

    context: Context | None = None
    verify: str = "off"
    reject: bool = False
    late: tuple[LateCertificate, ...] = ()
    ocsp: ClientCheck | None = None
    client_hello: Step | None = None
    certificate: Step | None = None
    session_fetch: Callable[[Handshake, bytes], Awaitable[bytes | None] | bytes | None] | None = None
    session_store: Callable[[Handshake, bytes, bytes], None] | None = None

    @property
    def certified(self) -> bool:
        """Whether the server has a certificate."""
        return bool(self.late) or (self.context is not None and bool(self.context.pairs))

    @property
    def checks(self) -> bool:
        """Whether requests are looked at for the client's certificate."""
        return self.verify != "off"

    def objection(self, engine: Connection) -> tuple[int, str] | None:
        """What is wrong with the client's certificate: nginx's status (495, 496) and what to log."""
        verify = self.verify
        if verify == "off":
            return None
        code = engine.verify_code
        if code and not (verify == "optional_no_ca" and code in OPTIONAL_ERRORS):
            return 495, f"client SSL certificate verify error: ({code}:{engine.verify_message})"
        if engine.revocation:
            return 495, f"client SSL certificate verify error: {engine.revocation}"
        if verify == "on" and engine.peer is None:
            return 496, "client sent no required SSL certificate"
        return None
