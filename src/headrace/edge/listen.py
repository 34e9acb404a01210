"""Listen addresses: what `listen` says, as data.

https://nginx.org/en/docs/http/ngx_http_core_module.html#listen
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import invalid_parameter, parse_size, parse_time, refused
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive

Address = tuple[str, int] | str
DEFAULT_BACKLOG: Final = 511
_PROTOCOLS: Final[dict[str, Callable[[ListenSpec], ListenSpec]]] = {
    "ssl": lambda base: replace(base, tls=True),
    "proxy_protocol": lambda base: replace(base, proxy_protocol=True),
    "http2": lambda base: replace(base, http2=True),
}
_NOT_BUILT: Final = frozenset({"quic", "spdy", "setfib", "accept_filter"})


@dataclass(frozen=True)
class ListenSpec:
    """One address to listen on: (host, port) or "unix:/path".

    backlog: connections waiting to be accepted. options: (level, option, value) to set on the socket.
    proxy_protocol: connections begin with a PROXY protocol header. http2: clients may speak HTTP/2.
    explicit: options were given, so that another `listen` of the address may not give others.
    udp: datagrams instead of connections.
    """

    address: Address
    backlog: int = DEFAULT_BACKLOG
    reuseport: bool = False
    ipv6only: bool = True
    tls: bool = False
    proxy_protocol: bool = False
    http2: bool = False
    default_server: bool = False
    explicit: bool = False
    udp: bool = False
    options: tuple[tuple[int, int, int], ...] = ()

    @property
    def text(self) -> str:
        """The address as nginx prints it."""
        if isinstance(self.address, str):
            return self.address
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def socket_key(self) -> Address:
        """What tells one socket from another: the address, and for datagrams that they are."""
        return (f"udp:{self.address[0]}", self.address[1]) if self.udp else self.address  # type: ignore[return-value]

    @property
    def wildcard(self) -> bool:
        """True when the socket takes connections to any local address."""
        return not isinstance(self.address, str) and self.address[0] in ("0.0.0.0", "::")


def parse_listen(directive: Directive) -> list[ListenSpec]:
    """All addresses of a `listen` directive; raises ConfError with nginx's text."""
    base = ListenSpec(("", 0))
    for word in directive.args[1:]:
        base = _option(directive, base, word)
    return [replace(base, address=address) for address in parse_addresses(directive)]


def _option(directive: Directive, base: ListenSpec, word: str) -> ListenSpec:
    name, equals, value = word.partition("=")
    if word in ("default_server", "default"):
        return replace(base, default_server=True)
    if word in _PROTOCOLS:
        return _PROTOCOLS[word](base)
    if word == "bind":
        return replace(base, explicit=True)
    if word == "reuseport":
        return replace(base, reuseport=True, explicit=True)
    if name in _NOT_BUILT:
        raise refused(directive, f'the "{name}" parameter of "listen"')
    if name == "backlog" and equals:
        if not value.lstrip("-").isdigit() or int(value) == 0:
            raise ConfError(f'invalid backlog "{word}"', directive.place)
        return replace(base, backlog=int(value), explicit=True)
    if name == "ipv6only" and equals:
        if value not in ("on", "off"):
            raise ConfError(f'invalid ipv6only flags "{value}"', directive.place)
        return replace(base, ipv6only=value == "on", explicit=True)
    added = _socket_options(directive, word, name, value)
    return replace(base, options=base.options + added, explicit=True)


def _socket_options(directive: Directive, word: str, name: str, value: str) -> tuple[tuple[int, int, int], ...]:
    if word == "deferred":
        return ((socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1),)
    if name in ("rcvbuf", "sndbuf"):
        size = parse_size(value)
        if size is None:
            raise ConfError(f'invalid {name} "{value}"', directive.place)
        return ((socket.SOL_SOCKET, socket.SO_RCVBUF if name == "rcvbuf" else socket.SO_SNDBUF, size),)
    if name == "fastopen" and value.isdigit():
        return ((socket.IPPROTO_TCP, socket.TCP_FASTOPEN, int(value)),)
    if name == "so_keepalive":
        return _keepalive(directive, value)
    raise invalid_parameter(directive, word)


def _keepalive(directive: Directive, value: str) -> tuple[tuple[int, int, int], ...]:
    if value in ("on", "off"):
        return ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(value == "on")),)
    parts = value.split(":")
    bad = ConfError(f'invalid so_keepalive value: "{value}"', directive.place)
    if len(parts) != 3 or not any(parts):
        raise bad
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    for index, text in enumerate(parts):
        if not text:
            continue
        number = parse_time(text) if index < 2 else (float(text) if text.isdigit() else None)
        if number is None:
            raise bad
        options.append((socket.IPPROTO_TCP, names[index], int(number)))
    return tuple(options)


def parse_addresses(directive: Directive) -> list[Address]:
    """The addresses of the first argument: port, host, host:port, [v6]:port, unix:path, port range."""
    text = directive.args[0]
    if text.startswith("unix:"):
        if len(text) == 5:
            raise ConfError(f'no path in the unix domain socket in "{text}" of the "listen" directive', directive.place)
        if len(os.fsencode(text)) - 5 > 107:
            raise ConfError(f'invalid unix domain socket path in "{text}" of the "listen" directive', directive.place)
        return [text]
    host, ports = _split(directive, text)
    addresses: list[Address] = []
    for port in ports:
        addresses.extend((name, port) for name in _resolve(directive, host))
    return addresses


def _split(directive: Directive, text: str) -> tuple[str, range]:
    if text.isdigit() or (text.replace("-", "").isdigit() and "-" in text):
        host, port_text = "*", text
    elif text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfError(f'invalid host in "{text}" of the "listen" directive', directive.place)
        port_text = rest[1:] or "80"
    else:
        host, colon, port_text = text.partition(":")
        port_text = port_text if colon else "80"
    first, dash, last = port_text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise ConfError(f'invalid port in "{text}" of the "listen" directive', directive.place)
    low, high = int(first), int(last or first)
    if not 0 < low <= high < 65536:
        raise ConfError(f'invalid port in "{text}" of the "listen" directive', directive.place)
    return host, range(low, high + 1)


def _resolve(directive: Directive, host: str) -> list[str]:
    if host in ("*", ""):
        return ["0.0.0.0"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        raise ConfError(f'host not found in "{directive.args[0]}" of the "listen" directive', directive.place) from None
    names: list[str] = []
    for _, _, _, _, address in found:
        name = str(address[0])
        if name not in names:
            names.append(name)
    return names
