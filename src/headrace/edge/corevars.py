"""The variables of the http core: getters by name.

https://nginx.org/en/docs/http/ngx_http_core_module.html#variables

Times are in seconds with milliseconds; sizes in bytes.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.edge import names
from headrace.edge.connection import client_port, client_text, is_tls, local_port, local_text, tls_of
from headrace.edge.pace import bytes_of, pace
from headrace.edge.times import iso8601, local_time
from headrace.edge.tlsvars import tls_variables
from headrace.edge.uri import host_only

if TYPE_CHECKING:
    from headrace.edge.request import Request

Getter = Callable[["Request"], bytes | None]

HOSTNAME: Final = socket.gethostname().lower()


def _request_line(request: Request) -> bytes | None:
    return request.exchange.head.request_line or None


def _args(request: Request) -> bytes | None:
    return request.args or None


def _host(request: Request) -> bytes | None:
    if request.headers_in_changed:
        return host_only(request.header_in(b"host") or b"") or request.server.name or None
    return host_only(request.exchange.head.host) or request.server.name or None


def _binary_remote_addr(request: Request) -> bytes:
    try:
        return ipaddress.ip_address(client_text(request).decode()).packed
    except ValueError:
        return b""


def _server_port(request: Request) -> bytes | None:
    port = local_port(request.exchange.conn)
    return b"%d" % port if port else None


def _protocol(request: Request) -> bytes | None:
    return {11: b"HTTP/1.1", 10: b"HTTP/1.0", 20: b"HTTP/2.0"}.get(request.exchange.head.version)


def _status(request: Request) -> bytes:
    return b"%03d" % (request.err_status or request.status)


def _body_bytes_sent(request: Request) -> bytes:
    sent = request.exchange.bytes_sent
    return b"%d" % (sent if request.exchange.head.version == 9 else max(sent - request.head_size, 0))


def _request_time(request: Request) -> bytes:
    return b"%.3f" % max(request.elapsed(), 0.0)


def _request_length(request: Request) -> bytes:
    return b"%d" % request.received()


def _request_id(request: Request) -> bytes:
    slot = request.get_slot(b"request_id")
    if slot is None:
        slot = os.urandom(16).hex().encode()
        request.set_slot(b"request_id", slot)
    return slot


def _document_root(request: Request) -> bytes:
    return request.location.root_of(request)


def _realpath_root(request: Request) -> bytes:
    return os.path.realpath(request.location.root_of(request))


def _request_filename(request: Request) -> bytes:
    return request.location.path_of(request)


def _content_length(request: Request) -> bytes | None:
    return request.header_in(b"content-length")


def _request_body(request: Request) -> bytes | None:
    return request.body or None


def _request_body_file(request: Request) -> bytes | None:
    return os.fsencode(request.body_file) if request.body_file else None


def claimed_user(request: Request) -> bytes | None:
    """The user of Basic authentication as the client claims (RFC 7617); None without one."""
    header = request.header_in(b"authorization")
    if header is None or header[:6].lower() != b"basic ":
        return None
    try:
        user, colon, _ = base64.b64decode(header[6:].strip()).partition(b":")
    except ValueError:
        return None
    return user if colon else None


def _sent_content_length(request: Request) -> bytes | None:
    return None if request.content_length is None else b"%d" % request.content_length


def _http2(request: Request) -> bytes:
    conn = request.exchange.conn
    return b"" if request.exchange.head.version != 20 else b"h2" if is_tls(conn) else b"h2c"


def _connection_time(request: Request) -> bytes:
    conn: Any = request.exchange.conn
    now = conn.clock.now()
    return b"%.3f" % (now - conn.info.gateway.connections.get(getattr(conn, "carrier", conn), now))


def _sent_connection(request: Request) -> bytes:
    return b"keep-alive" if request.exchange.keep_alive else b"close"


def _method(request: Request) -> bytes:
    """The client's method, within a subrequest too."""
    return request.main.method


CORE: Final[dict[str, Getter]] = {
    "args": _args,
    "query_string": _args,
    "is_args": lambda r: b"?" if r.args else b"",
    "uri": lambda r: r.uri,
    "document_uri": lambda r: r.uri,
    "request_uri": lambda r: r.exchange.head.target if r.uri else None,
    "request": _request_line,
    "request_method": _method,
    "limit_rate": lambda r: r.get_slot(b"limit_rate") or b"0",
    "request_length": _request_length,
    "request_time": _request_time,
    "request_id": _request_id,
    "request_body": _request_body,
    "request_body_file": _request_body_file,
    "request_filename": _request_filename,
    "request_completion": lambda r: b"OK" if r.finished and not r.abandoned and not r.exchange.aborted else b"",
    "document_root": _document_root,
    "realpath_root": _realpath_root,
    "host": _host,
    "hostname": lambda _: HOSTNAME.encode(),
    "nginx_version": lambda _: names.VERSION.encode(),
    "pid": lambda _: b"%d" % os.getpid(),
    "remote_addr": client_text,
    "binary_remote_addr": _binary_remote_addr,
    "remote_port": client_port,
    "remote_user": claimed_user,
    "server_addr": lambda r: local_text(r.exchange.conn),
    "server_port": _server_port,
    "server_name": lambda r: r.server.name,
    "server_protocol": _protocol,
    "scheme": lambda r: b"https" if is_tls(r.exchange.conn) else b"http",
    "https": lambda r: b"on" if is_tls(r.exchange.conn) else b"",
    "proxy_protocol_addr": lambda r: _proxied(r, "source"),
    "proxy_protocol_port": lambda r: _proxied(r, "source_port"),
    "proxy_protocol_server_addr": lambda r: _proxied(r, "destination"),
    "proxy_protocol_server_port": lambda r: _proxied(r, "destination_port"),
    "http2": _http2,
    **tls_variables(lambda r: tls_of(r.exchange.conn)),
    "status": _status,
    "bytes_sent": lambda r: b"%d" % r.exchange.bytes_sent,
    "body_bytes_sent": _body_bytes_sent,
    "connection": lambda r: b"%d" % r.exchange.conn.serial,
    "pipe": lambda r: b"p" if r.exchange.conn.pipelined == r.exchange.conn.requests else b".",
    "connection_time": _connection_time,
    "connection_requests": lambda r: b"%d" % r.exchange.conn.requests,
    "content_length": _content_length,
    "content_type": lambda r: r.header_in(b"content-type"),
    "msec": lambda _: b"%.3f" % time.time(),
    "time_local": lambda _: local_time(),
    "time_iso8601": lambda _: iso8601(),
    "sent_http_content_type": lambda r: r.content_type or None,
    "sent_http_content_length": _sent_content_length,
    "sent_http_location": lambda r: r.location_out or r.headers_out.get(b"location"),
    "sent_http_transfer_encoding": lambda r: b"chunked" if r.chunked else None,
    "sent_http_connection": _sent_connection,
}


def _arg(name: str) -> Getter:
    key = name.encode("latin-1")

    def get(request: Request) -> bytes | None:
        for piece in request.args.split(b"&"):
            found, equals, value = piece.partition(b"=")
            if equals and found.lower() == key:
                return value
        return None

    return get


def _http(name: str) -> Getter:
    spelt = name.encode("latin-1")
    key = spelt.replace(b"_", b"-")

    def get(request: Request) -> bytes | None:
        if key in _JOINED:
            values = [value for field, value in request.headers_in() if field.lower() == key]
            return _JOINED[key].join(values) if values else None
        value = request.header_in(key)
        return request.header_in(spelt) if value is None and spelt != key else value

    return get


_JOINED: Final = {b"cookie": b"; ", b"x-forwarded-for": b", "}


def _cookie(name: str) -> Getter:
    key = name.encode("latin-1")

    def get(request: Request) -> bytes | None:
        if not request.may_have(b"cookie"):
            return None
        for field, cookies in request.headers_in():
            if field.lower() != b"cookie":
                continue
            for piece in cookies.split(b";"):
                found, equals, value = piece.strip().partition(b"=")
                if equals and found.lower() == key:
                    return value
        return None

    return get


def _sent_http(name: str) -> Getter:
    key = name.replace("_", "-").encode("latin-1")

    def get(request: Request) -> bytes | None:
        values = request.headers_out.get_all(key)
        return b", ".join(values) if values else None

    return get


def _tlv(name: str) -> Getter:
    key = name.encode("latin-1")

    def get(request: Request) -> bytes | None:
        header = request.exchange.conn.proxied
        return None if header is None else header.tlv(key)

    return get


def _proxied(request: Request, part: str) -> bytes | None:
    header = request.exchange.conn.proxied
    value = None if header is None else getattr(header, part)
    return (b"%d" % value if isinstance(value, int) else value) if value else None


def _sent_trailer(name: str) -> Getter:
    key = name.replace("_", "-").encode("latin-1")

    def get(request: Request) -> bytes | None:
        values = [value for field, value in request.sent_trailers if field.lower() == key]
        return b", ".join(values) if values else None

    return get


PREFIXES: Final[tuple[tuple[str, Callable[[str], Getter]], ...]] = (
    ("arg_", _arg),
    ("http_", _http),
    ("cookie_", _cookie),
    ("sent_http_", _sent_http),
    ("sent_trailer_", _sent_trailer),
    ("proxy_protocol_tlv_", _tlv),
)


def _set_args(request: Request, value: bytes) -> None:
    request.args = value


def _set_rate(request: Request, value: bytes) -> None:
    """`set $limit_rate`: bytes a second for this answer."""
    pace(request, bytes_of(value))
    request.set_slot(b"limit_rate", value)


SETTERS: Final[dict[str, Callable[[Request, bytes], None]]] = {"args": _set_args, "limit_rate": _set_rate}
