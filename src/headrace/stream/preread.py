"""What a ClientHello says before anybody answers it: server name, protocols, version. No I/O.

RFC 8446 4.1.2, RFC 6066 3, RFC 7301 3.1. Bounded by the buffer that it is read from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_VERSIONS: Final = {
    0x0002: b"SSLv2",
    0x0300: b"SSLv3",
    0x0301: b"TLSv1",
    0x0302: b"TLSv1.1",
    0x0303: b"TLSv1.2",
    0x0304: b"TLSv1.3",
}
_DRAFT: Final = 0x7F
"""The high byte of drafts of TLS 1.3 (RFC 8446 4.2.1, before it was one)."""
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME, _ALPN, _SUPPORTED_VERSIONS = 0, 16, 43


@dataclass(frozen=True, slots=True)
class Hello:
    """server_name: b"" without one. protocol: the highest version offered. alpn: the protocols, comma separated."""

    server_name: bytes = b""
    protocol: bytes = b""
    alpn: bytes = b""


class NoHello(ValueError):
    """The bytes are no ClientHello."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise NoHello("a length beyond the end")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> _Reader:
        return _Reader(self.take(self.number(size)))

    @property
    def left(self) -> bool:
        return self.at < len(self.data)


def parse(data: bytes) -> Hello | None:
    """The hello that `data` begins with; None when more must come. Raises NoHello.

    A hello of SSLv2's form has no name and is taken for one without extensions, as in nginx.
    """
    body = b""
    at = 0
    while True:
        if len(data) - at >= 3 and not at and data[0] & 0x80 and data[2] == _CLIENT_HELLO:
            return Hello(protocol=_VERSIONS.get(int.from_bytes(data[3:5]), b""))
        if at < len(data) and data[at] != _HANDSHAKE:
            raise NoHello("not a handshake record")
        if len(data) - at >= 2 and data[at + 1] != 3:
            raise NoHello("unsupported version")
        if len(data) - at < 5:
            return None
        length = int.from_bytes(data[at + 3 : at + 5])
        body += data[at + 5 : at + 5 + length]
        at += 5 + length
        if body and body[0] != _CLIENT_HELLO:
            raise NoHello("not a ClientHello")
        if len(body) >= 4 and len(body) >= 4 + int.from_bytes(body[1:4]):
            return _hello(_Reader(body[4 : 4 + int.from_bytes(body[1:4])]))
        if at > len(data):
            return None


def _hello(reader: _Reader) -> Hello:
    version = reader.number(2)
    reader.take(32)
    reader.vector(1)
    reader.vector(2)
    reader.vector(1)
    name = alpn = b""
    if reader.left:
        extensions = reader.vector(2)
        while extensions.left:
            kind, body = extensions.number(2), extensions.vector(2)
            if kind == _SERVER_NAME:
                name = _name(body)
            elif kind == _ALPN:
                alpn = b",".join(_protocols(body))
            elif kind == _SUPPORTED_VERSIONS:
                offered = body.vector(1)
                while offered.left:
                    one = offered.number(2)
                    if one >> 8 == _DRAFT:
                        one = 0x0304
                    if one in _VERSIONS:
                        version = max(version, one)
    return Hello(name.lower(), _VERSIONS.get(version, b""), alpn)


def _name(body: _Reader) -> bytes:
    names = body.vector(2)
    while names.left:
        kind, name = names.number(1), names.vector(2)
        if not kind:
            return name.data
    return b""


def _protocols(body: _Reader) -> list[bytes]:
    found = []
    names = body.vector(2)
    while names.left:
        found.append(names.vector(1).data)
    return found
