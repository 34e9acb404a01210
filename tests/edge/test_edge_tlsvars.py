"""What TLS says of a client, as variables of http and stream."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme


@pytest.mark.parametrize("with_certificate", [True, False])
async def test_client_certificates_and_server_names(serve, tmp_path, with_certificate):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "a.pem")
    site = await serve(
        """http { access_log off; server { listen 127.0.0.1:443 ssl; ssl_certificate a.pem; ssl_certificate_key a.pem;
        ssl_client_certificate ca.pem; ssl_verify_client optional;
        return 200 "$ssl_server_name|$ssl_client_verify|$ssl_client_i_dn|$ssl_client_fingerprint"; } }"""
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if with_certificate:
        authority.issue_cert("client.example").configure_cert(context)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context, server_hostname="localhost")
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    name, verify, issuer, print_ = answer.rpartition(b"\r\n\r\n")[2].split(b"|")
    assert name == b"localhost"
    if with_certificate:
        assert (verify, len(print_)) == (b"SUCCESS", 40)
        assert b"O=trustme" in issuer
    else:
        assert (verify, issuer, print_) == (b"NONE", b"", b"")
