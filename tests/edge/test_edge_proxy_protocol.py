"""PROXY protocol on real sockets: in pieces, before TLS, and broken."""

from __future__ import annotations

import asyncio
import functools
import ssl
import struct

import trustme

from headrace.core.proxy_protocol import SIGNATURE

VERSION1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n"
VERSION2 = SIGNATURE + b"\x21\x11" + struct.pack("!H", 12) + bytes([192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 22, 46])
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
SAID = "$proxy_protocol_addr!$proxy_protocol_port $proxy_protocol_server_addr!$proxy_protocol_server_port"


def conf(more: str = "", listen: str = "proxy_protocol") -> str:
    return f"""http {{ access_log off; server {{ listen 127.0.0.1:80 {listen}; {more} return 200 "{SAID}"; }} }}
    error_log logs/error.log info;"""


async def in_pieces(port: int, pieces: list[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_a_header_at_once_and_byte_by_byte(serve):
    site = await serve(conf())
    for header in (VERSION1, VERSION2):
        for data in ([header + REQUEST], [bytes([byte]) for byte in header + REQUEST], [header, REQUEST]):
            assert (await in_pieces(site.port, data)).endswith(b"192.0.2.1!123 192.0.2.2!5678")
    assert (await site.raw(b"PROXY UNKNOWN\r\n" + REQUEST, eof=False)).endswith(b"\r\n\r\n! !")


async def test_what_has_no_header_is_closed_and_logged(serve):
    site = await serve(conf())
    assert await site.raw(REQUEST) == b""
    assert await site.raw(VERSION1[:-2]) == b""
    text = site.log("error.log")
    assert "[error] " in text
    assert 'broken header: "GET / HTTP/1.1\\r\\nHost: a' in text
    assert 'broken header: "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678" while reading PROXY protocol, client: 127' in text
    assert (await site.raw(VERSION1 + REQUEST, eof=False)).endswith(b"5678")


async def test_a_header_before_tls(serve, tmp_path):
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "a.pem")
    site = await serve(conf("ssl_certificate a.pem; ssl_certificate_key a.pem;", "ssl proxy_protocol"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for together in (False, True):
        inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(inside, outside, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        begun = VERSION2
        if not together:
            writer.write(begun)
            await writer.drain()
            begun = b""
        for step in (session.do_handshake, functools.partial(session.write, REQUEST)):
            while True:
                try:
                    step()
                except ssl.SSLWantReadError:
                    writer.write(begun + outside.read())
                    begun = b""
                    inside.write(await asyncio.wait_for(reader.read(65536), 10))
                    continue
                break
            writer.write(outside.read())
        inside.write(await asyncio.wait_for(reader.read(), 10))
        answer = b""
        while True:
            try:
                piece = session.read(65536)
            except (ssl.SSLZeroReturnError, ssl.SSLWantReadError):
                break
            if not piece:
                break
            answer += piece
        assert answer.endswith(b"192.0.2.1!123 192.0.2.2!5678")
        writer.close()
