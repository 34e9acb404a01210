"""What TLS knows of a connection, as variables: the name that was asked for, and the client's certificate.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html#variables. A certificate that does not verify ends the
handshake here, so a client has a good one ($ssl_client_verify SUCCESS) or none.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.tls import TlsStream

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "surname": "SN",
    "givenName": "GN",
    "userId": "UID",
}
_SPECIAL: Final = frozenset('",+<>;\\')


def _escaped(text: str) -> str:
    """RFC 2253 2.4."""
    out = "".join("\\" + char if char in _SPECIAL else char for char in text)
    if out[:1] in (" ", "#"):
        out = "\\" + out
    return out[:-1] + "\\ " if out.endswith(" ") and len(out) > 1 else out


def dn(name: Any) -> bytes:
    """A distinguished name as RFC 2253 writes it: the last part first."""
    parts = ["+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in rdn) for rdn in reversed(name)]
    return ",".join(parts).encode()


def legacy_dn(name: Any) -> bytes:
    """A distinguished name as OpenSSL's one-line form writes it."""
    return "".join(f"/{_SHORT.get(key, key)}={value}" for rdn in name for key, value in rdn).encode()


def _pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).rstrip("\n").encode()


def _remaining(info: dict[str, Any]) -> bytes:
    left = ssl.cert_time_to_seconds(info["notAfter"]) - time.time()
    return b"%d" % max(int(left // 86400), 0)


_OF_INFO: Final[dict[str, Callable[[dict[str, Any]], bytes]]] = {
    "ssl_client_s_dn": lambda info: dn(info["subject"]),
    "ssl_client_i_dn": lambda info: dn(info["issuer"]),
    "ssl_client_s_dn_legacy": lambda info: legacy_dn(info["subject"]),
    "ssl_client_i_dn_legacy": lambda info: legacy_dn(info["issuer"]),
    "ssl_client_serial": lambda info: str(info["serialNumber"]).encode(),
    "ssl_client_v_start": lambda info: str(info["notBefore"]).encode(),
    "ssl_client_v_end": lambda info: str(info["notAfter"]).encode(),
    "ssl_client_v_remain": _remaining,
}
_OF_DER: Final[dict[str, Callable[[bytes], bytes]]] = {
    "ssl_client_raw_cert": lambda der: _pem(der) + b"\n",
    "ssl_client_cert": lambda der: _pem(der).replace(b"\n", b"\n\t"),
    "ssl_client_escaped_cert": lambda der: quote(_pem(der) + b"\n", safe="").encode(),
    "ssl_client_fingerprint": lambda der: hashlib.sha1(der, usedforsecurity=False).hexdigest().encode(),
}


def tls_variables(tls_of: Callable[[Any], TlsStream | None]) -> dict[str, Callable[[Any], bytes | None]]:
    """Getters by name. tls_of: the encrypted stream of a request or a session, None without encryption."""

    def of_info(show: Callable[[dict[str, Any]], bytes]) -> Callable[[Any], bytes | None]:
        def get(request: Any) -> bytes | None:
            stream = tls_of(request)
            info = None if stream is None else stream.peer_certificate()
            return show(info) if info else None

        return get

    def of_der(show: Callable[[bytes], bytes]) -> Callable[[Any], bytes | None]:
        def get(request: Any) -> bytes | None:
            stream = tls_of(request)
            der = None if stream is None else stream.peer_der()
            return show(der) if der else None

        return get

    def verified(request: Any) -> bytes | None:
        stream = tls_of(request)
        return None if stream is None else b"SUCCESS" if stream.peer_der() else b"NONE"

    def server_name(request: Any) -> bytes | None:
        stream = tls_of(request)
        return None if stream is None or stream.asked_name is None else stream.asked_name.encode()

    def of_text(name: str) -> Callable[[Any], bytes | None]:
        def get(request: Any) -> bytes | None:
            stream = tls_of(request)
            value: str | None = None if stream is None else getattr(stream, name)
            return value.encode() if value else None

        return get

    found: dict[str, Callable[[Any], bytes | None]] = {
        "ssl_client_verify": verified,
        "ssl_server_name": server_name,
        "ssl_alpn_protocol": of_text("alpn"),
        "ssl_session_id": of_text("session_id"),
    }
    found.update((name, of_info(show)) for name, show in _OF_INFO.items())
    found.update((name, of_der(show)) for name, show in _OF_DER.items())
    return found
