"""Handing a connection on: a peer is chosen, connected, and bytes go both ways at the pace of the slower side.

https://nginx.org/en/docs/stream/ngx_stream_proxy_module.html
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.core import proxy_protocol
from headrace.core.connect import Target, dial
from headrace.core.datagram import DatagramLink
from headrace.core.names import literal
from headrace.core.tls import TlsStream
from headrace.edge import log
from headrace.edge.connection import client_port, client_text, local_address
from headrace.edge.upstream.address import group_of, parse_url, peer_name
from headrace.edge.upstream.link import unreachable
from headrace.edge.upstream.peers import Group, Peer
from headrace.edge.upstream.routing import key_of
from headrace.edge.upstream.steer import Refused
from headrace.edge.upstream.tls import tls_for
from headrace.edge.values import to_bytes
from headrace.errors import ConfError, ConnectionFailed, Timeout
from headrace.stream import udp
from headrace.stream.relay import Relay
from headrace.stream.settings import Try
from headrace.stream.steer import SessionSteered

if TYPE_CHECKING:
    from headrace.core.stream import Stream
    from headrace.edge.upstream.peers import Chooser
    from headrace.stream.session import Session
    from headrace.stream.settings import ProxySettings

_INTERNAL_ERROR, _BAD_GATEWAY = 500, 502


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
    try:
        found = await _first_that_answers(session, settings, group, chooser, host)
    except Refused as refused:
        return refused.status
    if found is None:
        return _BAD_GATEWAY
    peer, one, upstream, settings = found
    relay: Relay | udp.DatagramRelay
    if isinstance(upstream, DatagramLink):
        session.note(b"proxy %b connected to %b" % (_own(upstream.sock.getsockname()), peer.name))
        relay = udp.DatagramRelay(session, settings, upstream, one, _header(session) if settings.header else b"")
    else:
        session.log_error(log.INFO, b"proxy %b connected to %b" % (_own(upstream.local), peer.name))
        relay = Relay(session, settings, upstream, one)
    clock = session.clock
    try:
        return await relay.run()
    finally:
        one.ended = clock.now() - one.begin
        upstream.close()
        if chooser.free(peer, clock.now(), failed=relay.failed):
            session.log_error(log.WARN, b"upstream server temporarily disabled while proxying connection")


async def _first_that_answers(
    session: Session, settings: ProxySettings, group: Group, chooser: Chooser, host: bytes
) -> tuple[Peer, Try, Stream | DatagramLink, ProxySettings] | None:
    """The peer that was reached, the connection to it and the settings of this session.

    None when all that may be asked have failed. Raises Refused, when a script does not want the session.
    """
    clock = session.clock
    begin = clock.now()
    if settings.next_tries:
        chooser.tries = min(chooser.tries, settings.next_tries)
    while True:
        peer = chooser.choose(clock.now())
        local = None
        if isinstance(chooser, SessionSteered):
            settings, local = chooser.settings, chooser.local
        if peer is None:
            session.tries.append(Try(group.name, clock.now()))
            session.log_error(log.ERR, b"no live upstreams while connecting to upstream")
            return None
        one = Try(peer.name, clock.now())
        session.tries.append(one)
        upstream = None
        try:
            upstream = await _connect(session, settings, peer, host, local)
        except ConnectionFailed as error:
            session.log_error(*_told(error, peer))
        finally:
            if upstream is None:
                one.ended = clock.now() - one.begin
                chooser.free(peer, clock.now(), failed=True)
        if upstream is not None:
            one.connected = clock.now() - one.begin
            return peer, one, upstream, settings
        late = settings.next_timeout and clock.now() - begin >= settings.next_timeout
        if not settings.next_upstream or late or chooser.tries <= 0:
            return None


def _own(local: Any) -> bytes:
    return peer_name(local) if isinstance(local, tuple) else b"unix:"


def _told(error: ConnectionFailed, peer: Peer) -> tuple[int, bytes]:
    """Level and text of what is logged of a peer that could not be reached."""
    if isinstance(error, Timeout):
        return log.ERR, b"upstream timed out (110: Connection timed out) while connecting to upstream"
    found = unreachable(error, peer)
    return found.level, to_bytes(f"{found.message} while {found.stage}")


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


async def _connect(
    session: Session, settings: ProxySettings, peer: Peer, host: bytes, bind: str | None
) -> Stream | DatagramLink:
    """Connect, say whose connection it is, and shake hands. Raises ConnectionFailed.

    bind: the address to connect from when a script has said so.
    """
    loop, clock = asyncio.get_running_loop(), session.clock
    local: tuple[str, int] | None = None
    text = bind or ("" if settings.bind is None else session.value(settings.bind).decode())
    if text:
        url = parse_url(text, 0, "proxy_bind")
        local = (url.host, url.port)
    if session.datagrams is not None:
        return udp.connect(peer.target, local)
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
        config = tls_for(settings.tls, session, host, group=host)  # type: ignore[arg-type]
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
