"""TLS towards an upstream: what is told to whom, and what is logged when it fails.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_certificate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.core.openssl.context import Peering
from headrace.core.openssl.failure import NotVerified, OpensslError, UnexpectedEof
from headrace.edge.values import evaluate

if TYPE_CHECKING:
    from headrace.core.openssl.context import Context
    from headrace.edge.request import Request
    from headrace.edge.tlsserver import LateCertificate
    from headrace.edge.values import Value
    from headrace.errors import ConnectionFailed


@dataclass(slots=True)
class TlsSettings:
    """TLS towards an upstream: a context, and what may come from variables.

    name: to verify and to send, in place of the host. late: a certificate of ours that a variable names.
    """

    context: Context
    verify: bool = False
    server_name: bool = False
    name: Value | None = None
    late: LateCertificate | None = None


def tls_for(
    tls: TlsSettings, request: Request, host: bytes, chosen: bytes | None = None, group: bytes = b""
) -> Peering:
    """The TLS settings of a connection for this request.

    host: of proxy_pass, for the name; chosen: the name that a script has chosen. group: the name of the upstream.
    """
    name = chosen or (evaluate(tls.name, request) if tls.name is not None else host)
    bare = name.decode("utf-8", "surrogateescape")
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    own = None if tls.late is None else tls.late.sources(request)
    send, verify = bare if tls.server_name else None, bare if tls.verify else None
    return Peering(tls.context, send or None, verify or None, own, group)


def handshake_text(error: ConnectionFailed) -> str | None:
    """A failed handshake in nginx's words; None when the error is another."""
    cause = error.__cause__
    if isinstance(cause, NotVerified):
        if cause.wrong_name is not None:
            return f'upstream SSL certificate does not match "{cause.wrong_name}"'
        return f"upstream SSL certificate verify error: ({cause.verify_code}:{cause.verify_message})"
    if isinstance(cause, UnexpectedEof):
        return "peer closed connection in SSL handshake"
    if isinstance(cause, OpensslError):
        return f"SSL_do_handshake() failed (SSL: {cause.queue})"
    if error.kind == "tls" or "handshake" in error.message:
        return f"SSL_do_handshake() failed (SSL: {error.message})"
    return None
