"""A connection to a peer: one that is kept, or a new one, with TLS where the location asks for it.

Idle connections belong to the pool of their group. One that has ended or said something meanwhile is noticed before a
byte is written. What makes two connections differ (address, TLS settings and name, local address) is the key.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.core.connect import dial
from headrace.core.pool import Pool
from headrace.edge.values import evaluate
from headrace.errors import ConfError, ConnectionFailed, Timeout

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.core.clock import Clock
    from headrace.core.stream import Stream
    from headrace.core.tls import TlsConfig
    from headrace.edge.request import Request
    from headrace.edge.upstream.peers import Group, Peer
    from headrace.edge.upstream.settings import Settings, TlsSettings

_SYSTEM: Final = re.compile(r"\((\d+: [^()]*)\)$")
Key = tuple[bytes, "TlsConfig | None", str]


class Unreachable(Exception):
    """No connection. message: the beginning of nginx's line; timeout: it took too long; stage: what was being done."""

    def __init__(self, message: str, *, timeout: bool, stage: str) -> None:
        super().__init__(message)
        self.message = message
        self.timeout = timeout
        self.stage = stage


def tls_for(tls: TlsSettings, request: Request, host: bytes) -> TlsConfig:
    """The TLS settings of a connection for this request. host: of proxy_pass, for the name. Raises ConfError."""
    config: TlsConfig = tls.static
    name = evaluate(tls.name, request) if tls.name is not None else host
    bare = name.decode("latin-1")
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    changes: dict[str, str | None] = {"server_hostname": bare if tls.server_name or tls.verify else None}
    if tls.certificate is not None:
        changes["cert"] = evaluate(tls.certificate, request).decode("utf-8", "surrogateescape") or None
        changes["key"] = (
            evaluate(tls.key, request).decode("utf-8", "surrogateescape") or None if tls.key is not None else None
        )
        if changes["cert"] is None:
            changes["key"] = None
    config = replace(config, **changes)  # type: ignore[arg-type]
    for word in tls.passphrases:
        config = replace(config, passphrase=word)
        try:
            config.context()
        except ConfError:
            continue
        break
    return config


def key_of(peer: Peer, tls: TlsConfig | None, bind: str) -> Key:
    """What connections that may stand in for another have in common."""
    return (peer.name, tls, bind)


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
        raise _unreachable(error, peer) from error
    group.opened += 1
    group.births[stream.fd] = clock.now()
    return stream


def _unreachable(error: ConnectionFailed, peer: Peer) -> Unreachable:
    if error.kind == "certificate":
        return Unreachable(
            f"upstream SSL certificate verify error: {error.message}",
            timeout=False,
            stage="SSL handshaking to upstream",
        )
    if error.kind == "tls" or "handshake" in error.message:
        return Unreachable(
            f"SSL_do_handshake() failed (SSL: {error.message})", timeout=False, stage="SSL handshaking to upstream"
        )
    found = _SYSTEM.search(error.message)
    at = f" to {peer.name.decode('utf-8', 'surrogateescape')}" if peer.target.unix is not None else ""
    text = f"connect(){at} failed ({found[1]})" if found else error.message
    return Unreachable(text, timeout=False, stage="connecting to upstream")


def local_address(text: str) -> tuple[str, int] | None:
    """The address of ..._bind: host, or host:port; None: any."""
    if not text:
        return None
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, int(port[1:] or 0)
    host, _, port = text.partition(":") if text.count(":") < 2 else (text, "", "")
    return host, int(port or 0)


def keep(group: Group, key: Hashable, stream: Stream, clock: Clock) -> None:
    """Put a connection that is done with its exchange into the pool, or close it when it has served its time."""
    lived = clock.now() - group.births.get(stream.fd, clock.now())
    if lived >= group.keepalive_time:
        stream.close()
        return
    pool = group.pool
    if pool is None:
        pool = group.pool = Pool(clock, max_idle_per_key=group.keepalive, max_idle=group.keepalive)
    pool.put(key, stream, idle_timeout=group.keepalive_timeout, max_requests=group.keepalive_requests)


def drop(stream: Stream) -> None:
    """Close a connection that is of no further use; what is unsent is dropped."""
    if stream.chain.length:
        stream.abort()
    else:
        stream.close()
