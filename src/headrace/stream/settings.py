"""What proxy_... directives say of a server, and what a session remembers of a peer that it asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.dns import Resolver
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.tls import TlsSettings
    from headrace.edge.values import Value


@dataclass(slots=True)
class ProxySettings:
    """The proxy_... directives of a server. Times in seconds, rates in bytes a second (0: none).

    Of UDP: requests, after so many datagrams of the client its next one begins another session (0: never); responses,
    so many datagrams answer each of them (None: nobody knows).
    """

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
    requests: int = 0
    responses: int | None = None


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


def rate_of(text: bytes) -> int:
    """Bytes a second of a rate that variables may have made; 0 when it is none."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, b"")
    scale = {b"": 1, b"k": 1 << 10, b"m": 1 << 20}.get(unit)
    return int(number) * scale if scale and number.isdigit() else 0
