"""tcpsock:setclientcert and the parsers of ngx.ssl, against a server that wants a certificate."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme


@pytest.fixture
async def strict(tmp_path):
    """A server that answers with the name in its client's certificate: (port, path of the CA)."""
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("good.test").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    client = ca.issue_cert("client.test")
    client.cert_chain_pems[0].write_to_path(str(tmp_path / "client.crt"))
    client.private_key_pem.write_to_path(str(tmp_path / "client.key"))

    async def serve(_reader, writer):
        cert = writer.get_extra_info("peercert")
        writer.write(cert["subjectAltName"][0][1].encode() + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], str(tmp_path)
    server.close()


CODE = """
    local ssl = require "ngx.ssl"
    local function read(name) local f = io.open("%(folder)s/" .. name) local text = f:read("*a") f:close() return text end
    local function try(cert, key)
        local sock = ngx.socket.tcp()
        sock:settimeout(5000)
        assert(sock:connect("127.0.0.1", %(port)d))
        ngx.say(sock:setclientcert(cert, key))
        local ok, why = sock:sslhandshake(false, "good.test", true)
        ngx.say(ok and sock:receive() or "refused")
    end
    local pem = read("client.crt")
    local cert, key = assert(ssl.parse_pem_cert(pem)), assert(ssl.parse_pem_priv_key(read("client.key")))
    try(cert, key)
    try(assert(ssl.parse_der_cert(ssl.cert_pem_to_der(pem))), key)
    try(nil, nil)
    try("text", key)
    try(cert, "text")
    try(key, cert)
    ngx.say(ssl.parse_pem_cert("nothing"))
    ngx.say(ssl.parse_pem_priv_key(pem))
    ngx.say(ssl.parse_der_cert("nothing"))
    ngx.say(ssl.set_cert(cert))
    ngx.say(ngx.socket.tcp():setclientcert(cert, key))
    ngx.say(ngx.socket.tcp():setclientcert(cert))
"""


async def test_client_certificates(gateway, strict):
    port, folder = strict
    await gateway.content(CODE % {"port": port, "folder": folder}, http=f"lua_ssl_trusted_certificate {folder}/ca.pem;")
    lines = (await gateway.get()).text.splitlines()
    assert lines[:4] == ["true", "client.test"] * 2, gateway.log()
    # With TLS 1.3 a client learns at its first read that its certificate was missing.
    assert [line for line in lines[4:] if line not in {"refused", "nil"} and not line.startswith("niltlsv13")] == [
        "true",
        "nilbad cert arg: cdata expected, got string",
        "nilbad pkey arg: cdata expected, got string",
        "nilbad cert arg: made by another library than ngx.ssl",
        "nilPEM_read_bio_X509_AUX() failed",
        "nilPEM_read_bio_PrivateKey() failed",
        "nild2i_X509_bio() failed",
        "nilbad ssl conn",
        "true",
        "nilclient certificate must be supplied with corresponding private key",
    ]
