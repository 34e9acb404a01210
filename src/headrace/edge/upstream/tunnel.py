"""After 101 Switching Protocols: bytes both ways until one side ends (WebSocket and its kind).

Each direction waits until the other side has taken what it read, so a slow side holds the fast one back. The tunnel
ends when nothing has moved either way for the read timeout. https://nginx.org/en/docs/http/websocket.html
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.edge import log, phases
from headrace.errors import ConnectionFailed, Timeout

if TYPE_CHECKING:
    from headrace.core.stream import Stream
    from headrace.edge.upstream.visit import Visit


async def tunnel(visit: Visit) -> int:
    """Hand the client's connection over and relay; returns when one side has ended."""
    request = visit.request
    exchange = request.exchange
    upstream = visit.stream
    assert upstream is not None
    exchange.on_abort = None
    exchange.keep_alive = False
    request.headers_out.set(b"Connection", b"upgrade")
    request.push()
    early = exchange.take_buffered()
    client = exchange.upgrade()
    early += exchange.take_buffered()
    reader: Any = visit.reader
    if early:
        upstream.write(early)
    if reader.extra:
        exchange.bytes_sent += len(reader.extra)
        client.write(reader.extra)
    conn = exchange.conn
    gateway = conn.info.gateway
    gateway.hold(conn)
    try:
        await _Tunnel(visit, client, upstream).run()
    finally:
        client.close()
        gateway.let_go(conn)
    visit.done()
    request.finish()
    return phases.DONE


class _Tunnel:
    def __init__(self, visit: Visit, client: Stream, upstream: Stream) -> None:
        self.visit = visit
        self.client = client
        self.upstream = upstream
        self.moved = visit.clock.now()
        self.received = 0

    async def run(self) -> None:
        """Copy both ways; the first end ends both."""
        up = asyncio.ensure_future(self._copy(self.client, self.upstream))
        down = asyncio.ensure_future(self._copy(self.upstream, self.client))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            results = await asyncio.gather(up, down, return_exceptions=True)
        for result in results:
            if isinstance(result, Timeout):
                self.visit.log(
                    log.ERR, b"upstream timed out (110: Connection timed out) while proxying upgraded connection"
                )
            elif isinstance(result, ConnectionFailed):
                self.visit.log(log.INFO, f"{result.message} while proxying upgraded connection")
            elif isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _copy(self, source: Stream, sink: Stream) -> None:
        visit, down = self.visit, sink is self.client
        wait = visit.settings.read_timeout
        patience = visit.request.location.send_timeout if down else visit.settings.send_timeout
        while True:
            try:
                data = await source.read(65536, wait)
            except Timeout:
                left = self.moved + visit.settings.read_timeout - visit.clock.now()
                if left <= 0.001:
                    raise
                wait = left
                continue
            wait = visit.settings.read_timeout
            self.moved = visit.clock.now()
            if not data:
                return
            if down:
                visit.request.exchange.bytes_sent += len(data)
                visit.trial.received += len(data)
                visit.trial.length += len(data)
            sink.write(data)
            if sink.chain.length:
                await sink.drained(patience)
