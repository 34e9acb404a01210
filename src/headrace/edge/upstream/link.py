"""A connection to a peer: one that is kept, or a new one, with TLS where the location asks for it.

Idle connections belong to the pool of their group. One that has ended or said something meanwhile is noticed before a
byte is written. What makes two connections differ (address, TLS settings and name, local address) is the key.
"""

from __future__ import annotations

import asyncio
import re
from errno import (
    EACCES,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EAGAIN,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTDOWN,
    EHOSTUNREACH,
    EINVAL,
    ENETDOWN,
    ENETUNREACH,
    EPERM,
)
from typing import TYPE_CHECKING, Final

from headrace.core.connect import dial
from headrace.core.pool import Pool
from headrace.edge.log import CRIT, ERR
from headrace.edge.upstream.reply import Failed
from headrace.edge.upstream.settings import ERROR, TIMEOUT
from headrace.edge.upstream.steer import Steered
from headrace.edge.upstream.tls import handshake_text, tls_for
from headrace.edge.values import evaluate
from headrace.errors import ConfError, ConnectionFailed, Timeout

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.core.clock import Clock
    from headrace.core.openssl.context import Peering
    from headrace.core.stream import Stream
    from headrace.edge.upstream.peers import Group, Keep, Peer
    from headrace.edge.upstream.settings import Settings
    from headrace.edge.upstream.visit import Visit

_SYSTEM: Final = re.compile(r"\((\d+: [^()]*)\)$")
POOL_MAX: Final = 1024
"""Idle connections of a group that sets no limit."""
_AT_ONCE: Final = frozenset((EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, EINVAL, ENETUNREACH, EPERM))
"""Errors that the kernel tells in the call itself; nginx names the address then."""
_USUAL: Final = frozenset((ECONNREFUSED, EAGAIN, ECONNRESET, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH))
"""Errors of the network, at level error; others are critical."""
Key = tuple[bytes, "Peering | None", str, str]


class Unreachable(Exception):
    """No connection. message: the beginning of nginx's line; timeout: it took too long; stage: what was being done."""

    def __init__(self, message: str, *, timeout: bool, stage: str, level: int = ERR) -> None:
        super().__init__(message)
        self.level = level
        self.message = message
        self.timeout = timeout
        self.stage = stage


async def reach(visit: Visit, group: Group, peer: Peer) -> Stream:
    """The connection of a visit to its peer: one that is kept, or a new one. Raises Failed.

    Sets visit.key, .cached, and .keep: what is done with the connection when the exchange is over.
    """
    request, settings, chooser = visit.request, visit.settings, visit.chooser
    steered = chooser if isinstance(chooser, Steered) else None
    over_tls, name, local = visit.route.tls, None, ""
    if settings.bind is not None:
        local = evaluate(settings.bind, request).decode("latin-1")
    visit.keep = group.keep
    if steered is not None:
        name, local = steered.tls_name, local if steered.local is None else steered.local
        over_tls = over_tls if steered.tls is None else steered.tls
        visit.keep = steered.keep or visit.keep
    tls = None
    if over_tls and settings.tls is not None:
        tls = tls_for(settings.tls, request, visit.route.host, name, group.name)
    visit.key = key_of(peer, tls, local, settings.prefix)
    stream = take_kept(group, visit.key) if visit.keep is not None else None
    visit.cached = stream is not None
    if stream is not None:
        return stream
    try:
        return await open_link(group, peer, visit.key, settings, visit.clock, local_address(local))
    except Unreachable as error:
        kind, status = (TIMEOUT, 504) if error.timeout else (ERROR, 502)
        raise Failed(kind, status, f"{error.message} while {error.stage}", error.level) from error


def key_of(peer: Peer, tls: Peering | None, bind: str, protocol: str) -> Key:
    """What connections that may stand in for another have in common."""
    return (peer.name, tls, bind, protocol)


def take_kept(group: Group, key: Hashable) -> Stream | None:
    """An idle connection that is still alive."""
    return group.pool.take(key) if group.pool is not None else None


async def open_link(
    group: Group, peer: Peer, key: Key, settings: Settings, clock: Clock, local: tuple[str, int] | None
) -> Stream:
    """Open a connection. Raises Unreachable."""
    tls = key[1]
    try:
        stream = await dial(
            peer.target,
            loop=asyncio.get_running_loop(),
            clock=clock,
            timeout=settings.connect_timeout,
            tls=tls,
            keepalive=settings.keepalive_socket,
            local=local,
            sni_from_target=False,
        )
    except ConfError as error:
        raise Unreachable(error.message, timeout=False, stage="SSL handshaking to upstream") from error
    except Timeout as error:
        shaking = "handshake" in error.message
        stage = "SSL handshaking to upstream" if shaking else "connecting to upstream"
        raise Unreachable("upstream timed out (110: Connection timed out)", timeout=True, stage=stage) from error
    except ConnectionFailed as error:
        raise unreachable(error, peer) from error
    group.opened += 1
    group.births[stream.fd] = clock.now()
    return stream


def unreachable(error: ConnectionFailed, peer: Peer) -> Unreachable:
    """What nginx says of a peer that could not be reached."""
    shaking = handshake_text(error)
    if shaking is not None:
        return Unreachable(shaking, timeout=False, stage="SSL handshaking to upstream")
    found = _SYSTEM.search(error.message)
    number = int(found[1].partition(":")[0]) if found else 0
    at_once = peer.target.unix is not None or number in _AT_ONCE
    at = f" to {peer.name.decode('utf-8', 'surrogateescape')}" if at_once else ""
    text = f"connect(){at} failed ({found[1]})" if found else error.message
    level = ERR if not found or number in _USUAL or not at_once else CRIT
    return Unreachable(text, timeout=False, stage="connecting to upstream", level=level)


def local_address(text: str) -> tuple[str, int] | None:
    """The address of ..._bind: host, or host:port; None: any."""
    if not text:
        return None
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, int(port[1:] or 0)
    host, _, port = text.partition(":") if text.count(":") < 2 else (text, "", "")
    return host, int(port or 0)


def keep(group: Group, key: Hashable, stream: Stream, clock: Clock, how: Keep) -> None:
    """Put a connection that is done with its exchange into the pool, or close it when it has served its time."""
    if how.lifetime is not None and age(group, stream, clock) >= how.lifetime:
        stream.close()
        return
    pool = group.pool
    if pool is None:
        most = group.keepalive or POOL_MAX
        pool = group.pool = Pool(clock, max_idle_per_key=how.idle, max_idle=most)
    pool.put(key, stream, idle_timeout=how.timeout, max_requests=how.requests)


def age(group: Group, stream: Stream, clock: Clock) -> float:
    """Seconds since a connection was opened."""
    now = clock.now()
    return now - group.births.get(stream.fd, now)


def drop(stream: Stream) -> None:
    """Close a connection that is of no further use; what is unsent is dropped."""
    if stream.chain.length:
        stream.abort()
    else:
        stream.close()
