"""Where a request is handed on to: the URL of a `..._pass`, the addresses of a host, the group they make.

Hosts of the configuration are resolved when it is built, as in nginx: every address is a peer.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.core.connect import Target
from headrace.core.names import literal
from headrace.edge.upstream.peers import Group, Peer
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.errors import Place


@dataclass(frozen=True, slots=True)
class Url:
    """host: a name, an address (v6 without brackets) or b"" for a unix socket at `unix`. port: the one to dial.

    explicit: the port stands in the text. shown: host and port as $proxy_host and the Host field have them.
    uri: what follows, b"" when nothing does.
    """

    host: str
    port: int
    explicit: bool
    unix: str | None
    shown: str
    uri: bytes

    @property
    def target(self) -> Target:
        """Where to dial; for hosts that are addresses."""
        return Target(unix=self.unix) if self.unix is not None else Target(self.host, self.port)

    @property
    def default_host(self) -> bytes:
        """The Host field when nothing else is configured."""
        return b"localhost" if self.unix is not None else os.fsencode(self.shown)


def parse_url(text: str, default_port: int, what: str, place: Place | None = None) -> Url:
    """Take the part of a URL behind the scheme apart. Raises ConfError as nginx words it; what: for the message."""
    if text.startswith("unix:"):
        path, _, uri = text[5:].partition(":")
        if not path:
            raise ConfError(f'no path in the unix domain socket in {what} "{text}"', place)
        if len(os.fsencode(path)) > 107:
            raise ConfError(f'too long path in the unix domain socket in {what} "{text}"', place)
        return Url("", 0, False, path, "unix:" + path, os.fsencode(uri))
    cut = min((text.find(mark) for mark in "/?" if mark in text), default=len(text))
    authority, uri = text[:cut], text[cut:]
    if uri.startswith("?"):
        uri = "/" + uri
    host, port_text = authority, ""
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfError(f'invalid host in {what} "{text}"', place)
        port_text = rest[1:]
        if literal(host, 0) is None:
            raise ConfError(f'invalid IPv6 address in {what} "{text}"', place)
    elif ":" in authority:
        host, _, port_text = authority.partition(":")
    if not host:
        raise ConfError(f'no host in {what} "{text}"', place)
    explicit = authority.endswith(":" + port_text) and bool(port_text)
    if explicit and not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536):
        raise ConfError(f'invalid port in {what} "{text}"', place)
    port = int(port_text) if explicit else default_port
    bracketed = f"[{host}]" if ":" in host else host
    shown = f"{bracketed}:{port}" if explicit and port != default_port else bracketed
    return Url(host, port, explicit, None, shown, os.fsencode(uri))


def peer_name(address: tuple[object, ...]) -> bytes:
    """An address as $upstream_addr writes it."""
    host = str(address[0])
    return f"[{host}]:{address[1]}".encode() if ":" in host else f"{host}:{address[1]}".encode()


def addresses(url: Url, what: str, place: Place | None = None) -> list[tuple[bytes, Target]]:
    """The name and the target of every address of a host. Raises ConfError when there is none."""
    if url.unix is not None:
        return [(b"unix:" + os.fsencode(url.unix), Target(unix=url.unix))]
    known = literal(url.host, url.port)
    if known is None:
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ConfError(f'host not found in {what} "{url.shown}"', place) from None
        known = [(entry[0], entry[4]) for entry in found]
        known.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys((peer_name(address), Target(address[0], address[1])) for _, address in known))


def group_of(url: Url, what: str, place: Place | None = None) -> Group:
    """The group that a host stands for which no `upstream` names."""
    peers = [Peer(name, target, server=url.shown) for name, target in addresses(url, what, place)]
    return Group(url.shown if url.unix is None else "unix:" + url.unix, peers)
