"""The PROXY protocol parser: what it reads, what it refuses, and that pieces make no difference."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.proxy_protocol import (
    MAX_V1,
    MAX_V2,
    SIGNATURE,
    BrokenHeader,
    ProxyHeader,
    find_tlv,
    parse,
    version1,
)


def v2(body: bytes, command: int = 0x21, family: int = 0x11, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", size) + body


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack("!H", len(value)) + value


TCP4 = bytes([192, 0, 2, 1, 192, 0, 2, 2]) + struct.pack("!HH", 123, 5678)
TCP6 = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("2001:db8::2").packed + TCP4[8:]
NONE = ProxyHeader()

WHOLE = [
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", ProxyHeader(b"192.0.2.1", 123, b"192.0.2.2", 5678)),
    (b"PROXY TCP6 2001:Db8::1 ::2 0 65535\r\n", ProxyHeader(b"2001:Db8::1", 0, b"::2", 65535)),
    (b"PROXY UNKNOWN\r\n", NONE),
    (b"PROXY UNKNOWN 1 2 3 4 5 6\r\n", NONE),
    (v2(TCP4), ProxyHeader(b"192.0.2.1", 123, b"192.0.2.2", 5678)),
    (v2(TCP6, family=0x21), ProxyHeader(b"2001:db8::1", 123, b"2001:db8::2", 5678)),
    (v2(TCP4 + b"\0" * 9), ProxyHeader(b"192.0.2.1", 123, b"192.0.2.2", 5678, b"\0" * 9)),
    (v2(b"", command=0x20, family=0), NONE),
    (v2(TCP4, command=0x20), NONE),
    (v2(b"\1\2\3\4", family=0x41), NONE),
    (v2(b"x" * 216, family=0x31), NONE),
    (v2(TCP4, family=0x12), NONE),
]
BROKEN = [
    b"GET / HTTP/1.1\r\n",
    b"\r\n\r\nx",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\n\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 123 65536\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 123\r\n",
    b"PROXY TCP4 192.0.2.1  192.0.2.2 123 1\r\n",
    b"PROXY TCP4 ::1 192.0.2.2 123 1\r\n",
    b"PROXY TCP6 192.0.2.1 192.0.2.2 123 1\r\n",
    b"PROXY TCP4 192.0.2.256 192.0.2.2 123 1\r\n",
    b"PROXY UNKNOWNX\r\n",
    b"PROXY UNKNOWN " + b"x" * MAX_V1,
    v2(TCP4, command=0x11),
    v2(TCP4[:-1]),
    v2(b"", length=MAX_V2),
]


@pytest.mark.parametrize(("data", "header"), WHOLE)
def test_headers_and_what_follows_them(data, header):
    assert parse(data + b"GET /") == (header, len(data))
    for cut in range(len(data)):
        assert parse(data[:cut]) is None


@pytest.mark.parametrize("data", BROKEN)
def test_what_is_no_header(data):
    with pytest.raises(BrokenHeader):
        parse(data)


def test_tlvs_by_the_names_of_nginx():
    inner = tlv(0x21, b"TLSv1.2") + tlv(0x22, b"example.com") + tlv(0x25, b"RSA512")
    tlvs = tlv(1, b"h2") + tlv(3, b"4321") + tlv(0x20, b"\1" + struct.pack("!I", 255) + inner) + tlv(0xAE, b"12")
    header, _ = parse(v2(TCP4 + tlvs))
    found = {name: header.tlv(name) for name in (b"alpn", b"0x01", b"0x3", b"0x000ae", b"ssl_verify", b"ssl_cn")}
    assert found == {
        b"alpn": b"h2",
        b"0x01": b"h2",
        b"0x3": b"4321",
        b"0x000ae": b"12",
        b"ssl_verify": b"255",
        b"ssl_cn": b"example.com",
    }
    assert header.tlv(b"ssl_0x25") == b"RSA512"
    assert header.tlv(b"ssl").endswith(inner)
    for name in (b"authority", b"nothing", b"ssl_cipher", b"ssl_nothing", b"0x", b"0xzz", b""):
        assert header.tlv(name) is None
    assert NONE.tlv(b"ssl_verify") is None


@given(st.binary(max_size=64), st.integers(0, 255))
def test_broken_tlvs_are_not_found(data, kind):
    value = find_tlv(data, kind)
    assert value is None or value in data


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda b: SIGNATURE + b)), st.binary(max_size=9))
def test_a_verdict_stays_whatever_follows(data, more):
    """A header is the same header with more behind it; what is broken is not mended."""
    try:
        found = parse(data)
    except BrokenHeader:
        with pytest.raises(BrokenHeader):
            parse(data + more)
        return
    if found is None:
        assert len(data) < MAX_V2
    else:
        assert parse(data + more) == found
        assert found[1] <= len(data)


def test_the_line_we_send_is_one_we_read():
    line = version1(("192.0.2.1", 1), ("192.0.2.2", 2))
    assert parse(line) == (ProxyHeader(b"192.0.2.1", 1, b"192.0.2.2", 2), len(line))
    line = version1(("::1", 1), ("::2", 2))
    assert parse(line) == (ProxyHeader(b"::1", 1, b"::2", 2), len(line))
    assert version1(None, None) == version1(("::1", 1), ("1.2.3.4", 2)) == b"PROXY UNKNOWN\r\n"
