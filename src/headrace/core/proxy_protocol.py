"""PROXY protocol, versions 1 and 2: the words a balancer puts before a connection, to say whose it is. No I/O.

https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt

`parse` is given what has come so far and says how much of it is the header, or that more must come. Nothing is
held of a header larger than the limits of its version. As in nginx, a header that names no addresses we know (LOCAL,
UNKNOWN, unix sockets, datagrams) is a header without addresses.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1: Final = 107
MAX_V2: Final = 4096
TLV_NAMES: Final = {b"alpn": 0x01, b"authority": 0x02, b"unique_id": 0x05, b"ssl": 0x20, b"netns": 0x30}
TLV_SSL_NAMES: Final = {b"version": 0x21, b"cn": 0x22, b"cipher": 0x23, b"sig_alg": 0x24, b"key_alg": 0x25}

_FIXED: Final = 16
_SSL_FIXED: Final = 5  # client bits and the result of the verification
_V1: Final = re.compile(rb"PROXY TCP([46]) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) ([0-9]{1,5}) ([0-9]{1,5})\r\n")
_HEX: Final = re.compile(rb"0x([0-9A-Fa-f]+)")
_UNKNOWN: Final = b"PROXY UNKNOWN"


class BrokenHeader(ValueError):
    """What came is no header; the text says what it is."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """Whose connection it is; None and 0 where the header does not say.

    source, destination: addresses as text. tlvs: what version 2 has after the addresses, undecoded.
    """

    source: bytes | None = None
    source_port: int = 0
    destination: bytes | None = None
    destination_port: int = 0
    tlvs: bytes = b""

    def tlv(self, name: bytes) -> bytes | None:
        """The value of a TLV by nginx's name for it (`alpn`, `0x01`, `ssl_cn`, `ssl_verify`); None without it."""
        if name == b"ssl_verify":
            inner = find_tlv(self.tlvs, 0x20)
            return b"%d" % int.from_bytes(inner[1:5], "big") if inner and len(inner) >= _SSL_FIXED else None
        number = _number(name, TLV_NAMES)
        if number is not None:
            return find_tlv(self.tlvs, number)
        if not name.startswith(b"ssl_"):
            return None
        inner, number = find_tlv(self.tlvs, 0x20), _number(name[4:], TLV_SSL_NAMES)
        return None if inner is None or number is None else find_tlv(inner[_SSL_FIXED:], number)


def _number(name: bytes, names: dict[bytes, int]) -> int | None:
    match = _HEX.fullmatch(name)
    return int(match[1], 16) if match else names.get(name)


def find_tlv(data: bytes, kind: int) -> bytes | None:
    """The value of the first TLV of a kind; None without it, or when what stands before it is broken."""
    at = 0
    while at + 3 <= len(data):
        length = int.from_bytes(data[at + 1 : at + 3])
        if at + 3 + length > len(data):
            return None
        if data[at] == kind:
            return data[at + 3 : at + 3 + length]
        at += 3 + length
    return None


def parse(data: bytes) -> tuple[ProxyHeader, int] | None:
    """The header that `data` begins with and its length; None when more must come. Raises BrokenHeader."""
    if data.startswith(SIGNATURE):
        return _version2(data)
    if SIGNATURE.startswith(data):
        return None
    return _version1(data)


def _version1(data: bytes) -> tuple[ProxyHeader, int] | None:
    end = data.find(b"\r\n", 0, MAX_V1) + 2
    if not b"PROXY ".startswith(data[:6]) or (end < 2 and len(data) >= MAX_V1):
        raise BrokenHeader("no PROXY protocol header")
    if end < 2:
        return None
    line = data[:end]
    if line.startswith(_UNKNOWN) and line[len(_UNKNOWN)] in b" \r":
        return ProxyHeader(), end
    match = _V1.fullmatch(line)
    if match is None:
        raise BrokenHeader("bad fields")
    source, destination = match[2], match[3]
    ports = int(match[4]), int(match[5])
    if max(ports) > 65535:
        raise BrokenHeader("bad port")
    for address in (source, destination):
        try:
            version = ipaddress.ip_address(address.decode()).version
        except ValueError:
            raise BrokenHeader("bad address") from None
        if version != int(match[1]):
            raise BrokenHeader("an address of another family")
    return ProxyHeader(source, ports[0], destination, ports[1]), end


def _version2(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) < _FIXED:
        return None
    version, family = data[12], data[13]
    end = _FIXED + int.from_bytes(data[14:16])
    if version >> 4 != 2:
        raise BrokenHeader(f"unknown version {version >> 4}")
    if end > MAX_V2:
        raise BrokenHeader("header is too large")
    if len(data) < end:
        return None
    if version & 15 != 1 or family not in (0x11, 0x21):
        return ProxyHeader(), end  # LOCAL, and what has no addresses of TCP
    size = 4 if family == 0x11 else 16
    at = _FIXED + 2 * size + 4
    if at > end:
        raise BrokenHeader("truncated addresses")
    source, destination = data[_FIXED : _FIXED + size], data[_FIXED + size : _FIXED + 2 * size]
    ports = struct.unpack_from("!HH", data, at - 4)
    return ProxyHeader(_text(source), ports[0], _text(destination), ports[1], data[at:end]), end


def _text(packed: bytes) -> bytes:
    return ipaddress.ip_address(packed).compressed.encode()


def version1(source: tuple[str, int] | None, destination: tuple[str, int] | None) -> bytes:
    """The line of version 1 that says who connected to where; UNKNOWN when that is no pair of TCP addresses."""
    if source is None or destination is None:
        return b"PROXY UNKNOWN\r\n"
    families = {6 if ":" in address[0] else 4 for address in (source, destination)}
    if len(families) > 1:
        return b"PROXY UNKNOWN\r\n"
    text = f"PROXY TCP{families.pop()} {source[0]} {destination[0]} {source[1]} {destination[1]}\r\n"
    return text.encode()
