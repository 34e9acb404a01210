"""sslhandshake: trust, names, sessions, pools; and the words of what fails."""

from __future__ import annotations

import asyncio
import re
import ssl

import pytest
import trustme
from lua_rig import silent

from headrace.core.openssl.connection import Connection
from headrace.errors import ConfError


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
    assert text.splitlines() == ["cdata", "11helloworld", "truetrue300000", "true", "niltimeout", "1"]
    assert names == ["good.test"]


async def test_wrong_name(gateway, tls_echo):
    port, ca, _ = tls_echo
    assert await start(gateway, ca, code(port, 'false, "other.test", true')) == "certificate host mismatch\n"
    assert 'lua ssl certificate does not match host "other.test"' in gateway.log()


async def test_untrusted(gateway, tls_echo, tmp_path):
    port, _, _ = tls_echo
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    text = await start(gateway, str(tmp_path / "other.pem"), code(port, 'false, "good.test", true'))
    assert text == "20: unable to get local issuer certificate\n"
    assert "lua ssl certificate verify error: (20: unable to get local issuer certificate)" in gateway.log()


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


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_session_is_resumed(gateway, tls_echo, version, monkeypatch):
    """Also where the handshake itself does not bring what is needed for that (TLS 1.3)."""
    port, ca, _ = tls_echo
    await gateway.content(
        f"""
        local session
        for _ = 1, 2 do
            local sock = ngx.socket.tcp()
            assert(sock:connect("127.0.0.1", {port}))
            session = assert(sock:sslhandshake(session, "good.test", true))
            sock:send("ping")
            sock:receive(4)
            ngx.say(type(session), " ", type(sock:getsslsession()))
            sock:close()
        end
        """,
        http=f"lua_ssl_trusted_certificate {ca}; lua_ssl_protocols {version};",
    )
    opened = []
    shake = Connection.handshake
    monkeypatch.setattr(Connection, "handshake", lambda self: opened.append(self) or shake(self))
    assert (await gateway.get()).text == "cdata cdata\ncdata cdata\n"
    clients = [engine for engine in dict.fromkeys(opened) if not engine.context.is_server]
    assert [engine.session_reused for engine in clients] == [False, True]


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
    assert text == "nilhandshake failed\nnilclosed\n"
    assert "SSL_do_handshake() failed (SSL: error:" in gateway.log()


async def test_a_silent_peer_times_out(gateway, origin):
    server = await origin(silent)
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(30)
        sock:connect("{server.address}")
        ngx.say(sock:sslhandshake())
    """)
    assert (await gateway.get()).text == "niltimeout\n"


@pytest.mark.parametrize(
    ("directives", "said"),
    [
        ("lua_ssl_crl {folder}/none.pem;", "X509_LOOKUP_load_file"),
        ("lua_ssl_trusted_certificate {folder}/none.pem;", "SSL_CTX_load_verify_locations"),
        ("lua_ssl_protocols TLSv9;", 'invalid value "TLSv9"'),
        ("lua_ssl_conf_command Nothing on;", 'SSL_CONF_cmd("Nothing", "on") failed'),
        ("lua_ssl_certificate {folder}/ca.pem;", 'no "lua_ssl_certificate_key" is defined for certificate'),
        ("lua_ssl_ciphers NONE;", 'SSL_CTX_set_cipher_list("NONE") failed'),
    ],
)
async def test_settings_that_openssl_does_not_take(gateway, tls_echo, directives, said):
    folder = tls_echo[1].rpartition("/")[0]
    with pytest.raises(ConfError, match=re.escape(said)):
        await gateway.content("ngx.say(1)", http=directives.replace("{folder}", folder))


async def test_commands_and_depth(gateway, tls_echo):
    """A chain that is one certificate longer than lua_ssl_verify_depth; a version that a command takes away."""
    port, ca, _ = tls_echo
    await gateway.start(
        f"""
        location /version {{ lua_ssl_conf_command MaxProtocol TLSv1.1; content_by_lua_block {{ {code(port, "")} }} }}
        location /status {{ content_by_lua_block {{ {code(port, 'nil, "good.test", true, true', "ngx.say(type(ok))")} }} }}
        """,
        http=f"lua_ssl_trusted_certificate {ca};",
    )
    assert (await gateway.get("/version")).text == "handshake failed\n"
    assert (await gateway.get("/status")).text == "cdata\n"


async def test_arguments_are_counted(gateway):
    await gateway.content("""
        local sock = ngx.socket.tcp()
        ngx.say((select(2, pcall(sock.sslhandshake))))
        ngx.say((select(2, pcall(sock.sslhandshake, sock, 1, 2, 3, 4, 5))))
    """)
    said = "ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen "
    assert (await gateway.get()).text == f"{said}0\n{said}6\n"
