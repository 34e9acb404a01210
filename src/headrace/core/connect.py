"""Dialling: resolve, connect, tunnel through an HTTP proxy, shake hands.

All addresses of a name are tried in the resolver's order within one deadline, each getting its share of
what is left, so that a silent first address leaves time for the second.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace.core.clock import Waiter
from headrace.core.failure import describe, failure
from headrace.core.names import literal
from headrace.core.stream import Stream
from headrace.core.tls import TlsConfig, TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.core.clock import Clock
    from headrace.core.names import Addresses, Names
    from headrace.core.tls_engine import Engine, Terms

_PROXY_HEAD_LIMIT = 16_384
_END = b"\r\n\r\n"
_UNIX_RETRY = 0.01  # seconds; a unix socket with a full backlog says EAGAIN instead of letting us wait
_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})
_EPHEMERAL = 32_768
_NONBLOCK = getattr(socket, "SOCK_NONBLOCK", 0)


@dataclass(frozen=True)
class Target:
    """Where to dial: host and port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    unix: str | None = None

    def __str__(self) -> str:
        if self.unix is not None:
            return f"unix:{self.unix}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that tunnels by CONNECT (RFC 9110 9.3.6).

    user, password: sent as Basic credentials. tls: how to speak TLS to the proxy itself; None: in the clear.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsConfig | None = None

    @property
    def authorization(self) -> str | None:
        """The value of Proxy-Authorization, None without a user."""
        if self.user is None:
            return None
        pair = f"{self.user}:{self.password or ''}".encode("utf-8", "surrogateescape")
        return "Basic " + base64.b64encode(pair).decode("ascii")


_divert: Callable[[Target], socket.socket] | None = None


def divert(connect: Callable[[Target], socket.socket] | None) -> None:
    """Let every dial take the connected socket that `connect` makes: for tests without a network; None ends it.

    connect raises ConnectionFailed for what nobody listens on.
    """
    global _divert  # noqa: PLW0603 - the network is one for the process, and so is what stands in for it
    _divert = connect


async def dial(
    target: Target,
    *,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    timeout: float | None = 60.0,  # noqa: ASYNC109 - one deadline for all addresses
    tls: Terms | None = None,
    tls_timeout: float | None = None,
    proxy: Proxy | None = None,
    nodelay: bool = True,
    keepalive: bool = True,
    names: Names | None = None,
    local: tuple[str, int] | None = None,
    sni_from_target: bool = True,
) -> Stream:
    """Open a connection; a TlsStream with the handshake done when `tls` is given.

    timeout: seconds for resolving and connecting (a proxy's answer included). tls_timeout: seconds for each
    handshake; None: as timeout. A proxy tunnels every target, TLS or not; the owner speaks to a proxy for
    plain HTTP by dialling the proxy as the target. names: the caller's memory of names; None: ask each time.
    local: the address to connect from (port 0: any). sni_from_target: False when TLS has no name but the config's.
    errors.ConnectionFailed (kind "refused", "unreachable", "dns", "proxy", "tls", "certificate", ...) or
    errors.Timeout. errors.ConfError when the TLS settings cannot work.
    """
    due = None if timeout is None else clock.now() + timeout
    shake = timeout if tls_timeout is None else tls_timeout
    first = Target(proxy.host, proxy.port) if proxy else target
    if isinstance(tls, TlsConfig):
        tls.context()  # a setting that cannot work is found before the peer is bothered
    sock, peer = await _connect(first, loop, clock, due, nodelay=nodelay, keepalive=keepalive, names=names, local=local)
    engine: Engine | None = None
    if proxy is not None:
        tunnel = await _tunnel(sock, peer, target, proxy, loop, clock, due, shake)
        if tls is None:
            return tunnel
        sock, engine = tunnel.detach_session() if isinstance(tunnel, TlsStream) else (tunnel.detach(), None)
    elif tls is None:
        return Stream(sock, loop, clock, peer=peer)
    with _closing(sock):
        name = target.host or None if sni_from_target else None
        stream = TlsStream(sock, loop, clock, tls, peer=peer, server_hostname=name, outer=engine)
    return await _shake(stream, shake)


async def _shake(stream: TlsStream, seconds: float | None) -> TlsStream:
    try:
        await stream.handshake(seconds)
    except BaseException:
        stream.abort()
        raise
    return stream


async def _resolve(
    target: Target, loop: asyncio.AbstractEventLoop, clock: Clock, due: float | None, names: Names | None
) -> Addresses:
    """(family, address) in the order to try."""
    if target.unix is not None:
        path = target.unix
        return [(socket.AF_UNIX, "\0" + path[1:] if path.startswith("@") else path)]
    host = target.host
    if (known := literal(host, target.port)) is not None:
        return known
    if names is not None and (kept := names.find(host, target.port, clock.now())) is not None:
        return kept
    try:
        async with clock.timeout(None if due is None else max(due - clock.now(), 0.0)):
            found = await loop.getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
    except errors.Timeout as error:
        raise errors.Timeout(f"{host} could not be resolved (110: Operation timed out)") from error
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise errors.ConnectionFailed(f"{host} could not be resolved ({reason})", kind="dns") from error
    addresses: Addresses = list(dict.fromkeys((entry[0], entry[4]) for entry in found))
    if names is not None:
        names.keep(host, target.port, addresses, clock.now())
    return addresses


async def _connect(
    target: Target,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    due: float | None,
    *,
    nodelay: bool,
    keepalive: bool,
    names: Names | None,
    local: tuple[str, int] | None = None,
) -> tuple[socket.socket, Any]:
    """The first address that answers; the errors of all when none does."""
    if _divert is not None:
        return _divert(target), target.unix or (target.host, target.port)
    addresses = await _resolve(target, loop, clock, due, names)
    failed: list[errors.ConnectionFailed] = []
    for index, (family, address) in enumerate(addresses):
        share: float | None = None
        if due is not None:
            share = max(due - clock.now(), 0.0) / (len(addresses) - index)
        sock: socket.socket | None = None
        try:
            sock = _open_socket(family)
            if local is not None and family != socket.AF_UNIX:
                _bind(sock, local)
            await _connect_one(sock, address, loop, clock, share)
            if family != socket.AF_UNIX:
                _tune(sock, nodelay=nodelay, keepalive=keepalive)
        except (errors.ConnectionFailed, OSError) as error:
            if sock is not None:
                sock.close()
            failed.append(failure(_call(address), error))
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        else:
            if index and names is not None:
                names.prefer(target.host, target.port, (family, address))
            return sock, address
    last = failed[-1]
    if len(failed) > 1:
        text = ", ".join(error.message for error in failed)
        last = type(last)(text, kind=last.kind, side=last.side)
        last.__cause__ = failed[-1]
    raise last


def _open_socket(family: int) -> socket.socket:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | _NONBLOCK)
    except OSError as error:
        raise failure("socket()", error) from error
    if not _NONBLOCK:
        sock.setblocking(False)
    return sock


def _bind(sock: socket.socket, local: tuple[str, int]) -> None:
    if not local[1] and hasattr(socket, "IP_BIND_ADDRESS_NO_PORT"):
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)  # the port is chosen by the destination
    try:
        sock.bind(local)
    except OSError as error:
        raise failure(f"bind({local[0]})", error) from error


def _tune(sock: socket.socket, *, nodelay: bool, keepalive: bool) -> None:
    if nodelay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _call(address: Any) -> str:
    if isinstance(address, tuple):
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return f"connect() to {host}:{address[1]}"
    return f"connect() to unix:{address}"


async def _connect_one(
    sock: socket.socket, address: Any, loop: asyncio.AbstractEventLoop, clock: Clock, seconds: float | None
) -> None:
    due = None if seconds is None else clock.now() + seconds
    number = sock.connect_ex(address)
    while number == errno.EAGAIN:
        if due is not None and clock.now() >= due:
            raise errors.Timeout(f"{_call(address)} timed out (110: Connection timed out)")
        await clock.sleep(_UNIX_RETRY)
        number = sock.connect_ex(address)
    if number == errno.EINPROGRESS:
        # On the same host the other side has answered by now: asking once spares the wait for writability.
        number = sock.connect_ex(address)
    if number in _IN_PROGRESS:
        waiter = Waiter(loop, _call(address))
        if due is not None:
            clock.schedule(waiter, due - clock.now())
        loop.add_writer(sock.fileno(), waiter.wake)
        try:
            await waiter.future
        finally:
            loop.remove_writer(sock.fileno())
            clock.cancel(waiter)
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number == 0 and _met_itself(sock, address):
        number = errno.ECONNREFUSED
    if number:
        raise OSError(number, describe("connect()", number))


def _met_itself(sock: socket.socket, address: Any) -> bool:
    """Dialling a dead local port of the ephemeral range may connect the socket to itself."""
    if not isinstance(address, tuple) or address[1] < _EPHEMERAL:
        return False
    local = sock.getsockname()
    return bool(local[1] == address[1] and local == sock.getpeername())


async def _tunnel(
    sock: socket.socket,
    peer: Any,
    target: Target,
    proxy: Proxy,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    due: float | None,
    shake: float | None,
) -> Stream:
    """Ask the proxy for a way to the target; the stream to the proxy, through which the target is reached."""
    if target.unix is not None:
        sock.close()
        raise errors.ConnectionFailed(f"no proxy leads to {target}", kind="proxy")
    if proxy.tls is not None:
        with _closing(sock):
            secure = TlsStream(sock, loop, clock, proxy.tls, peer=peer, server_hostname=proxy.host)
        stream: Stream = await _shake(secure, shake)
    else:
        stream = Stream(sock, loop, clock, peer=peer)
    try:
        stream.write(_connect_request(target, proxy))
        await _proxy_answer(stream, target, proxy, clock, due)
    except BaseException:
        stream.abort()
        raise
    return stream


def _connect_request(target: Target, proxy: Proxy) -> bytes:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii", "surrogateescape")


async def _proxy_answer(stream: Stream, target: Target, proxy: Proxy, clock: Clock, due: float | None) -> None:
    """Read to the end of the head and not a byte further: what follows is the target's."""
    silence = f"proxy {proxy.host}:{proxy.port} gave no answer to CONNECT {target}"
    head = b""
    while not head.endswith(_END):
        missing = next(count for count in range(1, 5) if head.endswith(_END[: 4 - count]))
        try:
            data = await stream.read(missing, None if due is None else max(due - clock.now(), 0.0))
        except errors.Timeout as error:
            raise errors.Timeout(f"{silence} in time") from error
        head += data
        if not data or len(head) > _PROXY_HEAD_LIMIT:
            raise errors.ConnectionFailed(silence, kind="proxy")
    line = head.split(b"\r\n", 1)[0].decode("latin-1")
    status = line.split(" ", 2)[1] if " " in line else ""
    if not line.startswith("HTTP/1.") or not (len(status) == 3 and status.startswith("2")):
        hint = " (set the proxy's user and password)" if status == "407" else ""
        raise errors.ConnectionFailed(
            f'proxy {proxy.host}:{proxy.port} refused CONNECT {target}: "{line}"{hint}', kind="proxy"
        )


@contextlib.contextmanager
def _closing(sock: socket.socket) -> Iterator[None]:
    """Close the socket when what is built on it fails."""
    try:
        yield
    except BaseException:
        sock.close()
        raise
