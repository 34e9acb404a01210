"""stream {} over UDP: sessions by client, answers, limits, paces, the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.core.datagram import QUEUE, DatagramListener, open_datagrams
from headrace.edge.build import build
from headrace.edge.registry import families
from headrace.stream.families import stream_families


def _free_ports(count: int) -> list[int]:
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Dgram:
    """A socket of datagrams in the test's loop."""

    def __init__(self, family=socket.AF_INET, host="127.0.0.1") -> None:
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.bind((host, 0))
        self.port = self.sock.getsockname()[1]

    def send(self, data: bytes, port: int, host: str = "127.0.0.1") -> None:
        self.sock.sendto(data, (host, port))

    async def receive(self) -> tuple[bytes, tuple]:
        async with asyncio.timeout(10):
            return await asyncio.get_running_loop().sock_recvfrom(self.sock, 65536)

    async def ask(self, data: bytes, port: int) -> bytes:
        self.send(data, port)
        return (await self.receive())[0]

    def silent(self) -> bool:
        try:
            self.sock.recv(1)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def dgram():
    made = []

    def make(**kw) -> Dgram:
        made.append(Dgram(**kw))
        return made[-1]

    yield make
    for one in made:
        one.sock.close()


class Served:
    def __init__(self, gateway, folder, ports) -> None:
        self.gateway, self.folder, self.ports = gateway, folder, ports

    @property
    def sessions(self) -> int:
        return len(self.gateway.services[0]._sessions)

    def log(self, name="error.log") -> str:
        return (self.folder / "logs" / name).read_text()

    async def until(self, condition) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)


def build_stream(text: str, folder):
    problems = Problems()
    tree = parse(text, str(folder / "nginx.conf"))
    known = [*families(), *stream_families()]
    return build(tree, prefix=str(folder), problems=problems, conf_dir=str(folder), families=known), problems


@pytest.fixture
async def serve(tmp_path):
    """Start `stream { ... }`, with A, B and C for free ports of 127.0.0.1."""
    started = []
    (tmp_path / "logs").mkdir()

    async def start(lines: str, connections: int = 512):
        ports = _free_ports(3)
        for name, port in zip("ABC", ports, strict=True):
            lines = lines.replace(f":{name} ", f":{port} ").replace(f":{name};", f":{port};")
        text = f"""error_log logs/error.log info; events {{ worker_connections {connections}; }}
        stream {{ log_format l '$protocol $status $bytes_received/$bytes_sent $upstream_addr'; {lines} }}"""
        gateway, problems = build_stream(text, tmp_path)
        assert problems.errors == []
        loop = asyncio.get_running_loop()
        await gateway.start(loop, Clock(loop), {spec.socket_key: gateway.open_socket(spec) for spec in gateway.listens})
        started.append(gateway)
        return Served(gateway, tmp_path, ports)

    yield start
    for gateway in started:
        await gateway.stop(0.0)


async def echoes(one: Dgram, times: int, count: int = 1) -> list:
    """Answer datagrams, each `count` times; returns who sent them."""
    senders = []
    for _ in range(times):
        data, sender = await one.receive()
        senders.append(sender)
        for _ in range(count):
            one.sock.sendto(b"re:" + data, sender)
    return senders


async def test_a_session_belongs_to_a_client_until_nothing_comes(serve, dgram):
    served = await serve(
        """server { listen 127.0.0.1:A udp; proxy_pass 127.0.0.1:B; proxy_timeout 150ms; access_log logs/a.log l; }
        server { listen 127.0.0.1:B udp; return $remote_port; }"""
    )
    a, b = dgram(), dgram()
    first, other = await a.ask(b"x", served.ports[0]), await b.ask(b"x", served.ports[0])
    assert first != other
    assert await a.ask(b"x", served.ports[0]) == first
    assert await b.ask(b"x", served.ports[0]) == other
    await served.until(lambda: not served.sessions)
    assert served.log().count("udp timed out, packets from/to client:2/2") == 2
    assert f"UDP 200 2/10 127.0.0.1:{served.ports[1]}" in served.log("a.log")


async def test_requests_and_responses_end_a_session(serve, dgram):
    origin = dgram()
    served = await serve(
        f"""access_log logs/a.log l; proxy_timeout 10s;
        server {{ listen 127.0.0.1:A udp; proxy_pass 127.0.0.1:{origin.port}; proxy_responses 1; }}
        server {{ listen 127.0.0.1:B udp; proxy_pass 127.0.0.1:{origin.port}; proxy_responses 1; proxy_requests 2; }}
        server {{ listen 127.0.0.1:C udp; proxy_pass 127.0.0.1:{origin.port}; proxy_responses 0; }}"""
    )
    client = dgram()
    client.send(b"x", served.ports[0])
    await echoes(origin, 1)
    assert await client.receive() == (b"re:x", ("127.0.0.1", served.ports[0]))
    await served.until(lambda: not served.sessions)
    # A burst of five makes three sessions, though the first has no answer yet.
    for number in range(5):
        client.send(b"%d" % number, served.ports[1])
    senders = await echoes(origin, 5)
    assert len(set(senders)) == 3
    assert sorted([(await client.receive())[0] for _ in range(5)]) == [b"re:%d" % n for n in range(5)]
    client.send(b"no answer", served.ports[2])
    assert (await origin.receive())[0] == b"no answer"
    await served.until(lambda: served.sessions == 1)  # the last of the burst may have a second datagram
    assert served.log().count("udp done") == 4
    assert "UDP 200 9/0" in served.log("a.log")


async def test_nobody_listens_or_answers(serve, dgram):
    gone, dumb = dgram(), dgram()
    gone.sock.close()
    served = await serve(
        f"""access_log logs/a.log l; proxy_responses 1; upstream u {{ server 127.0.0.1:{gone.port}; server 127.0.0.1:C; }}
        server {{ listen 127.0.0.1:A udp; proxy_pass u; }}
        server {{ listen 127.0.0.1:B udp; proxy_pass 127.0.0.1:{dumb.port}; proxy_timeout 50ms; }}
        server {{ listen 127.0.0.1:C udp; return ok; }}"""
    )
    client = dgram()
    client.send(b"x", served.ports[0])
    await served.until(lambda: "udp done" in served.log())
    assert (
        "recv() failed (111: Connection refused) while proxying and reading from upstream, udp client" in served.log()
    )
    assert "upstream server temporarily disabled" in served.log()
    assert await client.ask(b"x", served.ports[0]) == b"ok"
    client.send(b"x", served.ports[1])
    await served.until(lambda: "upstream timed out" in served.log())
    await served.until(lambda: f"UDP 502 1/0 127.0.0.1:{dumb.port}" in served.log("a.log"))


async def test_a_header_names_the_client_and_what_is_too_fast_waits(serve, dgram):
    origin = dgram()
    served = await serve(
        f"""server {{ listen 127.0.0.1:A udp; proxy_pass 127.0.0.1:{origin.port}; proxy_protocol on; proxy_responses 1; }}
        server {{ listen 127.0.0.1:B udp; proxy_pass 127.0.0.1:{origin.port}; proxy_upload_rate 1000; }}"""
    )
    client = dgram()
    client.send(b"x", served.ports[0])
    line = f"PROXY TCP4 127.0.0.1 127.0.0.1 {client.port} {served.ports[0]}\r\n".encode()
    assert (await origin.receive())[0] == line + b"x"
    client.send(b"1" * 100, served.ports[1])
    client.send(b"2", served.ports[1])
    assert (await origin.receive())[0] == b"1" * 100
    assert origin.silent()  # the second leaves a tenth of a second after the first
    assert (await origin.receive())[0] == b"2"


async def test_sessions_are_limited_by_key_and_by_number(serve, dgram):
    origin = dgram()
    served = await serve(
        f"""limit_conn_zone $binary_remote_addr zone=z:64k;
        server {{ listen 127.0.0.1:A udp; limit_conn z 1; proxy_pass 127.0.0.1:{origin.port}; }}
        server {{ listen 127.0.0.1:B udp; proxy_pass 127.0.0.1:{origin.port}; }}""",
        connections=2,
    )
    one, two = dgram(), dgram()
    one.send(b"one", served.ports[0])
    two.send(b"two", served.ports[0])
    assert (await origin.receive())[0] == b"one"
    await served.until(lambda: 'limiting connections by zone "z"' in served.log())
    assert served.sessions == 1
    for client in (dgram(), dgram(), dgram()):
        client.send(b"b", served.ports[1])
    await served.until(lambda: "2 worker_connections are not enough" in served.log())
    assert served.sessions == 3


async def test_a_wildcard_answers_from_where_it_was_asked(serve, dgram):
    ports = _free_ports(1)
    await serve(f"server {{ listen {ports[0]} udp; return $server_addr; }}")
    client = dgram(host="127.0.0.1")
    client.send(b"x", ports[0], "127.0.0.2")
    assert await client.receive() == (b"127.0.0.2", ("127.0.0.2", ports[0]))


async def test_a_stop_ends_sessions_without_known_answers(serve, dgram):
    origin = dgram()
    served = await serve(
        f"""access_log logs/a.log l;
        server {{ listen 127.0.0.1:A udp; proxy_pass 127.0.0.1:{origin.port}; }}
        server {{ listen 127.0.0.1:B udp; proxy_pass 127.0.0.1:{origin.port}; proxy_responses 1; }}"""
    )
    client = dgram()
    client.send(b"a", served.ports[0])
    await origin.receive()
    client.send(b"b", served.ports[1])
    _, sender = await origin.receive()
    stop = asyncio.create_task(served.gateway.stop(5))
    await served.until(lambda: "udp disconnected on shutdown" in served.log())
    origin.sock.sendto(b"late", sender)
    assert (await client.receive())[0] == b"late"
    await stop
    assert served.log("a.log").count("UDP 200") == 2


@pytest.mark.parametrize("word", ["backlog=1", "ssl", "so_keepalive=on", "proxy_protocol"])
def test_what_udp_does_not_have_is_refused(tmp_path, word):
    _, problems = build_stream(f"events {{}} stream {{ server {{ listen 1 udp {word}; return x; }} }}", tmp_path)
    name = word.partition("=")[0]
    assert f'"{name}" parameter is incompatible with "udp"' in str(problems.errors[0])


def test_one_port_may_have_both_protocols(tmp_path):
    text = "events {} stream { server { listen 53; listen 53 udp; return x; } }"
    gateway, problems = build_stream(text, tmp_path)
    assert problems.errors == []
    assert [spec.udp for spec in gateway.listens] == [False, True]
    assert len({spec.socket_key for spec in gateway.listens}) == 2


async def test_a_client_that_nobody_reads_is_kept_within_bounds(dgram):
    loop = asyncio.get_running_loop()
    peers = []
    sock = open_datagrams(("127.0.0.1", 0))
    listener = DatagramListener(sock, loop, Clock(loop), lambda peer, first: peers.append((peer, first)))
    listener.start()
    client, last = dgram(), dgram()
    for number in range(QUEUE + 3):
        client.send(b"%d" % number, listener.address[1])
    last.send(b"", listener.address[1])
    async with asyncio.timeout(10):
        while len(peers) < 2:
            await asyncio.sleep(0.005)
    peers[1][0].close()
    peer, first = peers[0]
    assert first == b"0"
    assert [await peer.read() for _ in range(QUEUE)] == [b"%d" % n for n in range(1, QUEUE + 1)]
    waiting = asyncio.create_task(peer.read())
    await asyncio.sleep(0)
    peer.close()
    with pytest.raises(Exception, match="closed"):
        await waiting
    assert not listener.open
    listener.close()
    with contextlib.suppress(OSError):
        assert sock.fileno() == -1
