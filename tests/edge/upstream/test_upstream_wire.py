"""Origins that break, balancing, kept connections, uploads and downloads at the speed of the other side."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest
from upstream_rig import Answer

from headrace.edge.upstream import answer
from headrace.testing.origin import Origin, Reply, ok

KEPT = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://u;"


def servers(*origins, tail: str = "") -> str:
    return "upstream u { " + " ".join(f"server 127.0.0.1:{one.port};" for one in origins) + f" {tail} }}"


def reset(writer) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


BROKEN = [
    (Reply(b"", close=True), "upstream prematurely closed connection while reading response header from upstream"),
    (Reply(b"", reset=True), "recv() failed (104: Connection reset by peer) while reading response header"),
    (Reply(b"HTTP/1.1 200 OK\r\nX", close=True), "upstream prematurely closed connection while reading response"),
    (Reply(b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 100) * 90), "upstream sent too big header while reading"),
    (Reply(b"", hold=True), "upstream timed out (110: Connection timed out) while reading response header"),
]


@pytest.mark.parametrize(("reply", "line"), BROKEN)
async def test_a_try_without_an_answer_goes_to_the_next_peer(ours, origin, reply, line):
    bad, good = await origin([reply]), await origin([ok(b"fine")])
    words = "error timeout invalid_header"
    await ours.start(
        f"location / {{ proxy_read_timeout 100ms; proxy_next_upstream {words}; proxy_pass http://u; }}",
        servers(bad, good),
        log="$status [$upstream_status] $upstream_addr",
    )
    answer = await ours.get("/")
    assert (answer.status, answer.body) == (200, b"fine")
    assert (bad.accepts, good.accepts) == (1, 1)
    assert line in ours.log()
    first = 504 if "timed out" in line else 502
    assert ours.log("access.log") == (f"200 [{first}, 200] 127.0.0.1:{bad.port}, 127.0.0.1:{good.port}\n")


async def test_what_may_not_be_sent_twice_is_not(ours, origin):
    bad, good = await origin([Reply(b"", close=True)]), await origin([ok(b"fine")])
    await ours.start("location / { proxy_pass http://u; }", servers(bad, good))
    assert (await ours.get("/", method="POST", body=b"x")).status == 502
    assert good.accepts == 0
    assert (await ours.get("/", method="POST", body=b"x")).status == 200  # the first one rests


async def test_statuses_and_tries_of_next_upstream(ours, origin):
    bad = [await origin([ok(b"no", status="503 No")]) for _ in range(3)]
    await ours.start(
        "location / { proxy_next_upstream http_503; proxy_pass http://u; }"
        "location /two { proxy_next_upstream http_503; proxy_next_upstream_tries 2; proxy_pass http://u; }",
        servers(*bad).replace(";", " max_fails=0;", 3),
    )
    answer = await ours.get("/")
    assert (answer.status, answer.body) == (503, b"no")
    assert [one.accepts for one in bad] == [1, 1, 1]
    assert (await ours.get("/two")).status == 503
    assert sum(one.accepts for one in bad) == 5


async def test_nobody_alive(ours, origin):
    one, two = await origin([ok()]), await origin([ok()])
    await one.stop()
    await two.stop()
    await ours.start("location / { proxy_pass http://u/x; }", servers(one, two), log="$upstream_status $upstream_addr")
    assert [(await ours.get("/a")).status for _ in range(2)] == [502, 502]
    assert 'no live upstreams while connecting to upstream, client: unix:, server: localhost, request: "GET /a' in (
        ours.log()
    )
    assert 'upstream: "http://u/xa"' in ours.log()
    assert ours.log("access.log").splitlines()[1] == "502 u"


# kept connections


async def test_connections_are_kept_and_counted(ours, origin):
    there = await origin([ok(b"a" * 100)])
    await ours.start(f"location / {{ {KEPT} }}", servers(there, tail="keepalive 4;"))
    for _ in range(10):
        assert (await ours.get("/")).status == 200
    assert (there.accepts, len(there.requests)) == (1, 10)
    figures = ours.gateway.stats()["upstreams"]["u"]
    assert (figures["opened"], figures["reused"], figures["stale"], figures["idle"]) == (1, 9, 0, 1)


async def test_a_kept_connection_that_ended_is_noticed_before_a_byte_is_written(ours, origin):
    there = await origin([ok(b"a"), ok(b"b")])
    await ours.start(f"location / {{ {KEPT} }}", servers(there, tail="keepalive 4;"))
    assert (await ours.get("/")).body == b"a"
    for writer in list(there.writers):
        writer.close()
    await there.all_closed()
    assert (await ours.get("/", method="POST", body=b"x")).body == b"b"
    assert (there.accepts, len(there.requests)) == (2, 2)


async def test_a_kept_connection_that_breaks_at_the_request_is_tried_anew(ours, bare):
    answered = []

    async def once(reader, writer) -> None:
        answered.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")

    port = await bare(once)
    await ours.start(f"location / {{ {KEPT} }}", f"upstream u {{ server 127.0.0.1:{port}; keepalive 2; }}")
    assert [(await ours.get("/")).status for _ in range(3)] == [200, 200, 200]
    assert len(answered) == 3
    assert ours.gateway.stats()["upstreams"]["u"]["stale"] == 2


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (ok(b"x"), True),
        (ok(b"x", chunked=True), True),
        (ok(status="204 No Content"), True),
        (ok(b"x", headers=["Connection: close"]), False),
        (Reply(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), False),
        (Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxtoo much"), False),
    ],
)
async def test_what_is_kept(ours, origin, reply, kept):
    there = await origin([reply])
    await ours.start(f"location / {{ {KEPT} }}", servers(there, tail="keepalive 2;"))
    for _ in range(2):
        await ours.get("/")
    assert there.accepts == (1 if kept else 2)


async def test_kept_connections_have_limits(ours, origin):
    there = await origin([ok(b"x")])
    await ours.start(f"location / {{ {KEPT} }}", servers(there, tail="keepalive 2; keepalive_requests 3;"))
    for _ in range(7):
        await ours.get("/")
    assert there.accepts == 3


# bodies


async def test_a_slow_client_frees_the_upstream_and_costs_no_memory(ours, origin):
    size = 30_000_000
    there = await origin([ok(b"x" * size, close=True)])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}")
    reader, writer = await asyncio.open_unix_connection(ours.path, limit=4096)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    await there.all_closed()
    held = max(conn.stream.chain.length for conn in ours.gateway.connections)
    assert held <= 2_000_000  # a piece of the file counts as one, and is no memory
    assert "is buffered to a temporary file" in ours.log()
    body = b""
    while piece := await reader.read(1 << 20):
        body += piece
    assert len(body) == size
    assert b"Content-Length: 30000000" in head
    writer.close()


async def test_without_a_temporary_file_the_upstream_waits(ours, origin):
    size = 20_000_000
    there = await origin([ok(b"x" * size, close=True)])
    await ours.start(
        f"location / {{ proxy_max_temp_file_size 0; proxy_pass http://127.0.0.1:{there.port}; }}"
        f"location /un {{ proxy_buffering off; proxy_pass http://127.0.0.1:{there.port}; }}"
    )
    for path in (b"/", b"/un"):
        reader, writer = await asyncio.open_unix_connection(ours.path, limit=4096)
        writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        assert there.open == 1
        assert max(conn.stream.chain.length for conn in ours.gateway.connections) < 200_000
        total = 0
        while piece := await reader.read(1 << 20):
            total += len(piece)
        assert total == size
        writer.close()
    assert "temporary file" not in ours.log()


async def test_an_unbuffered_answer_comes_as_it_is_made(ours, bare):
    step = asyncio.Event()

    async def events(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(3):
            writer.write(b"data: %d\n\n" % number)
            await step.wait()
            step.clear()

    port = await bare(events)
    await ours.start(f"location / {{ proxy_buffering off; proxy_pass http://127.0.0.1:{port}; }}")
    reader, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for number in range(3):
        await asyncio.wait_for(reader.readuntil(b"data: %d\n\n" % number), 10)
        step.set()
    writer.close()


async def test_an_upload_is_handed_on_while_it_arrives(ours, bare):
    first, done = asyncio.Event(), asyncio.Event()
    got = []

    async def take(reader, writer) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        got.append(await reader.readexactly(5))
        first.set()
        got.append(await reader.readexactly(5))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        done.set()

    port = await bare(take)
    await ours.start(f"location / {{ proxy_request_buffering off; proxy_pass http://127.0.0.1:{port}; }}")
    reader, writer = await ours.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\n\r\nhello")
    await asyncio.wait_for(first.wait(), 10)
    writer.write(b"world")
    assert Answer(await reader.read()).body == b"ok"
    assert got[1:] == [b"hello", b"world"]
    writer.close()


@pytest.mark.parametrize("buffering", ["on", "off"])
async def test_an_early_answer_to_an_unfinished_upload(ours, bare, buffering):
    async def refuse(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        writer.write_eof()
        await reader.read()

    port = await bare(refuse)
    await ours.start(
        "client_max_body_size 0;"
        f"location / {{ proxy_request_buffering {buffering}; proxy_pass http://127.0.0.1:{port}; }}"
    )
    answer = await ours.get("/", method="POST", body=b"x" * 3_000_000)
    assert (answer.status, answer.body) == (403, b"no")


async def test_a_client_that_leaves_ends_the_request_upstream(ours, bare):
    asked, left = asyncio.Event(), asyncio.Event()

    async def wait(reader, _writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        left.set()

    port = await bare(wait)
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{port}; }}", log="$status $upstream_status")
    _, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(asked.wait(), 10)
    writer.close()
    await asyncio.wait_for(left.wait(), 10)
    assert ours.log("access.log") == "499 499\n"
    assert "client prematurely closed connection, so upstream connection is closed too" in ours.log()


async def test_a_client_that_leaves_is_ignored_when_told_to(ours, bare):
    asked, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await go.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000)
        await writer.drain()
        assert await reader.read() == b""
        done.set()

    port = await bare(wait)
    await ours.start(
        f"location / {{ proxy_ignore_client_abort on; proxy_pass http://127.0.0.1:{port}; }}", log="$upstream_status"
    )
    _, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(asked.wait(), 10)
    writer.close()
    await asyncio.sleep(0.02)
    go.set()
    await asyncio.wait_for(done.wait(), 10)
    assert ours.log("access.log") == "200\n"


async def test_an_answer_that_ends_too_early_does_not_look_whole(ours, bare):
    async def cut(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        reset(writer)

    port = await bare(cut)
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{port}; }}")
    answer = await ours.get("/")
    assert not answer.whole


# upgrade


async def test_websocket_like_echo(ours, bare):
    async def echo(reader, writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: websocket\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nearly")
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    port = await bare(echo)
    await ours.start(
        "location / { proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
        f"proxy_set_header Connection upgrade; proxy_pass http://127.0.0.1:{port}; }}",
        log="$status $upstream_bytes_received",
    )
    reader, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Connection: upgrade\r\n" in head
    assert await reader.readexactly(10) == b"earlyfirst"
    for number in range(20):
        data = b"%d" % number * 10_000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await asyncio.sleep(0.02)
    assert ours.log("access.log").startswith("101 ")


async def test_an_idle_tunnel_ends(ours, bare):
    async def switch(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        await reader.read()

    port = await bare(switch)
    await ours.start(
        "location / { proxy_http_version 1.1; proxy_set_header Upgrade x; proxy_set_header Connection upgrade;"
        f"proxy_read_timeout 100ms; proxy_pass http://127.0.0.1:{port}; }}"
    )
    reader, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 101")
    writer.close()
    assert "while proxying upgraded connection" in ours.log()


async def test_unix_sockets_and_stores(ours, tmp_path):
    there = Origin([ok(b"kept", headers=["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"])])
    async with there:
        await ours.start(
            f"location / {{ proxy_store {tmp_path}/store$uri; proxy_store_access user:rw group:r;"
            f"proxy_pass http://127.0.0.1:{there.port}; }}"
            f"location /none {{ proxy_pass http://unix:{tmp_path}/none.sock:/x; }}"
        )
        assert (await ours.get("/a/b")).body == b"kept"
    file = tmp_path / "store/a/b"
    assert file.read_bytes() == b"kept"
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.stat().st_mtime == 784111777
    assert (await ours.get("/none")).status == 502
    assert f"connect() to unix:{tmp_path}/none.sock failed (2: No such file or directory)" in ours.log()


async def test_nothing_breaks_out_of_a_request_line_or_a_field(ours, origin):
    there = await origin([ok(close=True)])
    await ours.start(f"location / {{ proxy_set_header X-A $arg_a$uri; proxy_pass http://127.0.0.1:{there.port}$uri; }}")
    await ours.get("/%0d%0aB:%20c")
    (got,) = there.requests
    assert got.target == "/%0D%0AB:%20c"
    assert got.header("B") is None
    assert got.header("X-A") == "/%0D%0AB: c"


class NameServer(asyncio.DatagramProtocol):
    """Answers every question for an IPv4 address with 127.0.0.1, names that begin with `no` with NXDOMAIN."""

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.asked = 0

    def datagram_received(self, data: bytes, peer) -> None:
        self.asked += 1
        missing = data[13:15] == b"no"
        head = (
            data[:2]
            + (b"\x81\x83" if missing else b"\x81\x80")
            + b"\0\1"
            + (b"\0\0" if missing else b"\0\1")
            + bytes(4)
        )
        answer = b"" if missing else b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1"
        self.transport.sendto(head + data[12:] + answer, peer)


async def test_names_from_variables_are_asked_for(ours, origin):
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(NameServer, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    there = await origin([ok(b"found", close=True)])
    await ours.start(
        f"resolver 127.0.0.1:{port} ipv6=off; location / {{ proxy_pass http://$arg_h:{there.port}/x; }}",
        log="$status $upstream_addr",
    )
    assert [(await ours.get("/?h=some.example")).body for _ in range(2)] == [b"found", b"found"]
    assert (await ours.get("/?h=no.example")).status == 502
    assert there.requests[0].header("host") == f"some.example:{there.port}"
    assert names.asked == 2
    assert "no.example could not be resolved (3: Host not found)" in ours.log()
    assert ours.log("access.log").splitlines() == [f"200 127.0.0.1:{there.port}"] * 2 + ["502 -"]
    transport.close()


async def test_a_name_without_a_resolver(ours):
    await ours.start("location / { proxy_pass http://$arg_h; }")
    assert (await ours.get("/?h=some.example")).status == 502
    assert "no resolver defined to resolve some.example" in ours.log()


@pytest.mark.parametrize(("how", "stays"), [("on", True), ("clean", False)])
async def test_bodies_in_files_only(ours, origin, how, stays):
    there = await origin([ok(b"x", close=True)])
    await ours.start(
        f"location / {{ client_body_in_file_only {how}; client_body_temp_path {ours.folder}/bodies;"
        f"proxy_set_header X-File $request_body_file; proxy_pass http://127.0.0.1:{there.port}; }}"
    )
    assert (await ours.get("/", method="POST", body=b"hello")).status == 200
    (got,) = there.requests
    assert got.body == b"hello"
    kept = list((ours.folder / "bodies").iterdir())
    assert [str(path) for path in kept] == ([got.header("x-file")] if stays else [])


async def test_a_graceful_end_waits_for_tunnels(ours, bare):
    async def echo(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        while data := await reader.read(65536):
            writer.write(data)

    port = await bare(echo)
    await ours.start(
        "location / { proxy_http_version 1.1; proxy_set_header Upgrade x; proxy_set_header Connection upgrade;"
        f"proxy_pass http://127.0.0.1:{port}; }}"
    )
    reader, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    end = asyncio.ensure_future(ours.gateway.stop())
    await asyncio.sleep(0.02)
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    assert not end.done()
    writer.close()
    await asyncio.wait_for(end, 10)


async def test_a_request_that_goes_elsewhere_takes_no_rest_of_its_body_along(ours, bare):
    """Answered before its end, with an error that error_page hands on: what is left of the body is dropped."""

    async def early(reader, writer) -> None:
        await reader.readuntil(b"SEE-")
        writer.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def good(reader, writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))
        await writer.drain()

    first, second = await bare(early), await bare(good)
    await ours.start(
        f"location / {{ proxy_request_buffering off; proxy_http_version 1.1; proxy_pass http://127.0.0.1:{first};"
        f"proxy_intercept_errors on; error_page 502 = /pass; }}"
        f"location /pass {{ proxy_pass http://127.0.0.1:{second}; }}"
    )
    reader, writer = await ours.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nSEE-")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert b"200 OK" in head
    assert b"Content-Length: 0" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()


async def test_a_rate_goes_along_with_a_redirect(ours, origin, monkeypatch):
    (ours.folder / "data").write_bytes(b"x" * 300)
    rates = []
    monkeypatch.setattr(answer, "pace", lambda _request, rate: rates.append(rate))
    there = await origin([ok(headers=["X-Accel-Redirect: /files/data", "X-Accel-Limit-Rate: 10000"])])
    await ours.start(
        f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}"
        f"location /files/ {{ internal; alias {ours.folder}/; }}"
    )
    assert (await ours.get("/")).body == b"x" * 300
    assert rates == [10000]


@pytest.mark.parametrize("more", ["", "proxy_buffering off;", "limit_rate 1m;"])
async def test_who_sees_the_end_of_the_connection_finds_the_request_logged(ours, origin, more):
    there = await origin([ok(b"x" * 5000, close=True)])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; {more} }}", log="$status")
    for number in range(1, 6):
        await ours.get("/")
        assert ours.log("access.log") == "200\n" * number
