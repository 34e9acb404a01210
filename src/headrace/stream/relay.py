"""Bytes of a connection both ways, at the pace of the slower side."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from headrace.core.clock import NEVER, Timed
from headrace.edge import log
from headrace.edge.values import to_bytes
from headrace.errors import ConnectionFailed
from headrace.stream.settings import rate_of

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.stream import Stream
    from headrace.edge.values import Value
    from headrace.stream.session import Session
    from headrace.stream.settings import ProxySettings, Try

_OK = 200


class Relay(Timed):
    """Two pumps and a deadline: proxy_timeout without a byte on either side ends the session."""

    failed = False
    __slots__ = ("clock", "late", "one", "session", "settings", "upstream")

    def __init__(self, session: Session, settings: ProxySettings, upstream: Stream, one: Try) -> None:
        self.due = NEVER
        self.tick = 0
        self.session = session
        self.settings = settings
        self.upstream = upstream
        self.one = one
        self.clock: Clock = session.clock
        self.late = False

    async def run(self) -> int:
        """Until one side ends (both, with proxy_half_close)."""
        session, settings = self.session, self.settings
        self.clock.schedule(self, settings.timeout)
        pumps = [asyncio.create_task(self._up()), asyncio.create_task(self._down())]
        try:
            mode = asyncio.ALL_COMPLETED if settings.half_close else asyncio.FIRST_COMPLETED
            await asyncio.wait(pumps, return_when=mode)
            failed = [pump.exception() for pump in pumps if pump.done() and not pump.cancelled()]
            if not any(failed) and not self.late:
                await self._flush()
        finally:
            self.clock.cancel(self)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        for error in failed:
            if isinstance(error, ConnectionFailed):
                if not self.late:
                    session.log_error(log.INFO, to_bytes(error.message) + b" while proxying connection")
            elif error is not None:
                raise error
        if self.late:
            session.log_error(log.INFO, b"connection timed out (110: Connection timed out) while proxying connection")
        else:
            session.log_error(log.INFO, b"upstream disconnected" if self.upstream.eof else b"client disconnected")
        return _OK

    async def _flush(self) -> None:
        """What one side has said before it ended still reaches the other."""
        for stream in (self.session.stream, self.upstream):
            with contextlib.suppress(ConnectionFailed):
                await stream.drained(self.settings.timeout)

    def expired(self) -> None:
        """Nothing has come for proxy_timeout."""
        self.late = True
        self.session.stream.close()
        self.upstream.close()

    async def _up(self) -> None:
        session = self.session
        if session.begun:
            data, session.begun = session.begun, b""
            self._give(self.upstream, data)
            self.one.sent += len(data)
        await self._pump(session.stream, self.upstream, self.settings.upload_rate, up=True)

    async def _down(self) -> None:
        await self._pump(self.upstream, self.session.stream, self.settings.download_rate, up=False)

    def _give(self, stream: Stream, data: bytes) -> None:
        stream.write(data)
        self.clock.schedule(self, self.settings.timeout)

    async def _pump(self, source: Stream, sink: Stream, rate_value: Value, *, up: bool) -> None:
        session, one, buffer = self.session, self.one, self.settings.buffer
        rate = rate_of(session.value(rate_value))
        begin, moved = self.clock.now(), 0
        while True:
            limit = buffer
            if rate:
                limit = rate * (int(self.clock.now() - begin) + 1) - moved
                if limit <= 0:
                    await self.clock.sleep(-limit / rate + 0.001)
                    continue
                limit = min(limit, buffer)
            data = await source.read(limit)
            if not data:
                if self.settings.half_close:
                    sink.shutdown_write()
                return
            moved += len(data)
            self._give(sink, data)
            if up:
                session.received += len(data)
                one.sent += len(data)
            else:
                if one.first_byte is None:
                    one.first_byte = self.clock.now() - one.begin
                one.received += len(data)
                session.sent += len(data)
            if sink.chain.length:
                await sink.drained()
                self.clock.schedule(self, self.settings.timeout)
            if rate:
                await self.clock.sleep(len(data) / rate)
