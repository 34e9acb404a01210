"""sslhandshake: trust, names, sessions, pools; and the words of what fails."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from lua_rig import silent


@pytest.fixture
async def tls_echo(tmp_path):
    """An echoing TLS server with a certificate for "good.test"; (port, path of the CA, connections accepted)."""
    ca = trustme.CA()
    cert = ca.issue_cert("good.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    accepted: list[str | None] = []
    context.sni_callback = lambda _sock, name, _context: accepted.append(name)

    async def serve(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], str(tmp_path / "ca.pem"), accepted
    server.close()


def code(port: int, handshake: str, rest: str = "") -> str:
    return f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(5000)
        assert(sock:connect("127.0.0.1", {port}))
        local ok, err = sock:sslhandshake({handshake})
        if not ok then ngx.say(err) return end
        {rest}
    """


async def start(gateway, ca, block):
    await gateway.content(block, http=f"lua_ssl_trusted_certificate {ca};")
    return (await gateway.get()).text


async def test_trusted_and_named(gateway, tls_echo):
    port, ca, names = tls_echo
    text = await start(
        gateway,
        ca,
        code(
            port,
            'nil, "good.test", true',
            """
        ngx.say(type(ok))
        ngx.say(sock:send("hello\\nworld"), sock:receive(), sock:receive(5))
        local big = string.rep("x", 300000)
        local writer = ngx.thread.spawn(function() return sock:send(big) end)
        ngx.say(sock:receive(#big) == big, ngx.thread.wait(writer))
        ngx.say(sock:sslhandshake(false))
        sock:settimeout(20)
        ngx.say(sock:receive(1))
        ngx.say(sock:close())
    """,
        ),
    )
    assert text.splitlines() == ["number", "11helloworld", "truetrue300000", "true", "niltimeout", "1"]
    assert names == ["good.test"]


async def test_wrong_name(gateway, tls_echo):
    port, ca, _ = tls_echo
    assert (await start(gateway, ca, code(port, 'false, "other.test", true'))).startswith("certificate host mismatch")


async def test_untrusted(gateway, tls_echo, tmp_path):
    port, _, _ = tls_echo
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    text = await start(gateway, str(tmp_path / "other.pem"), code(port, 'false, "good.test", true'))
    assert "certificate" in text
    assert "CA" in text


async def test_not_verified_unless_asked(gateway, tls_echo):
    port, _, _ = tls_echo
    await gateway.content(code(port, 'false, "other.test"', 'ngx.say(ok, sock:send("a"), sock:receive(1))'))
    assert (await gateway.get()).text == "true1a\n"


async def test_pooled_with_its_session(gateway, tls_echo):
    port, ca, names = tls_echo
    text = await start(
        gateway,
        ca,
        f"""
        for _ = 1, 2 do
            local sock = ngx.socket.tcp()
            assert(sock:connect("127.0.0.1", {port}))
            assert(sock:sslhandshake(false, "good.test", true))
            sock:send("ping")
            ngx.say(sock:receive(4), sock:getreusedtimes(), sock:setkeepalive())
        end
    """,
    )
    assert text == "ping01\nping11\n"
    assert len(names) == 1


async def test_a_session_is_resumed(gateway, tls_echo):
    port, ca, _ = tls_echo
    text = await start(
        gateway,
        ca,
        f"""
        local session
        for _ = 1, 2 do
            local sock = ngx.socket.tcp()
            assert(sock:connect("127.0.0.1", {port}))
            assert(sock:sslhandshake(session, "good.test", true))
            sock:send("ping")
            sock:receive(4)
            session = sock:getsslsession()
            ngx.say(type(session))
            sock:close()
        end
    """,
    )
    assert text == "number\nnumber\n"


async def test_a_peer_without_tls(gateway, origin):
    async def plain(_origin, reader, writer, _number):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await origin(plain)
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        sock:connect("{server.address}")
        local ok, err = sock:sslhandshake()
        ngx.say(ok, err)
        ngx.say(sock:send("x"))
    """)
    text = (await gateway.get()).text
    assert text.startswith("nilhandshake failed: ")
    assert text.endswith("nilclosed\n")


async def test_a_silent_peer_times_out(gateway, origin):
    server = await origin(silent)
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(30)
        sock:connect("{server.address}")
        ngx.say(sock:sslhandshake())
    """)
    assert (await gateway.get()).text == "niltimeout\n"
