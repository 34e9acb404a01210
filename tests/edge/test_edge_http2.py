"""HTTP/2 on real sockets, with h2 as the client: answers, windows, turns, limits, ends."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from headrace.core.http2 import frames as h2
from headrace.edge.request import live

sys.path.insert(0, str(Path(__file__).parent))


class Client:
    """A connection; `answers` has status, headers and body by stream, `resets` and `goaway` the codes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.bodies: dict[int, bytes] = {}
        self.heads: dict[int, dict[str, str]] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.resets: dict[int, int] = {}
        self.order: list[int] = []
        self.done: set[int] = set()
        self.goaway = None
        self.eof = False
        self.acknowledge = True

    @classmethod
    async def connect(cls, port, **tls):
        return cls(*await asyncio.open_connection("127.0.0.1", port, **tls))

    def send(self):
        self.writer.write(self.h2.data_to_send())

    def ask(self, path, *fields, method="GET", end=True, host="localhost"):
        number = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", host), *fields]
        self.h2.send_headers(number, head, end_stream=end)
        self.send()
        return number

    async def pump(self, until):
        """Read until the condition holds, or the connection ends."""
        async with asyncio.timeout(10):
            while not until() and not self.eof:
                data = await self.reader.read(65536)
                if not data:
                    self.eof = True
                    return self
                for event in self.h2.receive_data(data):
                    self.take(event)
                self.send()
        return self

    def take(self, event):
        number = getattr(event, "stream_id", None)
        if isinstance(event, ResponseReceived):
            self.heads[number] = dict(event.headers)
            self.bodies[number] = b""
        elif isinstance(event, DataReceived):
            self.bodies[number] += event.data
            self.order.append(number)
            if self.acknowledge:
                self.h2.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, TrailersReceived):
            self.trailers[number] = dict(event.headers)
        elif isinstance(event, StreamEnded):
            self.done.add(number)
        elif isinstance(event, StreamReset):
            self.resets[number] = event.error_code
        elif isinstance(event, ConnectionTerminated):
            self.goaway = event.error_code

    async def answer(self, number):
        await self.pump(lambda: number in self.done or number in self.resets)
        return self.heads[number][":status"], self.bodies[number]

    async def get(self, path, *fields, **more):
        return await self.answer(self.ask(path, *fields, **more))

    async def raw(self, data):
        """Bytes that h2 would not send; then everything until the end."""
        self.send()
        self.writer.write(data)
        return await self.pump(lambda: self.goaway is not None)


@pytest.fixture(autouse=True)
def _fresh():
    yield
    assert live == {}


@pytest.fixture
async def site(serve, tmp_path):
    """A site with HTTP/2; `site.client()` connects."""
    clients = []

    async def start(lines: str, outer: str = ""):
        running = await serve(
            f"""http {{ access_log logs/access.log; http2 on; {outer}
            server {{ listen 127.0.0.1:80; server_name localhost; {lines} }} }} error_log logs/error.log info;"""
        )

        async def client(**tls):
            made = await Client.connect(running.port, **tls)
            clients.append(made)
            return made

        running.client = client
        (tmp_path / "html").mkdir(exist_ok=True)
        return running

    yield start
    for client in clients:
        client.writer.close()


async def test_answers_logs_and_variables(site):
    running = await site(
        'location = /a { add_header X-A "$arg_x"; return 200 "$server_protocol $http2 $host $scheme"; }'
    )
    client = await running.client()
    assert await client.get("/a?x=1") == ("200", b"HTTP/2.0 h2c localhost http")
    assert client.heads[1]["x-a"] == "1"
    assert "connection" not in client.heads[1]
    assert (await client.get("/nothing"))[0] == "404"
    head = client.ask("/a", method="HEAD")
    assert await client.answer(head) == ("200", b"")
    assert '"GET /a?x=1 HTTP/2.0" 200 27' in running.log("access.log")
    # HTTP/1 on the same port.
    status, _, body = await running.get("/a")
    assert (status, body) == (200, b"HTTP/1.1  localhost http")


async def test_over_tls_by_alpn_and_by_server_name(serve, tmp_path):
    authority = trustme.CA()
    for name in ("localhost", "old.example"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    running = await serve(
        "http { access_log off; "
        + "".join(
            f"server {{ listen 127.0.0.1:443 ssl; server_name {name}; http2 {on}; ssl_certificate {name}.pem;"
            f' ssl_certificate_key {name}.pem; return 200 "$http2 $ssl_protocol"; }}'
            for name, on in (("localhost", "on"), ("old.example", "off"))
        )
        + "}"
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = await Client.connect(running.port, ssl=context, server_hostname="localhost")
    assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    assert await client.get("/") == ("200", b"h2 TLSv1.3")
    client.writer.close()
    other = await Client.connect(running.port, ssl=context, server_hostname="old.example")
    assert other.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    other.writer.close()


async def test_bodies_are_read_limited_and_dropped(site):
    running = await site(
        """client_max_body_size 200k;
        location /echo { content_by_python edge_handlers:echo; }
        location /drop { return 200 ok; }"""
    )
    client = await running.client()

    async def post(path, size, declared=True):
        fields = [("content-length", str(size))] if declared else []
        number = client.ask(path, *fields, method="POST", end=False)
        left = size
        while left and number not in client.resets and number not in client.done:
            room = min(left, client.h2.local_flow_control_window(number), 16384)
            if not room:
                await client.pump(
                    lambda: (
                        client.h2.local_flow_control_window(number)
                        if number not in client.resets | client.heads
                        else True
                    )
                )
                if number in client.heads:
                    break
                continue
            client.h2.send_data(number, b"x" * room)
            left -= room
            client.send()
        if not left:
            client.h2.end_stream(number)
            client.send()
        return await client.answer(number)

    for declared in (True, False):
        status, body = await post("/echo", 190_000, declared)
        assert (status, len(body)) == ("200", 190_000)
    assert (await post("/echo", 300_000))[0] == "413"
    assert await post("/drop", 190_000) == ("200", b"ok")
    assert await client.get("/drop") == ("200", b"ok")


async def test_a_slow_stream_holds_no_other(site, tmp_path):
    running = await site("location = /small { return 200 small; }")
    (tmp_path / "html" / "big").write_bytes(b"x" * 1_000_000)
    client = await running.client()
    client.acknowledge = False
    client.h2.increment_flow_control_window(1 << 20)
    big = client.ask("/big")
    await client.pump(lambda: len(client.bodies.get(big, b"")) == 65535)
    assert await client.get("/small") == ("200", b"small")
    assert len(client.bodies[big]) == 65535
    assert big not in client.done
    client.h2.increment_flow_control_window(1 << 20, big)
    client.send()
    status, body = await client.answer(big)
    assert (status, len(body)) == ("200", 1_000_000)


async def test_streams_take_turns(site, tmp_path):
    running = await site("http2_chunk_size 1k;")
    for name in "ab":
        (tmp_path / "html" / name).write_bytes(name.encode() * 40_000)
    client = await running.client()
    client.h2.update_settings({4: 16})
    first, second = client.ask("/a"), client.ask("/b")
    await client.pump(lambda: len(client.order) == 2)
    assert sorted(client.order) == [first, second]
    client.acknowledge = False
    for number in (first, second):
        client.h2.increment_flow_control_window(50_000, number)
    client.h2.increment_flow_control_window(50_000)
    client.send()
    await client.answer(first)
    await client.answer(second)
    half = client.order[: len(client.order) // 2]
    assert abs(half.count(first) - half.count(second)) <= 3


async def test_too_many_streams_are_refused(site):
    running = await site("http2_max_concurrent_streams 2; location /wait { content_by_python edge_handlers:echo; }")
    client = await running.client()
    waiting = [client.ask("/wait", method="POST", end=False) for _ in range(2)]
    await client.pump(lambda: client.h2.remote_settings.max_concurrent_streams == 2)
    block = b"\x82\x86\x84\x41\x09localhost"
    client.writer.write(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 5, block))
    data = b""
    async with asyncio.timeout(10):
        while h2.reset_frame(5, h2.REFUSED_STREAM) not in data:
            data += await client.reader.read(65536)
    for number in waiting:
        client.h2.end_stream(number)
    client.send()
    for number in waiting:
        assert (await client.answer(number))[0] == "200"


async def test_a_stop_lets_streams_end(site, tmp_path):
    running = await site("")
    (tmp_path / "html" / "big").write_bytes(b"x" * 100_000)
    client = await running.client()
    client.acknowledge = False
    big = client.ask("/big")
    await client.pump(lambda: len(client.bodies.get(big, b"")) == 65535)
    stop = asyncio.create_task(running.gateway.stop(10))
    await client.pump(lambda: client.goaway is not None)
    assert client.goaway == h2.NO_ERROR
    client.writer.write(h2.window_frame(0, 100_000) + h2.window_frame(big, 100_000))
    left = 100_000 - 65535
    data = b""
    async with asyncio.timeout(10):
        while len(data) < left:
            piece = await client.reader.read(65536)
            assert piece
            data += piece
    client.writer.close()
    await stop


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (h2.frame(h2.PING, 0, 0, b"1"), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.PING, 0, 1, b"12345678"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, b"1"), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.SETTINGS, 0, 1), h2.PROTOCOL_ERROR),
        (h2.settings_frame({h2.SET_WINDOW: 1 << 31}), h2.FLOW_CONTROL_ERROR),
        (h2.settings_frame({h2.SET_FRAME_SIZE: 1}), h2.PROTOCOL_ERROR),
        (h2.window_frame(0, 0), h2.PROTOCOL_ERROR),
        (h2.window_frame(0, h2.MAX_WINDOW), h2.FLOW_CONTROL_ERROR),
        (h2.frame(h2.DATA, 0, 1, b"x"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.DATA, h2.PADDED, 0, b"x"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, h2.END_HEADERS, 2, b"\x82"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), h2.COMPRESSION_ERROR),
        (h2.frame(h2.CONTINUATION, 0, 1, b"\x82"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.frame(h2.PING, 0, 0, b"12345678"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.RST_STREAM, 0, 1, b"1234"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.PRIORITY, 0, 1, b"1"), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.GOAWAY, 0, 0, b"1"), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.PUSH_PROMISE, 0, 1, b""), h2.PROTOCOL_ERROR),
        (b"\xff\xff\xff\x01\x00\x00\x00\x00\x01", h2.FRAME_SIZE_ERROR),
    ],
)
async def test_what_ends_a_connection(site, data, code):
    running = await site("")
    client = await (await running.client()).raw(data)
    assert client.goaway == code


@pytest.mark.parametrize(
    "flood",
    [
        h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.frame(h2.CONTINUATION, 0, 1, b"") * 1000,
        h2.frame(h2.PRIORITY, 0, 1, b"\0\0\0\0\0") * 700_000,
        b"".join(
            h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, number, b"\x82\x86\x84\x41\x01a")
            + h2.reset_frame(number, h2.CANCEL)
            for number in range(1, 1001, 2)
        ),
    ],
    ids=["continuation", "priority", "rapid reset"],
)
async def test_floods_end_their_connection(site, flood):
    running = await site("location / { content_by_python edge_handlers:wait; }")
    client = await running.client()
    client.send()

    async def push():
        for at in range(0, len(flood), 1 << 16):
            client.writer.write(flood[at : at + (1 << 16)])
            await client.writer.drain()

    pushing = asyncio.create_task(push())
    reader, codes = h2.FrameReader(), []
    async with asyncio.timeout(20):
        while not codes:
            data = await client.reader.read(65536)
            assert data
            reader.feed(data)
            while (one := reader.next()) is not None:
                if one[0] == h2.GOAWAY:
                    codes.append(int.from_bytes(one[3][4:8]))
    assert codes == [h2.ENHANCE_YOUR_CALM]
    pushing.cancel()
    await asyncio.gather(pushing, return_exceptions=True)
    await asyncio.sleep(0.3)  # the handlers' own


async def test_an_idle_connection_is_told_to_go(site):
    running = await site("keepalive_timeout 50ms; location / { return 200 ok; }")
    client = await running.client()
    assert await client.get("/") == ("200", b"ok")
    await client.pump(lambda: False)
    assert client.goaway == h2.NO_ERROR


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl(site, tmp_path):
    running = await site("")
    (tmp_path / "html" / "big").write_bytes(bytes(range(256)) * 10_000)
    process = await asyncio.create_subprocess_exec(
        "curl", "-s", "-w", "%{http_version}", "--http2-prior-knowledge", f"http://127.0.0.1:{running.port}/big",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert out == bytes(range(256)) * 10_000 + b"2"
