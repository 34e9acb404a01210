"""stream {} on real sockets: handing on, peers, TLS, preread, limits, logs, the end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
import trustme

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.edge.build import build
from headrace.edge.registry import families
from headrace.stream.families import stream_families


def build_stream(text: str, folder):
    problems = Problems()
    tree = parse(text, str(folder / "nginx.conf"))
    known = [*families(), *stream_families()]
    return build(tree, prefix=str(folder), problems=problems, conf_dir=str(folder), families=known), problems


@pytest.fixture
async def serve(tmp_path):
    """Start `stream { ... }`; servers listen on unix sockets named by the test."""
    started = []
    (tmp_path / "logs").mkdir()

    async def start(lines: str):
        text = f"events {{}} error_log logs/error.log info; stream {{ {lines.replace('SOCK', f'unix:{tmp_path}/')} }}"
        gateway, problems = build_stream(text, tmp_path)
        assert problems.errors == []
        loop = asyncio.get_running_loop()
        await gateway.start(loop, Clock(loop), {spec.address: gateway.open_socket(spec) for spec in gateway.listens})
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        await gateway.stop(0.0)


@pytest.fixture
def talk(tmp_path):
    """Send bytes to a socket and read until the end."""

    async def ask(name: str, data: bytes = b"", *, eof: bool = False, **tls) -> bytes:
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/{name}", **tls)
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    return ask


@pytest.fixture
async def origin(tmp_path):
    """Start a server on a unix socket: it answers with what `answer` makes of the first bytes, and closes."""
    servers = []

    async def start(name: str, answer):
        async def serve_one(reader, writer):
            data = await reader.read(65536)
            writer.write(answer(data))
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

        servers.append(await asyncio.start_unix_server(serve_one, f"{tmp_path}/{name}"))

    yield start
    for server in servers:
        server.close()


async def test_bytes_go_both_ways_and_are_counted(serve, talk, origin, tmp_path):
    await origin("o", lambda data: data.upper() * 100_000)
    await serve(
        """log_format all "$protocol $status $bytes_received $bytes_sent $upstream_bytes_sent $upstream_bytes_received";
        server { listen SOCKa; proxy_pass SOCKo; access_log logs/a.log all; }"""
    )
    assert await talk("a", b"hello") == b"HELLO" * 100_000
    await asyncio.sleep(0)
    assert (tmp_path / "logs" / "a.log").read_text() == "TCP 200 5 500000 5 500000\n"
    text = (tmp_path / "logs" / "error.log").read_text()
    assert "upstream disconnected" in text
    assert "bytes from/to client:5/500000, bytes from/to upstream:500000/5" in text


async def test_peers_take_turns_and_a_dead_one_is_passed_over(serve, talk, origin):
    await origin("one", lambda _data: b"1")
    await origin("two", lambda _data: b"2")
    await serve(
        """upstream u { server SOCKone; server SOCKnobody; server SOCKtwo; }
        server { listen SOCKa; proxy_pass u; }
        server { listen SOCKb; proxy_pass SOCKnobody; }"""
    )
    assert sorted([await talk("a", b"x") for _ in range(4)]) == [b"1", b"1", b"2", b"2"]
    assert await talk("b") == b""


async def test_values_maps_and_addresses(serve, talk):
    await serve(
        """map $proxy_protocol_port $even { ~[02468]$ even; default odd; }
        geo $remote_addr $from { default far; 192.0.2.0/24 near; }
        set_real_ip_from unix:;
        server { listen SOCKa proxy_protocol; set $mine "$even!"; return "$mine $from $remote_addr:$remote_port"; }
        server { listen SOCKb proxy_protocol; deny 192.0.2.1; return no; }
        server { listen SOCKc; proxy_pass SOCKa; proxy_protocol on; }"""
    )
    assert await talk("a", b"PROXY TCP4 192.0.2.1 192.0.2.2 122 5678\r\n") == b"even! near 192.0.2.1:122"
    assert await talk("a", b"nothing\r\n", eof=True) == b""
    assert await talk("b", b"PROXY TCP4 192.0.2.1 192.0.2.2 122 5678\r\n") == b""
    assert await talk("b", b"PROXY TCP4 192.0.2.9 192.0.2.2 122 5678\r\n") == b"no"
    assert await talk("c") == b"odd! far unix::"


async def test_tls_ends_here_begins_here_or_is_read_only(serve, talk, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("one.example", "two.example"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")

    def server(name: str) -> str:
        cert = f"ssl_certificate {name}.example.pem; ssl_certificate_key {name}.example.pem;"
        return f'server {{ listen SOCK{name} ssl; {cert} return "{name} $ssl_protocol"; }}'

    await serve(
        f"""map $ssl_preread_server_name $to {{ one.example SOCKone; two.example SOCKtwo; }}
        {server("one")} {server("two")}
        server {{ listen SOCKa; ssl_preread on; proxy_pass $to; }}
        server {{ listen SOCKb; proxy_pass SOCKone; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_name one.example;
                 proxy_ssl_trusted_certificate ca.pem; }}
        server {{ listen SOCKc; proxy_pass SOCKone; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_name two.example;
                 proxy_ssl_trusted_certificate ca.pem; }}"""
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for name in ("one", "two"):
        said = await talk("a", ssl=context, server_hostname=f"{name}.example")
        assert said == f"{name} TLSv1.3".encode()
    assert await talk("b") == b"one TLSv1.3"
    assert await talk("c") == b""


async def test_a_name_chooses_the_server(serve, talk, tmp_path):
    authority = trustme.CA()
    for name in ("one.example", "two.example"):
        authority.issue_cert(name, f"a.{name}", f"b.{name}").private_key_and_cert_chain_pem.write_to_path(
            tmp_path / f"{name}.pem"
        )
    files = "ssl_certificate {0}.pem; ssl_certificate_key {0}.pem;"
    one, two = files.format("one.example"), files.format("two.example")
    await serve(
        f"""server {{ listen SOCKa ssl; server_name one.example; {one} return "1 $server_name"; }}
        server {{ listen SOCKa; server_name two.example *.two.example; {two} set $x 2; return "$x $server_name"; }}
        server {{ listen SOCKa; server_name ~^(?<who>[a-z])[.]one[.]example$; {one} return "3 $who $ssl_server_name"; }}
        server {{ listen SOCKb; ssl_preread on; proxy_pass SOCKnobody; }}
        server {{ listen SOCKb default_server; ssl_preread on; server_name _; return none; }}
        server {{ listen SOCKb; server_name two.example; proxy_pass SOCKa; }}"""
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for name, said in (
        ("one.example", b"1 one.example"),
        ("two.example", b"2 two.example"),
        ("b.two.example", b"2 two.example"),
        ("b.one.example", b"3 b b.one.example"),
    ):
        assert await talk("a", ssl=context, server_hostname=name) == said
    assert await talk("b", ssl=context, server_hostname="two.example") == b"2 two.example"
    assert await talk("b", b"no hello") == b"none"


async def test_half_close_and_timeout(serve, talk, tmp_path):
    async def serve_one(reader, writer):
        writer.write(b"all: " + await reader.read())
        writer.close()

    server = await asyncio.start_unix_server(serve_one, f"{tmp_path}/o")
    await serve(
        """server { listen SOCKa; proxy_pass SOCKo; proxy_half_close on; }
        server { listen SOCKb; proxy_pass SOCKo; proxy_timeout 50ms; }"""
    )
    assert await talk("a", b"it", eof=True) == b"all: it"
    assert await talk("b", b"it") == b""
    server.close()


async def test_connections_of_a_key_are_limited(serve, talk, tmp_path):
    await serve(
        """limit_conn_zone $server_addr zone=z:64k;
        server { listen SOCKa; limit_conn z 1; proxy_pass SOCKo; }"""
    )
    held = asyncio.Event()

    async def serve_one(_reader, writer):
        writer.write(b"in")
        await held.wait()
        writer.close()

    server = await asyncio.start_unix_server(serve_one, f"{tmp_path}/o")
    reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/a")
    assert await reader.readexactly(2) == b"in"
    assert await talk("a") == b""
    held.set()
    assert await reader.read() == b""
    writer.close()
    server.close()


async def test_a_stop_waits_for_sessions_within_its_deadline(serve, tmp_path):
    async def serve_one(_reader, writer):
        writer.write(b"in")

    server = await asyncio.start_unix_server(serve_one, f"{tmp_path}/o")
    gateway = await serve("server { listen SOCKa; proxy_pass SOCKo; }")
    reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/a")
    assert await reader.readexactly(2) == b"in"
    stop = asyncio.create_task(gateway.stop(0.05))
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    await stop
    writer.close()
    server.close()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("server { listen 1; }", "no handler for server"),
        ("server { return x; }", 'no "listen" is defined'),
        ("server { listen 1; proxy_pass 127.0.0.1; }", 'no port in upstream "127.0.0.1"'),
        ("server { listen 1; listen 1; return x; }", "a duplicate listen 0.0.0.0:1"),
        (
            "server { listen 1 default_server; return x; } server { listen 1 default_server; return y; }",
            "a duplicate default server for 0.0.0.0:1",
        ),
        (
            "server { listen 1 backlog=5; return x; } server { listen 1 backlog=6; return y; }",
            "duplicate listen options",
        ),
        ("server { listen 1; server_name ~; return x; }", "empty regex in server name"),
        ("server { listen 1 ssl; return x; }", 'no "ssl_certificate" is defined'),
        ("server { listen 1; return $nothing; }", 'unknown "nothing" variable'),
        ("server { listen 1; root /; return x; }", '"root" directive is not allowed here'),
        ("upstream u { } server { listen 1; proxy_pass u; }", "no servers are inside upstream"),
        ("server { listen 1; proxy_upload_rate x; return x; }", "invalid value"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, lines, message):
    _, problems = build_stream(f"events {{}} stream {{ {lines} }}", tmp_path)
    assert any(message in str(error) for error in problems.errors), problems.errors


def test_both_blocks_stand_side_by_side(tmp_path):
    text = """events {} http { map $host $x { default 1; } upstream u { server 127.0.0.1:1; } server { listen 81; return 200 $x; } }
    stream { map $server_port $x { default 1; } upstream u { server 127.0.0.1:2; } server { listen 82; proxy_pass u; } }"""
    gateway, problems = build_stream(text, tmp_path)
    assert problems.errors == []
    assert [spec.text for spec in gateway.listens] == ["0.0.0.0:81", "0.0.0.0:82"]
