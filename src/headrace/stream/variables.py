"""The variables of a session: getters by name.

https://nginx.org/en/docs/stream/ngx_stream_core_module.html#variables, and those of the stream modules for logs,
upstreams, TLS and preread.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable
from typing import Any, Final

from headrace.core.tls import TlsStream
from headrace.edge import names
from headrace.edge.connection import client_port, client_text, local_port, local_text
from headrace.edge.corevars import HOSTNAME
from headrace.edge.times import iso8601, local_time
from headrace.edge.tlsvars import tls_variables

Getter = Callable[[Any], bytes | None]
"""The sessions of this room stand where edge's variables have requests."""


def _binary(session: Any) -> bytes:
    try:
        return ipaddress.ip_address(client_text(session).decode().partition("%")[0]).packed
    except ValueError:
        return b""


def _server_port(session: Any) -> bytes | None:
    port = local_port(session)
    return b"%d" % port if port else None


def _proxied(session: Any, part: str) -> bytes | None:
    header = session.proxied
    value = None if header is None else getattr(header, part)
    return (b"%d" % value if isinstance(value, int) else value) if value else None


def _seconds(value: float | None) -> bytes:
    return b"-" if value is None else b"%.3f" % value


def _of_tries(show: Callable[[Any], bytes]) -> Getter:
    def get(session: Any) -> bytes | None:
        return b", ".join(show(one) for one in session.tries) or None

    return get


def _hello(name: str) -> Getter:
    return lambda session: None if session.hello is None else getattr(session.hello, name)


CORE: Final[dict[str, Getter]] = {
    "remote_addr": client_text,
    "remote_port": client_port,
    "binary_remote_addr": _binary,
    "server_addr": local_text,
    "server_port": _server_port,
    "protocol": lambda s: b"TCP" if s.datagrams is None else b"UDP",
    "status": lambda s: b"%03d" % s.status if s.status else None,
    "bytes_sent": lambda s: b"%d" % s.sent,
    "bytes_received": lambda s: b"%d" % s.received,
    "session_time": lambda s: b"%.3f" % (s.clock.now() - s.start),
    "connection": lambda s: b"%d" % s.serial,
    "server_name": lambda s: s.server.name,
    "hostname": lambda _: HOSTNAME.encode(),
    "nginx_version": lambda _: names.VERSION.encode(),
    "pid": lambda _: b"%d" % os.getpid(),
    "msec": lambda _: b"%.3f" % time.time(),
    "time_local": lambda _: local_time(),
    "time_iso8601": lambda _: iso8601(),
    "proxy_protocol_addr": lambda s: _proxied(s, "source"),
    "proxy_protocol_port": lambda s: _proxied(s, "source_port"),
    "proxy_protocol_server_addr": lambda s: _proxied(s, "destination"),
    "proxy_protocol_server_port": lambda s: _proxied(s, "destination_port"),
    **tls_variables(lambda s: s.stream if isinstance(s.stream, TlsStream) else None),
    "ssl_preread_server_name": _hello("server_name"),
    "ssl_preread_protocol": _hello("protocol"),
    "ssl_preread_alpn_protocols": _hello("alpn"),
    "upstream_addr": _of_tries(lambda one: one.name),
    "upstream_bytes_sent": _of_tries(lambda one: b"%d" % one.sent),
    "upstream_bytes_received": _of_tries(lambda one: b"%d" % one.received),
    "upstream_connect_time": _of_tries(lambda one: _seconds(one.connected)),
    "upstream_first_byte_time": _of_tries(lambda one: _seconds(one.first_byte)),
    "upstream_session_time": _of_tries(lambda one: _seconds(one.ended)),
}


def _tlv(name: str) -> Getter:
    key = name.encode("latin-1")
    return lambda session: None if session.proxied is None else session.proxied.tlv(key)


PREFIXES: Final[tuple[tuple[str, Callable[[str], Getter]], ...]] = (("proxy_protocol_tlv_", _tlv),)
