"""What TLS knows of a connection, as variables: parameters of the session, and the client's certificate.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html#variables
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.openssl.certificates import Certificate
    from headrace.core.openssl.connection import Connection
    from headrace.core.tls import TlsStream


def _pem(certificate: Certificate) -> bytes:
    return ssl.DER_cert_to_PEM_cert(certificate.der()).rstrip("\n").encode()


_OF_CERTIFICATE: Final[dict[str, Callable[[Certificate], bytes]]] = {
    "ssl_client_s_dn": lambda one: one.subject(),
    "ssl_client_i_dn": lambda one: one.issuer(),
    "ssl_client_s_dn_legacy": lambda one: one.subject(legacy=True),
    "ssl_client_i_dn_legacy": lambda one: one.issuer(legacy=True),
    "ssl_client_serial": lambda one: one.serial(),
    "ssl_client_v_start": lambda one: one.begins(),
    "ssl_client_v_end": lambda one: one.ends(),
    "ssl_client_v_remain": lambda one: b"%d" % one.days_left(time.time()),
    "ssl_client_raw_cert": lambda one: _pem(one) + b"\n",
    "ssl_client_cert": lambda one: _pem(one).replace(b"\n", b"\n\t"),
    "ssl_client_escaped_cert": lambda one: quote(_pem(one) + b"\n", safe="").encode(),
    "ssl_client_fingerprint": lambda one: one.fingerprint(),
}
_TEXTS: Final = {
    "ssl_protocol": "version",
    "ssl_cipher": "cipher",
    "ssl_ciphers": "ciphers",
    "ssl_curve": "curve",
    "ssl_curves": "curves",
    "ssl_server_name": "asked_name",
    "ssl_alpn_protocol": "alpn",
    "ssl_session_id": "session_id",
}


def _verified(engine: Connection) -> bytes:
    if engine.peer is None:
        return b"NONE"
    if engine.verify_code:
        return b"FAILED:" + engine.verify_message.encode()
    status = engine.revocation
    return b"FAILED:" + status.encode() if status else b"SUCCESS"


_OF_ENGINE: Final[dict[str, Callable[[Connection], bytes | None]]] = {
    "ssl_client_verify": _verified,
    "ssl_session_reused": lambda engine: b"r" if engine.session_reused else b".",
    "ssl_early_data": lambda engine: b"1" if engine.early else None,
}


def tls_variables(tls_of: Callable[[Any], TlsStream | None]) -> dict[str, Callable[[Any], bytes | None]]:
    """Getters by name. tls_of: the encrypted stream of a request or a session, None without encryption."""

    def of_engine(show: Callable[[Any], bytes | None]) -> Callable[[Any], bytes | None]:
        def get(request: Any) -> bytes | None:
            stream = tls_of(request)
            return None if stream is None else show(stream.engine)

        return get

    def of_certificate(show: Callable[[Certificate], bytes]) -> Callable[[Any], bytes | None]:
        def get(engine: Any) -> bytes | None:
            certificate = engine.peer
            return show(certificate) if certificate is not None else None

        return of_engine(get)

    def of_text(name: str) -> Callable[[Any], bytes | None]:
        def get(engine: Any) -> bytes | None:
            value: str | None = getattr(engine, name)
            return value.encode("latin-1", "replace") if value else None

        return of_engine(get)

    found = {name: of_engine(show) for name, show in _OF_ENGINE.items()}
    found.update((name, of_text(attribute)) for name, attribute in _TEXTS.items())
    found.update((name, of_certificate(show)) for name, show in _OF_CERTIFICATE.items())
    return found
