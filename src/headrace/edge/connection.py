"""What variables and logs ask about a connection: addresses as text, and whether it is TLS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.core.tls import TlsStream

if TYPE_CHECKING:
    from headrace.core.http1.server import HttpConnection
    from headrace.core.stream import Address
    from headrace.edge.request import Request


def peer_text(conn: HttpConnection) -> bytes:
    """The client's address as logs write it; `unix:` for a unix socket."""
    peer = conn.stream.peer
    return str(peer[0]).encode() if isinstance(peer, tuple) and peer else b"unix:"


def peer_port(conn: HttpConnection) -> bytes | None:
    """The client's port, None for a unix socket."""
    peer = conn.stream.peer
    return b"%d" % peer[1] if isinstance(peer, tuple) and len(peer) > 1 else None


def client_text(request: Request) -> bytes:
    """The client's address as logs write it: the one that realip found, or the peer's."""
    client = request.client
    return peer_text(request.exchange.conn) if client is None else client[0]


def client_port(request: Request) -> bytes | None:
    """The client's port; None for a unix socket, and where realip found an address without one."""
    client = request.client
    return peer_port(request.exchange.conn) if client is None else client[1]


def local_address(conn: HttpConnection) -> Address:
    """Our address of the connection; the listener's when the socket is closed already."""
    try:
        return conn.stream.local
    except OSError:
        found: Address = conn.info.spec.address
        return found


def local_text(conn: HttpConnection) -> bytes:
    """Our address as `$server_addr` gives it."""
    local = local_address(conn)
    return str(local[0]).encode() if isinstance(local, tuple) else b"unix:" + os.fsencode(local)


def local_port(conn: HttpConnection) -> int:
    """Our port, 0 for a unix socket."""
    local = local_address(conn)
    return int(local[1]) if isinstance(local, tuple) and len(local) > 1 else 0


def tls_of(conn: HttpConnection) -> TlsStream | None:
    """The encrypted stream of a connection, that which carries a request of HTTP/2 too; None without encryption."""
    stream = getattr(conn, "carrier", conn).stream
    return stream if isinstance(stream, TlsStream) else None


def is_tls(conn: HttpConnection) -> bool:
    """True when the connection is encrypted."""
    return tls_of(conn) is not None
