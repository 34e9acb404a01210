"""What one side of a connection is told; a value, from which `context.Context` is made.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html documents what the fields stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

VERSIONS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
NO_VERSION: Final = dict(zip(VERSIONS[1:], (1 << 25, 1 << 26, 1 << 28, 1 << 27, 1 << 29), strict=True))
"""SSL_OP_NO_... by the version that each turns off."""
CIPHERS: Final = "HIGH:!aNULL:!MD5"


@dataclass(frozen=True)
class Cache:
    """Where a server keeps sessions.

    mode: "none" (clients may think so), "off", or "on" with one or both of the others. builtin: how many sessions each
    worker keeps (0: OpenSSL's default of 20,480). zone, size: the memory all share, in bytes.
    """

    mode: str = "none"
    builtin: int | None = None
    zone: str | None = None
    size: int = 0


@dataclass(frozen=True)
class Stapling:
    """OCSP responses that a server sends of its own accord (RFC 6066 8).

    file: a response in DER that is sent as it is. responder: asked instead of the one in the certificate. verify:
    responses must be good by the trusted certificates.
    """

    file: str | None = None
    responder: str | None = None
    verify: bool = False


@dataclass(frozen=True)
class Settings:
    """Files are paths, or for certificates and keys `data:` and a PEM text.

    pairs: (certificates, key) of each kind of key. protocols: of `VERSIONS`. client_ca: whose certificates clients are
    asked for, named to them; trusted: trusted beside those, not named. verify: "off", "on", "optional",
    "optional_no_ca"; a client (in the sense of TLS) knows "off" and "on". timeout: seconds of a session.
    commands: for SSL_CONF_cmd; folder: of relative paths in them. record_size: bytes of plaintext at most. early_data:
    servers take 0-RTT requests. ticket_keys: files, the first one makes new tickets.
    """

    is_server: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = CIPHERS
    prefer_server_ciphers: bool = False
    curves: str = "auto"
    dhparam: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    passphrases: tuple[bytes, ...] = field(default=(), repr=False)
    client_ca: str | None = None
    trusted: str | None = None
    crl: str | None = None
    verify: str = "off"
    verify_depth: int = 1
    alpn: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    cache: Cache = Cache()
    timeout: float = 300.0
    tickets: bool = True
    ticket_keys: tuple[str, ...] = ()
    early_data: bool = False
    stapling: Stapling | None = None
    record_size: int = 16384
    reuse_sessions: bool = False
