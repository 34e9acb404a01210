"""The client's connection for ngx.req.socket: bytes of the body as they come, or the descriptor itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.core.http1.linger import hold_open
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    import socket

    from headrace.core.http1.server import HttpConnection
    from headrace.core.http1.settings import ServerSettings
    from headrace.edge.request import Request
    from headrace.lua.api.tls import TlsApi

Why = tuple[None, bytes]
_PENDING = b"pending request body reading in some other thread"


class _Raw:
    """A connection that was given away. tls: the handle of its session, 0 without."""

    __slots__ = ("conn", "settings", "sock", "tls")

    def __init__(self, sock: socket.socket, tls: int, conn: HttpConnection, settings: ServerSettings) -> None:
        self.sock = sock
        self.tls = tls
        self.conn = conn
        self.settings = settings


class DownstreamApi:
    """requests: live requests by handle. bytes_ready(id, bytes or None, why or None): the VM's entry for the body."""

    def __init__(self, requests: Mapping[int, Request], tls: TlsApi) -> None:
        self.requests = requests
        self.tls = tls
        self.bytes_ready: Callable[[int, bytes | None, bytes | None], None] = lambda *_: None
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._raw: dict[int, _Raw] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = ("body_open", "body_next", "body_stop", "raw_open", "raw_close")
        return {name: getattr(self, name) for name in names}

    # the body

    def body_open(self, request_id: int) -> bytes | None:
        """Take the body from all other readers; returns why that cannot be."""
        request = self.requests[request_id]
        exchange = request.exchange
        if exchange.head.chunked:
            return b"chunked request bodies not supported yet"
        if request.body_read:
            if request.body is not None or request.body_file is not None:
                return b"request body already exists"
            here = exchange.body is None or exchange.body.done
            return b"no body" if here else b"request body discarded"
        if not exchange.head.content_length:
            return b"no body"
        request.body_read = True
        request.body = b""
        if exchange.body is not None:
            exchange.body.invite()
        return None

    def body_next(self, request_id: int) -> bytes | Why | None:
        """Some bytes; None: their arrival will be told; None and why there are none."""
        request = self.requests[request_id]
        body = request.exchange.body
        if body is None:
            return None, b"closed"
        data = body.some()
        if data:
            return data
        if body.done:
            return None, b"closed"
        task = asyncio.get_running_loop().create_task(self._next(request_id, request))
        self._reading[request_id] = task
        return None

    async def _next(self, request_id: int, request: Request) -> None:
        data, why = None, None
        try:
            data = await request.exchange.next_chunk() or None
            why = None if data else b"closed"
        except HttpError as error:
            why = b"timeout" if error.status == 408 else b"client aborted"
        except ConnectionFailed:
            why = b"client aborted"
        self._reading.pop(request_id, None)
        self.bytes_ready(request_id, data, why)

    def body_stop(self, request_id: int) -> None:
        """Nobody waits for bytes any more; those that come are kept for a later read."""
        task = self._reading.pop(request_id, None)
        if task is not None:
            task.cancel()

    # the connection

    def raw_open(self, request_id: int) -> int | Why | tuple[int, int, bytes]:
        """The descriptor, the handle of its TLS session or 0, and what the client has sent already.

        0: not within the call that began the handler. None and why it cannot be had.
        """
        request = self.requests[request_id]
        exchange = request.exchange
        conn = exchange.conn
        body = exchange.body
        if body is not None and request.body_read and not body.done:
            return None, _PENDING
        if conn.serving:
            return 0
        if conn.stream.closed or exchange.finished:
            return None, b"client aborted"
        if request.header_sent:
            request.push()
        if conn.stream.chain.length:
            return None, b"pending data to write"
        # The script writes from now on: nothing of ours may follow, neither a header nor the end of a body.
        request.header_sent = request.started = True
        request.body_filters = ()
        exchange.headers_sent = True
        begun = b"" if body is None or request.body_read else body.raw()
        stream = exchange.upgrade()
        begun += exchange.take_buffered()
        handle = 0
        if isinstance(stream, TlsStream):
            begun += stream.take_decrypted()
            sock, engine = stream.detach_session()
            handle = self.tls.adopt(sock.fileno(), engine)
        else:
            sock = stream.detach()
        self._raw[request_id] = _Raw(sock, handle, conn, exchange.settings)
        return sock.fileno(), handle, begun

    def raw_close(self, request_id: int) -> None:
        """Close the connection; a client that still sends is read on for a while, so that it gets the end of ours."""
        raw = self._raw.pop(request_id)
        if raw.tls:
            self.tls.tls_close(raw.tls)
        if not raw.settings.lingering_close:
            raw.sock.close()
            return
        loop = asyncio.get_running_loop()
        stream = Stream(raw.sock, loop, raw.conn.clock, peer=raw.conn.stream.peer)
        hold_open(stream, raw.conn, raw.settings, raw.conn.clock)
