"""ngx.ocsp: the responder of a certificate, the question, what an answer is worth, and its way to the client."""

from __future__ import annotations

import asyncio
import datetime
import shutil
import socket

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, NameOID

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


def issue(name: str, key, issuer_name: str, issuer_key, *extensions):
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer_name)]
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """chain.pem and key.pem, bare.pem (nobody answers for it), and answers: good.der, revoked.der, old.der, stray.der."""
    made = tmp_path_factory.mktemp("ocsp")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = issue("the authority", ca_key, "the authority", ca_key, x509.BasicConstraints(ca=True, path_length=None))
    place = x509.AccessDescription(
        AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier("http://127.0.0.1:8888/ocsp")
    )
    leaf = issue("good.test", key, "the authority", ca_key, x509.AuthorityInformationAccess([place]))
    bare = issue("bare.test", key, "the authority", ca_key)
    pem = serialization.Encoding.PEM
    (made / "chain.pem").write_bytes(leaf.public_bytes(pem) + ca.public_bytes(pem))
    (made / "bare.pem").write_bytes(bare.public_bytes(pem) + ca.public_bytes(pem))
    (made / "alone.pem").write_bytes(leaf.public_bytes(pem))
    (made / "wrong.pem").write_bytes(leaf.public_bytes(pem) + bare.public_bytes(pem))
    plain = serialization.NoEncryption()
    (made / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain))

    def answer(name, cert, status, until, revoked=None):
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=cert, issuer=ca, algorithm=hashes.SHA1(), cert_status=status, this_update=until - 2 * DAY,
            next_update=until, revocation_time=revoked, revocation_reason=None,
        )  # fmt: skip
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.NAME, ca)
        (made / name).write_bytes(builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.DER))

    status = ocsp.OCSPCertStatus
    answer("good.der", leaf, status.GOOD, NOW + DAY)
    answer("revoked.der", leaf, status.REVOKED, NOW + DAY, NOW - DAY)
    answer("old.der", leaf, status.GOOD, NOW - DAY)
    answer("stray.der", bare, status.GOOD, NOW + DAY)
    later = ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.TRY_LATER)
    (made / "later.der").write_bytes(later.public_bytes(serialization.Encoding.DER))
    return made


READ = """
    local ocsp, ssl = require "ngx.ocsp", require "ngx.ssl"
    local function read(name) local f = assert(io.open("%s/" .. name, "rb")) local text = f:read("*a") f:close() return text end
    local function chain(name) return assert(ssl.cert_pem_to_der(read(name))) end
"""


async def test_questions_and_answers(gateway, folder):
    await gateway.content(
        READ % folder
        + """
        local function say(a, b) ngx.say(tostring(a), " ", tostring(b)) end
        say(ocsp.get_ocsp_responder_from_der_chain(chain("chain.pem")))
        say(ocsp.get_ocsp_responder_from_der_chain(chain("chain.pem"), 6))
        say(ocsp.get_ocsp_responder_from_der_chain(chain("bare.pem")))
        say(ocsp.get_ocsp_responder_from_der_chain(chain("alone.pem")))
        say(ocsp.get_ocsp_responder_from_der_chain(chain("wrong.pem")))
        say(ocsp.get_ocsp_responder_from_der_chain("nothing"))
        local request = assert(ocsp.create_ocsp_request(chain("chain.pem")))
        ngx.say(request:byte(1), " ", #request > 60)
        say(ocsp.create_ocsp_request(chain("alone.pem")))
        ngx.say((select(2, ocsp.create_ocsp_request(chain("chain.pem"), 10)):gsub("%d+", "N")))
        local ok, till = ocsp.validate_ocsp_response(read("good.der"), chain("chain.pem"))
        ngx.say(tostring(ok), " ", till > ngx.time())
        for _, name in ipairs { "revoked", "old", "stray", "later", "good" } do
            say(ocsp.validate_ocsp_response(read(name .. ".der"), chain(name == "good" and "alone.pem" or "chain.pem")))
        end
        say(ocsp.validate_ocsp_response("nothing", chain("chain.pem")))
        say(ocsp.validate_ocsp_response("nothing", chain("chain.pem"), 3))
        say(ocsp.set_ocsp_status_resp("x"))
        """
    )
    assert (await gateway.get()).text.splitlines() == [
        "http://127.0.0.1:8888/ocsp nil",
        "http:/ truncated",
        "nil nil",
        "nil no issuer certificate in chain",
        "nil issuer certificate not next to leaf",
        "nil d2i_X509_bio() failed",
        "48 true",
        "nil no issuer certificate in chain",
        "output buffer too small: N > N",
        "true true",
        'nil certificate status "revoked" in the OCSP response',
        "nil OCSP_check_validity() failed",
        "nil certificate status not found in the OCSP response",
        "nil OCSP response not successful (3: trylater)",
        "nil no issuer certificate in chain",
        "nil d2i_OCSP_RESPONSE() failed",
        "nil d2i",
        "nil bad ssl conn",
    ]


async def openssl(port: int, *options: str) -> str:
    binary = shutil.which("openssl")
    if binary is None:
        pytest.skip("openssl is not installed")
    process = await asyncio.create_subprocess_exec(
        binary, "s_client", "-connect", f"127.0.0.1:{port}", *options, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = await process.communicate(b"")
    return out.decode("latin-1")


async def test_an_answer_is_given_along(gateway, folder):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    script = READ % folder + 'print("said ", ocsp.set_ocsp_status_resp(read("good.der")))'
    await gateway.start(
        http=f"""server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/chain.pem;
            ssl_certificate_key {folder}/key.pem; ssl_certificate_by_lua_block {{ {script} }} }}"""
    )
    assert "Cert Status: good" in await openssl(port, "-status")
    assert "said true," in gateway.log()
    await openssl(port)
    assert "said trueno status req," in gateway.log()
