"""TLS of listeners and towards upstreams: one configuration here and in nginx, asked the same way."""

from __future__ import annotations

import asyncio
import gc
import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
import trustme

from headrace.core.openssl.handles import live

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
OPENSSL = shutil.which("openssl")
PORTS = 3

CONF = """
ssl_protocols TLSv1.2 TLSv1.3;
log_format seen "$ssl_protocol $ssl_client_verify";
server { listen 127.0.0.1:{0} ssl default_server; server_name one.example;
  ssl_certificate one.pem; ssl_certificate_key one.pem;
  ssl_ecdh_curve prime256v1; error_page 497 =200 /plain;
  location / { return 200 "one|$ssl_server_name|$ssl_protocol|$ssl_curve|$ssl_client_verify|$ssl_session_reused|$https"; }
  location = /plain { return 200 "plain|$scheme|$ssl_protocol"; }
  location /cert { return 200 "$ssl_client_s_dn|$ssl_client_i_dn|$ssl_client_serial|$ssl_client_fingerprint"; } }
server { listen 127.0.0.1:{0} ssl; server_name wanted.example;
  ssl_certificate two.pem; ssl_certificate_key two.pem;
  ssl_client_certificate ca.pem; ssl_verify_client on; ssl_verify_depth 3; error_page 496 =403 /missing;
  location / { return 200 "wanted|$ssl_client_verify|$ssl_client_s_dn|$ssl_client_s_dn_legacy|$ssl_client_v_start|$ssl_client_v_end"; }
  location = /missing { return 200 "missing|$ssl_client_verify"; } }
server { listen 127.0.0.1:{0} ssl; server_name maybe.example;
  ssl_certificate two.pem; ssl_certificate_key two.pem;
  ssl_client_certificate ca.pem; ssl_verify_client optional;
  location / { return 200 "maybe|$ssl_client_verify"; } }
server { listen 127.0.0.1:{0} ssl; server_name any.example;
  ssl_certificate two.pem; ssl_certificate_key two.pem; ssl_verify_client optional_no_ca;
  location / { return 200 "any|$ssl_client_verify|$ssl_client_escaped_cert"; } }
server { listen 127.0.0.1:{0} ssl; server_name never.example; ssl_reject_handshake on; }
server { listen 127.0.0.1:{1} ssl; server_name _;
  ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.pem;
  location / { return 200 "late|$ssl_server_name"; } }
server { listen 127.0.0.1:{2} ssl; server_name _;
  ssl_certificate one.pem; ssl_certificate_key one.pem; ssl_protocols TLSv1.2; ssl_ciphers ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384;
  ssl_session_cache shared:kept:1m; ssl_session_tickets off;
  location / { return 200 "$ssl_session_reused|$ssl_protocol|$ssl_cipher"; } }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(path / "ca.pem")
    stranger.cert_pem.write_to_path(path / "stranger.pem")
    for name in ("one", "two", "one.example", "two.example", "client"):
        full = name if "." in name else f"{name}.example"
        authority.issue_cert(full).private_key_and_cert_chain_pem.write_to_path(path / f"{name}.pem")
    stranger.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(path / "other.pem")
    return path


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def filled(text, ports):
    return re.sub(r"\{(\d)\}", lambda match: str(ports[int(match[1])]), text)


@pytest.fixture(params=["ours", pytest.param("nginx", marks=pytest.mark.peer)])
async def site(request, folder, tmp_path, serve):
    """Starts CONF (or another) and returns its ports."""
    running = []

    async def start(text=CONF):
        ports = free_ports(PORTS)
        text = filled(text, ports)
        for path in folder.iterdir():
            shutil.copy(path, tmp_path)
        if request.param == "ours":
            made = await serve("error_log logs/error.log info; http { access_log off;" + text + "}", real=True)
            return ports, made
        if not Path(NGINX).exists():
            pytest.skip("no nginx here")
        (tmp_path / "logs").mkdir(exist_ok=True)
        conf = tmp_path / "nginx.conf"
        conf.write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/logs/error.log info;"
            "events {} http { access_log off;" + text + "}"
        )
        running.append(subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(conf)], stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + 20
        for port in ports:
            while f":{port}" in text and not listening(port):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
        return ports, None

    yield start
    for process in running:
        process.terminate()
        process.wait()


def listening(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


class Client:
    """Asks one port; sessions are resumed from one request to the next."""

    def __init__(self, port, *, cert=None, version=None):
        self.port = port
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        if cert is not None:
            self.context.load_cert_chain(cert)
        if version is not None:
            self.context.minimum_version = self.context.maximum_version = version
        self.session = None
        self.peer = b""

    def _get(self, path, name, host):
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=20) as sock,
            self.context.wrap_socket(sock, server_hostname=name, session=self.session) as tls,
        ):
            tls.sendall(f"GET {path} HTTP/1.0\r\nHost: {host or name}\r\n\r\n".encode())
            data = b""
            while more := tls.recv(65536):
                data += more
            self.session, self.peer = tls.session, tls.getpeercert(binary_form=True)
        return split(data)

    async def get(self, path="/", name="one.example", host=None, *, resume=False):
        if not resume:
            self.session = None
        return await asyncio.to_thread(self._get, path, name, host)


def split(data):
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def plain(port, path="/"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: one.example\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return split(data)


async def test_what_clients_are_and_are_not_asked_for(site, folder):
    ports, _ = await site()
    bare, good, other = (Client(ports[0], cert=cert) for cert in (None, folder / "client.pem", folder / "other.pem"))
    assert await bare.get() == (200, "one|one.example|TLSv1.3|prime256v1|NONE|.|on")
    assert await good.get("/cert") == (200, "|||")  # it was not asked for
    assert await bare.get(name="wanted.example") == (403, "missing|NONE")
    status, body = await good.get(name="wanted.example")
    found = body.split("|")
    assert (status, found[:2]) == (200, ["wanted", "SUCCESS"])
    assert re.fullmatch(r"OU=Testing cert[^,]*,O=trustme v[\d.]+", found[2])
    assert found[3].startswith("/O=trustme v")
    assert all(re.fullmatch(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} GMT", text) for text in found[4:])
    status, body = await other.get(name="wanted.example")
    assert (status, "The SSL certificate error" in body) == (400, True)
    assert await bare.get(name="maybe.example") == (200, "maybe|NONE")
    assert await good.get(name="maybe.example") == (200, "maybe|SUCCESS")
    status, body = await other.get(name="maybe.example")
    assert (status, "The SSL certificate error" in body) == (400, True)
    status, body = await other.get(name="any.example")
    assert status == 200
    assert re.fullmatch(r"any\|FAILED:[a-z ]+\|-----BEGIN%20CERTIFICATE-----%0A.*%0A", body)


async def test_a_host_that_is_not_the_one_of_the_handshake(site, folder):
    ports, _ = await site()
    good = Client(ports[0], cert=folder / "client.pem")
    assert (await good.get(name="one.example", host="wanted.example"))[0] == 421
    assert (await good.get(name="wanted.example", host="one.example"))[0] == 200


async def test_a_session_does_not_spare_a_certificate(site):
    ports, _ = await site()
    client = Client(ports[0])
    assert (await client.get())[0] == 200
    assert (await client.get(resume=True))[1].split("|")[5] == "r"
    with pytest.raises(ssl.SSLError, match=r"(?i)access.denied"):
        await client.get(name="any.example", resume=True)
    client = Client(ports[0], version=ssl.TLSVersion.TLSv1_2)
    assert (await client.get())[0] == 200
    assert (await client.get(name="any.example", resume=True))[0] == 421


async def test_plain_http_and_rejected_names(site):
    ports, _ = await site()
    assert await plain(ports[0]) == (200, "plain|http|")
    status, body = await plain(ports[1])
    assert (status, "The plain HTTP request was sent to HTTPS port" in body) == (400, True)
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        await Client(ports[0]).get(name="never.example")


async def test_certificates_by_variables(site):
    ports, _ = await site()
    client = Client(ports[1])
    for name in ("one.example", "two.example"):
        assert await client.get(name=name) == (200, f"late|{name}")
        assert name.encode() in client.peer
    with pytest.raises(ssl.SSLError, match=r"(?i)internal.error"):
        await client.get(name="three.example")


async def test_sessions_in_shared_memory_outlive_the_configuration(site, serve):
    ports, made = await site()
    client = Client(ports[2])
    status, first = await client.get()
    assert (status, first[:9]) == (200, ".|TLSv1.2")
    assert first.endswith("AES256-GCM-SHA384")
    assert (await client.get(resume=True))[1][0] == "r"
    if made is not None:
        again = await serve("http { access_log off;" + filled(CONF, free_ports(PORTS)) + "}")
        client.port = again.ports[2]
        assert (await client.get(resume=True))[1][0] == "r"


@pytest.mark.skipif(OPENSSL is None, reason="no openssl here")
async def test_early_data(site, tmp_path):
    ports, _ = await site(
        """server { listen 127.0.0.1:{0} ssl; ssl_certificate one.pem; ssl_certificate_key one.pem; ssl_early_data on;
        ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:early:1m;
        location / { return 200 "early:$ssl_early_data|$ssl_session_reused"; } }"""
    )
    request = tmp_path / "request"
    request.write_text("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    def run(*options):
        made = subprocess.run(
            [OPENSSL, "s_client", "-connect", f"127.0.0.1:{ports[0]}", "-tls1_3", "-ign_eof", *options],
            input=request.read_text() if "-early_data" not in options else "",
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        return made.stdout

    session = str(tmp_path / "session")
    assert "early:|." in await asyncio.to_thread(run, "-sess_out", session)
    early = await asyncio.to_thread(run, "-sess_in", session, "-early_data", str(request))
    assert "Early data was accepted" in early
    assert "early:1|r" in early


async def test_nothing_is_left_of_connections(serve, folder, tmp_path):
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    ports = free_ports(PORTS)
    await serve("http { access_log off;" + filled(CONF, ports) + "}", real=True)
    client = Client(ports[0], cert=folder / "client.pem")
    gc.collect()
    gc.disable()  # nothing may be left for the collector
    try:
        before = dict(live)
        for _ in range(20):
            await client.get(name="wanted.example")
            with pytest.raises(ssl.SSLError):
                await client.get(name="never.example")
        for _ in range(200):
            if live["SSL"] == before.get("SSL", 0):
                break
            await asyncio.sleep(0.01)
        assert {kind: live[kind] - before.get(kind, 0) for kind in live if live[kind] != before.get(kind, 0)} == {}
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("", 'no "ssl_certificate" is defined for the "listen ... ssl" directive'),
        ("ssl_certificate one.pem;", 'no "ssl_certificate_key" is defined for certificate "%/one.pem"'),
        ("ssl_certificate no.pem; ssl_certificate_key no.pem;", 'cannot load certificate "%/no.pem": BIO_new_file() f'),
        ("ssl_certificate one.pem; ssl_certificate_key ca.pem;", 'cannot load certificate key "%/ca.pem": PEM_read_bi'),
        ("ssl_certificate one.pem; ssl_certificate_key two.pem;", 'SSL_CTX_use_PrivateKey("%/one.pem") failed (SSL: e'),
        ("OK ssl_verify_client on;", "no ssl_client_certificate for ssl_verify_client"),
        ("OK ssl_verify_client maybe;", 'invalid value "maybe"'),
        ("OK ssl_protocols TLSv9;", 'invalid value "TLSv9"'),
        ("OK ssl_session_cache shared:a;", 'invalid session cache "shared:a"'),
        ("OK ssl_session_cache shared:a:1k;", 'session cache "shared:a:1k" is too small'),
        ("OK ssl_session_ticket_key one.pem;", '"%/one.pem" must be 48 or 80 bytes'),
        ("OK ssl_conf_command Nonsense on;", 'SSL_CONF_cmd("Nonsense", "on") failed'),
        ("OK ssl_ciphers NONSENSE;", 'SSL_CTX_set_cipher_list("NONSENSE") failed'),
        ("OK ssl_ecdh_curve nonsense;", 'SSL_CTX_set1_curves_list("nonsense") failed'),
        ("OK ssl_ocsp maybe;", 'invalid value "maybe"'),
        ("OK ssl_ocsp_cache shared:a:1;", 'OCSP cache "shared:a:1" is too small'),
        ("OK ssl_ocsp_responder https://a/;", 'invalid URL prefix in OCSP responder "https://a/" in "ssl_ocsp_respond'),
        (
            "OK ssl_ocsp on; ssl_verify_client optional_no_ca;",
            '"ssl_ocsp" is incompatible with "ssl_verify_client optional_no_ca"',
        ),
    ],
)
def test_what_cannot_work(errors, folder, tmp_path, lines, text):
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    lines = lines.replace("OK", "ssl_certificate one.pem; ssl_certificate_key one.pem;")
    found = errors(f"events {{}} http {{ server {{ listen 127.0.0.1:443 ssl; {lines} }} }}")
    assert len(found) == 1
    assert found[0].replace(str(tmp_path), "%").startswith(text)


def test_without_the_library_the_configuration_says_what_is_missing(errors, folder, tmp_path, monkeypatch):
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.setattr("headrace.core.openssl.library.find", lambda: "OpenSSL's shared library is not installed")
    lines = "ssl_certificate one.pem; ssl_certificate_key one.pem;"
    found = errors(f"events {{}} http {{ server {{ listen 127.0.0.1:443 ssl; {lines} }} }}")
    assert found == ["OpenSSL's shared library is not installed"]
    assert errors("events {} http { server { listen 127.0.0.1:80; } }") == []


UPSTREAMS = """
server { listen 127.0.0.1:{0} ssl; server_name _; ssl_protocols TLSv1.2 TLSv1.3;
  ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.pem;
  ssl_client_certificate ca.pem; ssl_verify_client optional_no_ca; ssl_verify_depth 3; keepalive_requests 1;
  location / { return 200 "$ssl_server_name|$ssl_client_verify|$ssl_session_reused|$ssl_protocol"; } }
server { listen 127.0.0.1:{1};
  proxy_ssl_name one.example; proxy_ssl_server_name on; proxy_ssl_session_reuse off;
  location /with { proxy_ssl_certificate client.pem; proxy_ssl_certificate_key client.pem; proxy_pass https://127.0.0.1:{0}; }
  location /named { proxy_ssl_certificate $arg_c.pem; proxy_ssl_certificate_key $arg_c.pem; proxy_pass https://127.0.0.1:{0}; }
  location /maybe { proxy_ssl_certificate $arg_c; proxy_ssl_certificate_key $arg_c; proxy_pass https://127.0.0.1:{0}; }
  location /older { proxy_ssl_conf_command MaxProtocol TLSv1.2; proxy_pass https://127.0.0.1:{0}; }
  location /reused { proxy_ssl_session_reuse on; proxy_pass https://127.0.0.1:{0}; }
  location /trusted { proxy_ssl_verify on; proxy_ssl_verify_depth 3; proxy_ssl_trusted_certificate ca.pem; proxy_pass https://127.0.0.1:{0}; }
  location /stranger { proxy_ssl_verify on; proxy_ssl_trusted_certificate stranger.pem; proxy_pass https://127.0.0.1:{0}; }
  location /other { proxy_ssl_verify on; proxy_ssl_verify_depth 3; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name none.example; proxy_ssl_server_name off; proxy_pass https://127.0.0.1:{2}; }
}
server { listen 127.0.0.1:{2} ssl; ssl_certificate one.pem; ssl_certificate_key one.pem; return 200 two; }
"""


async def test_towards_upstreams(site, tmp_path):
    ports, _ = await site(UPSTREAMS)
    expected = {
        "/with": "one.example|SUCCESS|.|",
        "/named?c=client": "one.example|SUCCESS|.|",
        "/named?c=other": "one.example|FAILED:unable to verify the first certificate|.|",
        "/maybe": "one.example|NONE|.|",
        "/older": "one.example|NONE|.|TLSv1.2",
        "/reused": "one.example|NONE|.|",
        "/reused?again": "one.example|NONE|r|",
        "/trusted": "one.example|NONE|.|",
    }
    found = {}
    for path, wanted in expected.items():
        status, body = await plain(ports[1], path)
        assert status == 200
        found[path] = body if wanted.endswith("2") else body.rpartition("|")[0] + "|"
    assert found == expected
    for path in ("/stranger", "/other"):
        assert (await plain(ports[1], path))[0] == 502
    log = (tmp_path / "logs" / "error.log").read_text()
    assert "upstream SSL certificate verify error: (21:unable to verify the first certificate) while" in log
    assert 'upstream SSL certificate does not match "none.example" while SSL handshaking to upstream' in log
