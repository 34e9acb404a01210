"""The body of an answer on its way to the client, with bounded memory.

Unbuffered, a piece is read when the client has taken the one before. Buffered, the upstream is read as fast as it
sends: past proxy_buffers the rest goes to a temporary file of at most proxy_max_temp_file_size, which another task
hands to the client at its own pace; the upstream connection is free as soon as the answer is read.
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.upstream.reply import BadReply, Failed
from headrace.edge.upstream.spool import Spool
from headrace.edge.values import evaluate
from headrace.errors import ConnectionFailed, Error

if TYPE_CHECKING:
    from headrace.edge.upstream.answer import Orders
    from headrace.edge.upstream.visit import Visit

READING: Final = "reading upstream"
PIECE: Final = 1 << 20
FILTERED_PIECE: Final = 65536


class Relay:
    """One body. deaf: the client is gone, the upstream is still read to its end."""

    def __init__(self, visit: Visit, orders: Orders) -> None:
        self.visit = visit
        self.request = visit.request
        settings = self.settings = visit.settings
        self.buffered = settings.buffering if orders.buffering is None else orders.buffering
        rate = settings.limit_rate
        limits = [int(text) for text in (evaluate(rate, visit.request) if rate is not None else b"",) if text.isdigit()]
        self.rate = min((limit for limit in (*limits, orders.rate) if limit), default=0)
        self.deaf = False
        self.inner = visit.request.parent is not None
        self.spool: Spool | None = None
        self.pump: asyncio.Task[None] | None = None
        self.moved = asyncio.Event()
        self.store = visit.storage
        self.began = visit.clock.now()
        self.read = 0

    async def run(self, pieces: list[bytes]) -> int | None:
        """Relay to the end; returns what a content handler returns."""
        try:
            return await self._run(pieces)
        finally:
            if self.pump is not None:
                self.pump.cancel()
            if self.store is not None:
                self.store.drop()

    async def _run(self, pieces: list[bytes]) -> int | None:
        visit, request, reader = self.visit, self.request, self.visit.reader
        request.send_header()
        if visit.behind:
            request.header_only = True
        if request.header_only and not self.store:
            visit.done()
            return phases.OK
        if not self.buffered and not self.inner and not pieces:
            request.push()  # the client may act on the head before it hears more
            request.exchange.flush()
        while True:
            for piece in pieces:
                await self._take(piece)
            if reader.done:
                failed = False
                break
            if self.rate:
                await self._pace()
            more = await self._more()
            if more is None:
                failed = True
                break
            pieces = more
        visit.done()
        if self.pump is not None:
            await self.pump
        if failed:
            if not self.deaf:
                with contextlib.suppress(Error):
                    await request.flush()
            return phases.ERROR
        if self.store is not None:
            self.store.keep()
        return 499 if self.deaf else phases.OK

    async def _more(self) -> list[bytes] | None:
        """The next pieces; None when the upstream fails, which is logged."""
        visit, reader = self.visit, self.visit.reader
        pieces: list[bytes] | None = None
        try:
            data = await visit.read(READING)
            pieces = reader.feed(data) if data else reader.eof()
            visit.trial.received += len(data)
        except BadReply as error:
            visit.log(log.ERR, f"{error.message} while {READING}")
        except Failed as error:
            visit.log(log.ERR, error.message)
        for level, text in reader.notes:
            visit.log(level, text)
        reader.notes.clear()
        return pieces

    async def _pace(self) -> None:
        """Wait until so much may have been read."""
        ahead = self.read / self.rate - (self.visit.clock.now() - self.began)
        if ahead > 0:
            await self.visit.clock.sleep(ahead)

    async def _take(self, piece: bytes) -> None:
        """One piece of the body: to the client, or to the file."""
        self.read += len(piece)
        self.visit.trial.length += len(piece)
        if self.store is not None:
            self.store.write(piece)
        if self.deaf:
            return
        if self.pump is not None and not self.pump.done():
            assert self.spool is not None
            while self.spool.size >= self.settings.max_temp and not self.pump.done():
                self.moved.clear()
                await self.moved.wait()
            if not self.pump.done():
                self.spool.write(piece)
                return
        request = self.request
        request.output(piece)
        if self.inner:
            return
        if not self.buffered:
            await self._flush()
            return
        if not self.visit.reader.done:
            request.push()
        if request.exchange.conn.stream.chain.length <= self.settings.buffers_total:
            return
        if not self.settings.max_temp:
            await self._flush()
        else:
            self._begin_spool()

    async def _flush(self) -> None:
        try:
            await self.request.flush()
        except ConnectionFailed:
            if not self.visit.patient:
                raise
            self.deaf = True

    def _begin_spool(self) -> None:
        visit, request = self.visit, self.request
        if self.spool is None:
            self.spool = Spool(self.settings.temp_path)
            request.on_cleanup(self.spool.close)
            visit.log(
                log.WARN,
                b"an upstream response is buffered to a temporary file %b while reading upstream" % self.spool.name,
            )
        self.pump = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        """Hand the file to the client, until the client has caught up with the upstream."""
        spool, request = self.spool, self.request
        assert spool is not None
        try:
            while True:
                await request.flush()
                if spool.given == spool.size:
                    spool.reset()
                    return
                if request.body_filters:
                    request.output(spool.read(FILTERED_PIECE))
                else:
                    at, length = spool.give(PIECE)
                    request.output_file(spool.fd, at, length)
                self.moved.set()
        except ConnectionFailed as error:
            self.deaf = True
            if not self.visit.patient:
                self.visit.interrupt(error)
        except OSError as error:
            self.visit.log(log.CRIT, f"pread() failed ({error.errno}: {error.strerror}) while sending to client")
            self.visit.interrupt(ConnectionFailed("temporary file failed"))
        finally:
            self.moved.set()
