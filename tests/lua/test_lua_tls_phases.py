"""ssl_client_hello_by_lua*, ssl_certificate_by_lua*, ssl_session_*_by_lua* and ngx.ssl: the table, in nginx too."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from tlsphase_table import NEWER, TABLE, servers

from headrace.errors import ConfError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for plain.test, other.test, and client.test, and the CA."""
    made = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(made / "ca.crt"))
    for name in ("plain", "other", "client"):
        one = ca.issue_cert(f"{name}.test")
        one.private_key_pem.write_to_path(str(made / f"{name}.key"))
        (made / f"{name}.crt").write_bytes(b"".join(pem.bytes() for pem in one.cert_chain_pems))
    return made


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def client(folder, **options) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.check_hostname = False
    for name, value in options.items():
        setattr(context, name, value)
    return context


def shake(context: ssl.SSLContext, port: int, name: str, session=None):
    """The name in the server's certificate, the answer to a request, and the session; None when it fails."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
            context.wrap_socket(sock, server_hostname=name, session=session) as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := tls.recv(65536):
                answer += data
            return dict(tls.getpeercert()["subjectAltName"])["DNS"], answer, tls.session, tls.session_reused
    except (ssl.SSLError, ConnectionError):
        return None


async def wrong_ones(table, ports, folder) -> list[str]:
    context, wrong = client(folder), []
    for (name, _, asked, expected), port in zip(table, ports, strict=True):
        got = await asyncio.to_thread(shake, context, port, asked)
        if (got[0] if got else None) != expected:
            wrong.append(f"{name}: {got and got[0]}, not {expected}")
    return wrong


@pytest.mark.parametrize("table", [TABLE, NEWER])
async def test_table(gateway, folder, table):
    ports = free_ports(len(table))
    await gateway.start(http=servers(table, str(folder), ports))
    wrong = await wrong_ones(table, ports, folder)
    assert not wrong, "\n".join(wrong) + gateway.log()
    assert gateway.runtime.stats()["requests"] == 0
    assert not gateway.runtime.ssl.handshakes


@pytest.mark.peer
async def test_table_in_nginx(nginx, folder):
    ports = free_ports(len(TABLE))
    get = nginx("", http=servers(TABLE, str(folder), ports))
    wrong = await wrong_ones(TABLE, ports, folder)
    assert not wrong, "\n".join(wrong) + (get.folder / "error.log").read_text()


def one(folder, port: int, more: str = "", http: str = "", answer: str = 'ngx.print("hello")') -> str:
    return f"""{http}
    server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/plain.crt; ssl_certificate_key {folder}/plain.key;
        {more}
        location / {{ content_by_lua_block {{ {answer} }} }}
    }}"""


async def test_lines_of_the_log_say_where_they_come_from(gateway, folder):
    (port,) = free_ports(1)
    await gateway.start(http=one(folder, port, 'ssl_certificate_by_lua_block { print("here") error("no") }'))
    assert await asyncio.to_thread(shake, client(folder), port, "a") is None
    log = gateway.log()
    where = f", context: ssl_certificate_by_lua*, client: 127.0.0.1, server: 127.0.0.1:{port}"
    assert "[lua] ssl_certificate_by_lua(nginx.conf:8):1: here" + where in log
    assert "lua entry thread aborted: runtime error: ssl_certificate_by_lua(nginx.conf:8):1: no" in log


SESSIONS = """
    ssl_session_store_by_lua_block {
        local s = require "ngx.ssl.session"
        kept = kept or {}
        kept[assert(s.get_session_id())] = assert(s.get_serialized_session())
        stored = (stored or 0) + 1
    }
    ssl_session_fetch_by_lua_block {
        local s = require "ngx.ssl.session"
        %s
        local der = kept[assert(s.get_session_id())]
        fetched = (fetched or 0) + 1
        if der then assert(s.set_serialized_session(der)) end
    }
    ssl_session_cache off;
"""


@pytest.mark.parametrize("wait", ["", "ngx.sleep(0.01)"])
async def test_sessions_are_kept_and_fetched(gateway, folder, wait):
    (port,) = free_ports(1)
    http = SESSIONS.replace("ssl_session_cache off;", "ssl_session_cache none; ssl_session_tickets off;") % wait
    await gateway.start(http=one(folder, port, http=http, answer="ngx.print(stored, fetched or 0)"))
    context = client(folder, maximum_version=ssl.TLSVersion.TLSv1_2)
    first = await asyncio.to_thread(shake, context, port, "a")
    again = await asyncio.to_thread(shake, context, port, "a", first[2])
    assert (first[3], again[3]) == (False, True), gateway.log()
    assert b"10" in first[1]
    assert b"11" in again[1]


async def test_a_fetch_that_fails_is_no_session(gateway, folder):
    (port,) = free_ports(1)
    http = SESSIONS.replace("ssl_session_cache off;", "ssl_session_tickets off;") % 'error("no")'
    await gateway.start(http=one(folder, port, http=http))
    context = client(folder, maximum_version=ssl.TLSVersion.TLSv1_2)
    first = await asyncio.to_thread(shake, context, port, "a")
    again = await asyncio.to_thread(shake, context, port, "a", first[2])
    assert again is not None
    assert not again[3]


async def test_a_store_that_fails_says_so(gateway, folder):
    (port,) = free_ports(1)
    await gateway.start(
        http=one(folder, port, http="ssl_session_store_by_lua_block { ngx.sleep(1) } ssl_session_tickets off;")
    )
    assert (await asyncio.to_thread(shake, client(folder, maximum_version=ssl.TLSVersion.TLSv1_2), port, "a"))[
        0
    ] == "plain.test"
    said = (
        "failed to run session_store_by_lua*: ssl_session_store_by_lua(nginx.conf:6):1: API disabled in the context of"
    )
    assert said + " ssl_session_store_by_lua*" in gateway.log()


async def test_sessions_of_tls_1_3_are_not_a_matter_of_scripts(gateway, folder):
    (port,) = free_ports(1)
    await gateway.start(http=one(folder, port, http=SESSIONS.replace("cache off", "tickets off") % ""), level="debug")
    context = client(folder)
    first = await asyncio.to_thread(shake, context, port, "a")
    again = await asyncio.to_thread(shake, context, port, "a", first[2])
    assert again[0] == "plain.test"
    log = gateway.log()
    assert "ssl_session_store_by_lua*: skipped since TLS version >= 1.3 (772)" in log
    assert "[error]" not in log


@pytest.mark.parametrize(
    ("arguments", "verified"), [("pem, 2", b"SUCCESS"), ("nil, 2, pem", b"SUCCESS"), ("nil, 2", b"FAILED")]
)
async def test_clients_may_be_asked_for_a_certificate(gateway, folder, arguments, verified):
    (port,) = free_ports(1)
    script = f"""ssl_certificate_by_lua_block {{
        local ssl = require "ngx.ssl"
        local f = io.open("{folder}/ca.crt") local pem = assert(ssl.parse_pem_cert(f:read("*a"))) f:close()
        assert(ssl.verify_client({arguments}))
    }}"""
    await gateway.start(http=one(folder, port, script, answer="ngx.print(ngx.var.ssl_client_verify)"))
    bare = client(folder)
    assert b"NONE" in (await asyncio.to_thread(shake, bare, port, "a"))[1]
    known = client(folder)
    known.load_cert_chain(str(folder / "client.crt"), str(folder / "client.key"))
    assert verified in (await asyncio.to_thread(shake, known, port, "a"))[1]


async def test_requests_may_ask_their_connection(gateway, folder):
    (port,) = free_ports(1)
    answer = """
        local ssl = require "ngx.ssl"
        ngx.say(ssl.server_name(), " ", ssl.get_tls1_version_str(), " ", #ssl.get_client_random(), " ", #ssl.get_server_random(), " ",
            #ssl.get_session_master_key(), " ", #ssl.export_keying_material(16, "EXPORTER-test", "x"), " ", ssl.server_port())
        ngx.say(ssl.ssl_session_reused(assert(ssl.get_req_ssl_pointer())))
    """
    http = one(folder, port, answer=answer)
    plain = 'location / { content_by_lua_block { ngx.say(select(2, require("ngx.ssl").server_name())) } }'
    await gateway.start(plain, http=http)
    got = (await asyncio.to_thread(shake, client(folder), port, "good.test"))[1]
    assert f"good.test TLSv1.3 32 32 48 16 {port}\nfalse\n".encode() in got, gateway.log()
    assert (await gateway.get()).text == "bad ssl conn\n"


async def test_a_client_that_leaves_ends_the_script(gateway, folder):
    (port,) = free_ports(1)
    script = "ssl_certificate_by_lua_block { ngx.sleep(30) }"
    await gateway.start(http=one(folder, port, script))
    context = client(folder)

    def leave():
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                context.wrap_socket(sock, server_hostname="a")

    await asyncio.to_thread(leave)
    assert len(gateway.runtime.ssl.handshakes) <= 1


async def test_a_server_without_tls_has_no_handshakes(gateway):
    with pytest.raises(ConfError, match="no ssl configured for the server"):
        await gateway.start("ssl_certificate_by_lua_block { print(1) }")
