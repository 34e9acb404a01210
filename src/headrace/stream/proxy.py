"""Handing a connection on: a peer is chosen, connected, and bytes go both ways at the pace of the slower side.

https://nginx.org/en/docs/stream/ngx_stream_proxy_module.html
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core import proxy_protocol
from headrace.core.clock import NEVER, Timed
from headrace.core.connect import Target, dial
from headrace.core.names import literal
from headrace.core.tls import TlsStream
from headrace.edge import log
from headrace.edge.connection import client_port, client_text, local_address
from headrace.edge.upstream.address import group_of, parse_url, peer_name
from headrace.edge.upstream.link import tls_for
from headrace.edge.upstream.peers import Group, Peer
from headrace.edge.upstream.routing import key_of
from headrace.edge.values import to_bytes
from headrace.errors import ConfError, ConnectionFailed, Timeout

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.dns import Resolver
    from headrace.core.stream import Stream
    from headrace.edge.upstream.settings import TlsSettings
    from headrace.edge.values import Value
    from headrace.stream.session import Session

_OK, _INTERNAL_ERROR, _BAD_GATEWAY = 200, 500, 502


@dataclass(slots=True)
class ProxySettings:
    """The proxy_... directives of a server. Times in seconds, rates in bytes a second (0: none)."""

    group: Group | None = None
    target: Value | None = None
    groups: dict[str, Group] | None = None
    timeout: float = 600.0
    connect_timeout: float = 60.0
    buffer: int = 16384
    upload_rate: Value = b"0"
    download_rate: Value = b"0"
    header: bool = False
    half_close: bool = False
    keepalive: bool = False
    next_upstream: bool = True
    next_timeout: float = 0.0
    next_tries: int = 0
    bind: Value | None = None
    tls: TlsSettings | None = None
    resolver: Resolver | None = None
    resolver_timeout: float = 30.0


class Try:
    """One peer that was asked; times in seconds since it was. first_byte, ended: None when it never came."""

    __slots__ = ("begin", "connected", "ended", "first_byte", "name", "received", "sent")

    def __init__(self, name: bytes, begin: float) -> None:
        self.name = name
        self.begin = begin
        self.connected: float | None = None
        self.first_byte: float | None = None
        self.ended: float | None = None
        self.sent = 0
        self.received = 0


async def proxy(session: Session, settings: ProxySettings) -> int:
    """Hand the session on; returns its status."""
    try:
        group, host = await _route(session, settings)
    except ConfError as error:
        session.log_error(log.ERR, to_bytes(error.message))
        return _INTERNAL_ERROR
    except ConnectionFailed as error:
        session.log_error(log.ERR, to_bytes(error.message))
        return _BAD_GATEWAY
    chooser = group.chooser(session)  # type: ignore[arg-type]
    clock = session.clock
    begin = clock.now()
    if settings.next_tries:
        chooser.tries = min(chooser.tries, settings.next_tries)
    while True:
        peer = chooser.choose(clock.now())
        if peer is None:
            session.tries.append(Try(group.name, clock.now()))
            session.log_error(log.ERR, b"no live upstreams while connecting to upstream")
            return _BAD_GATEWAY
        one = Try(peer.name, clock.now())
        session.tries.append(one)
        failed = True
        try:
            upstream = await _connect(session, settings, peer, host)
            failed = False
        except ConnectionFailed as error:
            session.log_error(log.ERR, _told(error, peer))
        finally:
            if failed:
                one.ended = clock.now() - one.begin
                chooser.free(peer, clock.now(), failed=True)
        if not failed:
            break
        late = settings.next_timeout and clock.now() - begin >= settings.next_timeout
        if not settings.next_upstream or late or chooser.tries <= 0:
            return _BAD_GATEWAY
    one.connected = clock.now() - one.begin
    session.log_error(log.INFO, b"proxy %b connected to %b" % (_own(upstream), peer.name))
    try:
        return await Relay(session, settings, upstream, one).run()
    finally:
        one.ended = clock.now() - one.begin
        upstream.close()
        chooser.free(peer, clock.now(), failed=False)


def _own(upstream: Stream) -> bytes:
    local = upstream.local
    return peer_name(local) if isinstance(local, tuple) else b"unix:"


def _told(error: ConnectionFailed, peer: Peer) -> bytes:
    if isinstance(error, Timeout):
        return b"upstream timed out (110: Connection timed out) while connecting to upstream"
    text = error.message
    at = text.rfind("(")
    if error.kind in ("refused", "unreachable", "reset") and at >= 0:
        where = f" to {peer.name.decode()}" if peer.target.unix is not None else ""
        text = f"connect(){where} failed {text[at:]}"
    return to_bytes(f"{text} while connecting to upstream")


async def _route(session: Session, settings: ProxySettings) -> tuple[Group, bytes]:
    """The group, and the host that a certificate is to name. Raises ConfError."""
    if settings.group is not None:
        return settings.group, settings.group.name
    text = session.value(settings.target).decode("utf-8", "surrogateescape")
    groups = settings.groups or {}
    found = groups.get(text.lower())
    if found is not None:
        return found, found.name
    url = parse_url(text, 0, "upstream")
    found = groups.get(key_of(url))
    if found is not None:
        return found, found.name
    if url.unix is None and not url.port:
        raise ConfError(f'no port in upstream "{text}"')
    if url.unix is None and literal(url.host, url.port) is None:
        if settings.resolver is None:
            raise ConfError(f"no resolver defined to resolve {url.host}")
        found_at = await settings.resolver.resolve(url.host, settings.resolver_timeout)
        peers = [Peer(peer_name((one, url.port)), Target(one, url.port), server=url.shown) for one in found_at]
        return Group(url.shown, peers), to_bytes(url.host)
    return group_of(url, "upstream"), to_bytes(url.host)


async def _connect(session: Session, settings: ProxySettings, peer: Peer, host: bytes) -> Stream:
    """Connect, say whose connection it is, and shake hands. Raises ConnectionFailed."""
    loop, clock = asyncio.get_running_loop(), session.clock
    local: tuple[str, int] | None = None
    if settings.bind is not None and (text := session.value(settings.bind).decode()):
        url = parse_url(text, 0, "proxy_bind")
        local = (url.host, url.port)
    stream = await dial(
        peer.target,
        loop=loop,
        clock=clock,
        timeout=settings.connect_timeout,
        keepalive=settings.keepalive,
        local=local,
        sni_from_target=False,
    )
    try:
        if settings.header:
            stream.write(_header(session))
            await stream.drained(settings.connect_timeout)
        if settings.tls is None:
            return stream
        config = tls_for(settings.tls, session, host)  # type: ignore[arg-type]
        stream = encrypted = TlsStream(stream.detach(), loop, clock, config, peer=stream.peer)
        await encrypted.handshake(settings.connect_timeout)
    except ConfError as error:
        stream.abort()
        raise ConnectionFailed(error.message, kind="tls") from error
    except BaseException:
        stream.abort()
        raise
    return encrypted


def _header(session: Session) -> bytes:
    """The PROXY protocol header that names the client (nginx sends version 1)."""
    like: Any = session
    address, port = client_text(like).decode(), client_port(like)
    local = local_address(like)
    if address == "unix:" or port is None or not isinstance(local, tuple):
        return proxy_protocol.version1(None, None)
    return proxy_protocol.version1((address, int(port)), (str(local[0]), int(local[1])))


class Relay(Timed):
    """Two pumps and a deadline: proxy_timeout without a byte on either side ends the session."""

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
            session.received += len(data)
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
        rate = _rate(session.value(rate_value))
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


def _rate(text: bytes) -> int:
    """Bytes a second of a rate that variables may have made; 0 when it is none."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, b"")
    scale = {b"": 1, b"k": 1 << 10, b"m": 1 << 20}.get(unit)
    return int(number) * scale if scale and number.isdigit() else 0
