"""ssl_stapling and ssl_ocsp with a responder of our own."""

from __future__ import annotations

import asyncio
import base64
import datetime
import shutil
import ssl
import subprocess
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from headrace.core.openssl import ocsp as asked
from headrace.core.openssl.certificates import pem_certificates

OPENSSL = shutil.which("openssl")
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def leaf_of(cert):
    return x509.load_pem_x509_certificate(cert.cert_chain_pems[0].bytes())


def responses(authority, signer=None):
    """Makes the response about a certificate."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    signer = signer or authority
    key = serialization.load_pem_private_key(signer.private_key_pem.bytes(), None)
    by = x509.load_pem_x509_certificate(signer.cert_pem.bytes())

    def make(certificate, status=ocsp.OCSPCertStatus.GOOD, begin=NOW - DAY):
        revoked = status is ocsp.OCSPCertStatus.REVOKED
        builder = ocsp.OCSPResponseBuilder().add_response(
            certificate, issuer, hashes.SHA1(), status, begin, begin + 3 * DAY, begin if revoked else None, None
        )  # fmt: skip
        made = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, by).sign(key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.DER)

    return make


@pytest.fixture
async def responder():
    """An HTTP server that answers about certificates by serial number."""
    found = SimpleNamespace(answers={}, count=0, port=0)

    async def serve_one(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        question = ocsp.load_der_ocsp_request(base64.b64decode(unquote(path.rpartition("/")[2])))
        found.count += 1
        body = found.answers.get(question.serial_number)
        writer.write(
            b"HTTP/1.1 %s\r\nConnection: close\r\n\r\n%b" % (b"200 OK", body) if body else b"HTTP/1.1 404 No\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


def both(authority, cert):
    """A certificate and its issuer as the engine has them."""
    return pem_certificates(cert.cert_chain_pems[0].bytes())[0], pem_certificates(authority.cert_pem.bytes())[0]


def test_what_answers_are_worth():
    authority, cert = trustme.CA(), None
    cert = authority.issue_cert("one.example")
    make = responses(authority)
    mine, issuer = both(authority, cert)
    question = ocsp.load_der_ocsp_request(asked.question(mine, issuer))
    assert question.serial_number == leaf_of(cert).serial_number
    assert asked.identity_of(mine, issuer) in asked.question(mine, issuer)

    def judge(data):
        return asked.judge(data, mine, issuer, chain=[issuer], flags=asked.NO_VERIFY)

    good = judge(make(leaf_of(cert)))
    assert (good.status, good.words) == (asked.GOOD, "good")
    assert good.until == int((NOW + 2 * DAY).timestamp())
    assert judge(make(leaf_of(cert), ocsp.OCSPCertStatus.REVOKED)).status == asked.REVOKED
    failures = {
        "d2i_OCSP_RESPONSE": b"nonsense",
        "not successful (2": ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.INTERNAL_ERROR)
        .public_bytes(serialization.Encoding.DER),
        "status not found": make(leaf_of(authority.issue_cert("two.example"))),
        "OCSP_check_validity": make(leaf_of(cert), begin=NOW - 10 * DAY),
    }  # fmt: skip
    for text, data in failures.items():
        with pytest.raises(asked.OcspError) as caught:
            judge(data)
        assert text in str(caught.value)


CLIENTS = """http { access_log off; server { listen 127.0.0.1:443 ssl; ssl_certificate one.pem; ssl_certificate_key one.pem;
    ssl_verify_client on; ssl_client_certificate ca.pem; ssl_ocsp on; ssl_ocsp_responder http://127.0.0.1:%d;
    ssl_ocsp_cache %s; return 200 $ssl_client_verify; error_page 495 =418 @no; location @no { return 418 $ssl_client_verify; } } }"""


@pytest.mark.parametrize("cached", [False, True])
async def test_certificates_of_clients(serve, tmp_path, responder, cached):
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "one.pem")
    good, revoked, unknown, forged = (authority.issue_cert(f"{n}.example") for n in "abcd")
    make = responses(authority)
    responder.answers[leaf_of(good).serial_number] = make(leaf_of(good))
    responder.answers[leaf_of(revoked).serial_number] = make(leaf_of(revoked), ocsp.OCSPCertStatus.REVOKED)
    responder.answers[leaf_of(forged).serial_number] = responses(authority, stranger)(leaf_of(forged))
    site = await serve(CLIENTS % (responder.port, f"shared:{tmp_path.name}:64k" if cached else "off"))

    async def ask(cert):
        context = ssl.create_default_context()
        authority.configure_trust(context)
        cert.configure_cert(context)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer.rpartition(b"\r\n\r\n")[2]

    assert [await ask(good) for _ in range(3)] == [b"SUCCESS"] * 3
    assert responder.count == (1 if cached else 3)
    assert await ask(revoked) == b"FAILED:certificate revoked"
    assert await ask(unknown) == b"FAILED:certificate status request failed"
    assert await ask(forged) == b"FAILED:certificate status request failed"


@pytest.mark.skipif(OPENSSL is None, reason="no openssl here")
async def test_stapling(serve, tmp_path, responder):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert = authority.issue_cert("localhost")
    cert.private_key_and_cert_chain_pem.write_to_path(tmp_path / "one.pem")
    serial = leaf_of(cert).serial_number
    make = responses(authority)
    (tmp_path / "file.der").write_bytes(make(leaf_of(cert), ocsp.OCSPCertStatus.REVOKED))
    site = await serve(
        f"""http {{ access_log off; ssl_certificate one.pem; ssl_certificate_key one.pem; ssl_trusted_certificate ca.pem;
        ssl_stapling on; server {{ listen 127.0.0.1:444 ssl; ssl_stapling_file file.der; }} server {{ listen 127.0.0.1:443 ssl;
        ssl_stapling_responder http://127.0.0.1:{responder.port}/; ssl_stapling_verify on; }} }}"""
    )

    def status(port):
        command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", "-status"]
        return subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False).stdout

    responder.answers[serial] = make(leaf_of(cert))
    assert "Cert Status: revoked" in await asyncio.to_thread(status, site.ports[0])
    assert "no response sent" in await asyncio.to_thread(status, site.ports[1])
    while responder.count < 1 or "Cert Status: good" not in await asyncio.to_thread(status, site.ports[1]):
        await asyncio.sleep(0.01)
    assert responder.count == 1


async def test_stapling_that_cannot_be(build_conf, tmp_path):
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "one.pem")
    _, problems = build_conf(
        """events {} http { server { listen 127.0.0.1:443 ssl; ssl_certificate one.pem; ssl_certificate_key one.pem;
        ssl_stapling on; } }"""
    )
    assert problems.errors == []
    assert str(problems.warnings[0]).startswith('"ssl_stapling" ignored, issuer certificate not found')
