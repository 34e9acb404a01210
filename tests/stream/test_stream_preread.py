"""The ClientHello as OpenSSL writes it, in pieces, and what is none."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.stream.preread import Hello, NoHello, parse


def hello(name: str | None = "example.com", alpn: tuple[str, ...] = (), most: str = "TLSv1_3") -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    context.maximum_version = ssl.TLSVersion[most]
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if name is None:
        context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (hello(), Hello(b"example.com", b"TLSv1.3")),
        (hello(None), Hello(b"", b"TLSv1.3")),
        (hello("a.example", ("h2", "http/1.1"), "TLSv1_2"), Hello(b"a.example", b"TLSv1.2", b"h2,http/1.1")),
    ],
)
def test_what_openssl_says(data, found):
    assert parse(data) == parse(data + b"more") == found
    for cut in range(len(data)):
        assert parse(data[:cut]) is None


def test_old_versions_and_drafts():
    draft = b"\x03\x03" + bytes(32) + b"\0\0\x02\x13\x01\x01\0" + b"\x00\x07\x00\x2b\x00\x03\x02\x7f\x1c"
    record = b"\x16\x03\x01" + (len(draft) + 4).to_bytes(2) + b"\x01" + len(draft).to_bytes(3) + draft
    assert parse(record) == Hello(b"", b"TLSv1.3")
    for version, name in ((b"\x00\x02", b"SSLv2"), (b"\x03\x01", b"TLSv1")):
        assert parse(b"\x80\x1c\x01" + version + bytes(24)) == Hello(protocol=name)


def test_a_hello_in_several_records():
    data = hello()
    body, size = data[5:], 7
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert parse(b"".join(data[:3] + len(one).to_bytes(2) + one for one in pieces)) == Hello(b"example.com", b"TLSv1.3")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1", b"\x16\x02\x00", b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", b"\x17"]
)
def test_what_is_no_hello(data):
    with pytest.raises(NoHello):
        parse(data)


@given(st.binary(max_size=300), st.booleans())
def test_anything_is_a_hello_or_none_or_more(data, inside):
    if inside:
        good = bytearray(hello_bytes)
        for at, byte in enumerate(data):
            good[at * 7 % len(good)] ^= byte
        data = bytes(good)
    with contextlib.suppress(NoHello):
        assert parse(data) is None or isinstance(parse(data), Hello)


hello_bytes = hello()
