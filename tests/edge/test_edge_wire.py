"""The gateway on real sockets."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import sys
import zlib
from pathlib import Path

import pytest
import trustme

from headrace.edge.request import live

sys.path.insert(0, str(Path(__file__).parent))
import edge_handlers as handlers


@pytest.fixture(autouse=True)
def _fresh():
    handlers.seen.clear()
    yield
    assert live == {}


def chunked(data: bytes, size: int) -> bytes:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


# Body limits hold on every path (H03).


@pytest.mark.parametrize("path", ["/read", "/discard", "/page"])
@pytest.mark.parametrize(("size", "fits"), [(1024, True), (1025, False)])
async def test_chunked_bodies_are_limited(http, path, size, fits):
    site = await http(
        """client_max_body_size 1k;
        location /read { content_by_python edge_handlers:echo; }
        location /discard { return 204; }
        location /page { return 404; }"""
    )
    answer = await site.raw(
        b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
        + chunked(b"x" * size, 64)
        + b"GET /discard HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        eof=False,
    )
    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    first = {"/read": 200, "/discard": 204, "/page": 404}[path]
    if fits:
        assert statuses == [first, 204]
    else:
        assert statuses[0] in {413, first}
        assert len(statuses) == 1
        if path == "/read":
            assert statuses == [413]


async def test_declared_bodies_are_limited_before_they_are_sent(http):
    site = await http(
        "client_max_body_size 10; location / { return 200 no; } location /big { client_max_body_size 0; return 200 ok; }"
    )
    assert (await site.get("/", "Content-Length: 11", method="POST"))[0] == 413
    assert (await site.get("/", method="POST", body=b"x" * 10))[0] == 200
    assert (await site.get("/big", method="POST", body=b"x" * 3000))[0] == 200


async def test_a_large_body_goes_to_a_file(http, tmp_path):
    site = await http(
        """client_body_buffer_size 1k; client_body_temp_path spool;
        location / { content_by_python edge_handlers:echo; }"""
    )
    status, headers, body = await site.get("/", method="POST", body=b"z" * 1000)
    assert (status, headers.get("x-spooled"), body) == (200, None, b"z" * 1000)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n" + b"y" * 2000)
    await writer.drain()
    async with asyncio.timeout(10):
        while not list((tmp_path / "spool").glob("*")):
            await asyncio.sleep(0.01)
        writer.write(b"y" * 3000)
        answer = await reader.read()
    assert b"X-Spooled: yes" in answer
    assert answer.endswith(b"\r\n\r\n" + b"y" * 5000)
    assert list((tmp_path / "spool").glob("*")) == []


# Oversize heads tell what is wrong (H07).


async def test_oversize_header_can_be_branded_and_is_named(serve):
    site = await serve(
        """error_log logs/e.log info;
        http { access_log off; server { listen 127.0.0.1:80; large_client_header_buffers 4 8k;
            error_page 494 =431 /too-large; error_page 414 /too-long;
            location = /too-large { return 431 "your cookies are too large\\n"; }
            location = /too-long { return 414 "the address is too long\\n"; }
            location / { return 200 ok; } } }"""
    )
    fits = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: " + b"c" * 8175 + b"\r\n\r\n"
    assert (await site.raw(fits)).startswith(b"HTTP/1.1 200")
    answer = await site.raw(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: " + b"c" * 8193 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"your cookies are too large\n")
    assert "Cookie" in site.log("e.log")
    assert "8192" in site.log("e.log")
    answer = await site.raw(b"GET /" + b"u" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 414 ")
    assert answer.endswith(b"the address is too long\n")


# Slow clients (H08).


async def test_slow_heads_do_not_hold_connections(serve):
    site = await serve(
        """events { worker_connections 200; } http { access_log off; client_header_timeout 300ms;
        server { listen 127.0.0.1:80; return 200 ok; } }"""
    )
    slow = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(50)]
    for _, writer in slow:
        writer.write(b"GET / HT")
    assert (await site.get("/"))[2] == b"ok"

    async def drip(reader, writer):
        """One byte at a time never moves the deadline."""
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"a")
            await asyncio.sleep(0.05)
        return await answer

    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(drip(r, w) for r, w in slow), return_exceptions=True)
    assert not any(isinstance(a, bytes) and a.startswith(b"HTTP/1.1 200") for a in answers)
    assert site.gateway.stats()["timeouts"] >= 50
    for _, writer in slow:
        writer.close()


async def test_idle_connections_make_room(serve):
    site = await serve(
        "events { worker_connections 20; } http { access_log off; server { listen 127.0.0.1:80; return 200 ok; } }"
    )
    idle = []
    for _ in range(40):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.readuntil(b"ok")
        idle.append(writer)
    assert site.gateway.stats()["connections"] <= 20
    for writer in idle:
        writer.close()


# Keep-alive.


async def test_keepalive_requests_and_pipelining(http):
    site = await http("keepalive_requests 3; location / { return 200 $connection_requests; }")
    one = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    answer = await site.raw(one * 5, eof=False)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200")[1:]]
    assert bodies == [b"1", b"2", b"3"]
    assert answer.count(b"Connection: keep-alive") == 2


async def test_settings_of_the_virtual_server_hold(serve):
    site = await serve(
        """http { access_log off;
        server { listen 127.0.0.1:80; server_name a; return 200 a; }
        server { listen 127.0.0.1:80; server_name b; keepalive_timeout 0; return 200 b; } }"""
    )
    assert b"Connection: keep-alive" in await site.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"Connection: close" in await site.raw(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")


# Python handlers.

PYTHON = """
    location /hello { content_by_python edge_handlers:hello; }
    location /slow { content_by_python edge_handlers:slow; }
    location /deny { access_by_python edge_handlers:deny; return 200; content_by_python edge_handlers:hello; }
    location /access { access_by_python edge_handlers:deny; content_by_python edge_handlers:hello; }
    location /later { access_by_python edge_handlers:deny_later; content_by_python edge_handlers:hello; }
    location /fail { content_by_python edge_handlers:fail; }
    location /faillater { content_by_python edge_handlers:fail_later; }
    location /midway { content_by_python edge_handlers:fail_midway; }
    location /jump { content_by_python edge_handlers:jump; }
    location /target { internal; return 200 "$uri $args"; }
    location /spin { content_by_python edge_handlers:spin; }
    location /status { content_by_python edge_handlers:status; }
    location /inject { content_by_python edge_handlers:inject; }
    location /handle { content_by_python edge_handlers:handle; }
    log_by_python edge_handlers:note;
"""


@pytest.mark.parametrize(
    ("path", "fields", "status", "body"),
    [
        ("/hello", (), 200, b"python\n"),
        ("/access", (), 403, None),
        ("/access", ("X-Pass: 1",), 200, b"python\n"),
        ("/later", (), 403, None),
        ("/later", ("X-Pass: 1",), 200, b"python\n"),
        ("/fail", (), 500, None),
        ("/faillater", (), 500, None),
        ("/jump", (), 200, b"/target from=jump"),
        ("/spin", (), 500, None),
        ("/status", (), 201, b""),
        ("/target", (), 404, None),
    ],
)
async def test_python_handlers(http, path, fields, status, body):
    site = await http(PYTHON)
    got, _, text = await site.get(path, *fields)
    assert got == status
    if body is not None:
        assert text == body
    assert handlers.seen == [f"{status} {'/target' if path == '/jump' else path}"]


async def test_streamed_answer_is_chunked(http):
    site = await http(PYTHON)
    answer = await site.raw(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in answer
    assert answer.endswith(b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")
    answer = await site.raw(b"GET /slow HTTP/1.0\r\n\r\n")
    assert b"Transfer-Encoding" not in answer
    assert b"Connection: close" in answer
    assert answer.endswith(b"\r\n\r\none\ntwo\n")
    head = await site.raw(b"HEAD /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.endswith(b"\r\n\r\n")


async def test_a_fault_midway_cuts_the_answer(http):
    site = await http(PYTHON)
    try:
        answer = await site.raw(b"GET /midway HTTP/1.1\r\nHost: a\r\n\r\n")
    except ConnectionResetError:
        return
    assert not answer.endswith(b"0\r\n\r\n")


async def test_faults_are_logged_with_traceback(serve):
    site = await serve("error_log logs/e.log; http { access_log off; server { listen 127.0.0.1:80; " + PYTHON + " } }")
    await site.get("/fail")
    assert "ValueError: a fault of the handler" in site.log("e.log")
    assert "edge_handlers.py" in site.log("e.log")


async def test_handles_end_with_the_request(http):
    site = await http(PYTHON)
    await site.get("/handle")
    assert isinstance(handlers.seen[0], int)
    assert live == {}


# Nothing breaks out of a header line (O20).


async def test_header_values_cannot_inject(http):
    site = await http(
        PYTHON + " location /var { add_header X-U $uri; return 302 http://a/$uri; } location /q { return 301 /$arg_x; }"
    )
    for target in ("/inject", "/var/%0d%0aB:%20c", "/q?x=%0d%0aB:%20c"):
        answer = await site.raw(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target.encode())
        head = answer.partition(b"\r\n\r\n")[0]
        assert b"\r\nB:" not in head
        assert b"\nB" not in head.replace(b"\r\n", b"")
        assert b"\0" not in head


# Files.


@pytest.fixture
def html(tmp_path):
    (tmp_path / "html").mkdir()
    return tmp_path / "html"


async def test_a_large_file_at_the_pace_of_the_client(serve, html):
    data = os.urandom(1_000_000) * 20
    (html / "big").write_bytes(data)
    site = await serve(
        'http { log_format b "$status $body_bytes_sent"; access_log logs/a.log b; server { listen 127.0.0.1:80; } }'
    )
    before = len(os.listdir("/proc/self/fd"))
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    await asyncio.sleep(0.05)
    assert site.log("a.log") == ""
    answer = await reader.read()
    assert answer.partition(b"\r\n\r\n")[2] == data
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(10):
        while site.gateway.stats()["connections"]:
            await asyncio.sleep(0.01)
    assert site.log("a.log") == "200 20000000\n"
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_client_that_goes_away_leaves_nothing_open(serve, html):
    (html / "big").write_bytes(bytes(8_000_000))
    site = await serve('http { log_format b "$status"; access_log logs/a.log b; server { listen 127.0.0.1:80; } }')
    before = len(os.listdir("/proc/self/fd"))
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readexactly(1000)
    writer.transport.abort()
    async with asyncio.timeout(10):
        while site.gateway.stats()["connections"]:
            await asyncio.sleep(0.01)
    assert site.log("a.log") == "200\n"
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_several_ranges_of_a_large_file(http, html):
    data = os.urandom(200_000)
    (html / "big").write_bytes(data)
    site = await http("")
    status, headers, body = await site.get("/big", "Range: bytes=0-9,100000-149999,-5")
    assert status == 206
    assert int(headers["content-length"]) == len(body)
    boundary = headers["content-type"].partition("boundary=")[2].encode()
    parts = body.split(b"\r\n--" + boundary)
    assert [part.partition(b"\r\n\r\n")[2] for part in parts[1:4]] == [data[:10], data[100000:150000], data[-5:]]
    assert parts[4] == b"--\r\n"


async def test_special_files(serve, html):
    os.mkfifo(html / "fifo")
    (html / "secret").write_text("no")
    (html / "link").symlink_to(html / "page")
    (html / "page").write_text("page")
    (html / "ring").symlink_to(html / "ring")
    site = await serve("error_log logs/e.log; http { access_log off; server { listen 127.0.0.1:80; } }")
    async with asyncio.timeout(10):
        assert (await site.get("/fifo"))[0] == 404
    assert "is not a regular file" in site.log("e.log")
    assert (await site.get("/link"))[2] == b"page"
    assert (await site.get("/ring"))[0] == 403
    assert (await site.get("/page/x"))[0] == 404
    assert (await site.get("/" + "n" * 300))[0] == 404
    for target in ("/../edge", "/%2e%2e/e", "/..%2f..%2fetc/passwd"):
        assert (await site.get(target))[0] == 400


async def test_gzip_streams(http, html):
    text = b"line of text\n" * 50_000
    (html / "t.txt").write_bytes(text)
    site = await http("gzip on; gzip_types *; location / { } location /slow { content_by_python edge_handlers:slow; }")
    _, headers, body = await site.get("/t.txt", "Accept-Encoding: gzip")
    assert headers["content-encoding"] == "gzip"
    assert zlib.decompress(dechunk(body), 31) == text
    _, headers, body = await site.get("/slow", "Accept-Encoding: gzip")
    assert zlib.decompress(dechunk(body), 31) == b"one\ntwo\n"
    assert (await site.get("/t.txt"))[2] == text


def dechunk(body: bytes) -> bytes:
    out = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            return out
        out += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


# The end.


async def test_graceful_stop(http):
    site = await http("location / { content_by_python edge_handlers:wait; }")
    idle_reader, idle = await asyncio.open_connection("127.0.0.1", site.port)
    busy = asyncio.create_task(site.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", eof=False))
    async with asyncio.timeout(10):
        while not handlers.seen:
            await asyncio.sleep(0.01)
        await site.gateway.stop(5.0)
        answer = await busy
        assert await idle_reader.read() == b""
    assert answer.endswith(b"waited\n")
    assert b"Connection: close" in answer
    assert site.gateway.stats()["connections"] == 0
    idle.close()
    with pytest.raises(OSError, match=r"."):
        await asyncio.open_connection("127.0.0.1", site.port)


async def test_stop_has_a_deadline(http):
    site = await http("location / { content_by_python edge_handlers:wait; }")
    busy = asyncio.create_task(site.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", eof=False))
    async with asyncio.timeout(10):
        while not handlers.seen:
            await asyncio.sleep(0.01)
        await site.gateway.stop(0.01)
        await asyncio.gather(busy, return_exceptions=True)
        while "cleaned" not in handlers.seen:
            await asyncio.sleep(0.01)


# Other sockets.


async def test_unix_socket(serve, tmp_path):
    path = tmp_path / "s.sock"
    site = await serve(
        f'http {{ access_log off; server {{ listen unix:{path}; return 200 "$remote_addr|$server_addr"; }} }}'
    )
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(f"unix:|unix:{path}".encode())
    writer.close()
    assert site.gateway.stats()["requests"] == 1


async def test_tls(serve, tmp_path):
    authority = trustme.CA()
    for name in ("localhost", "other.example"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    site = await serve(
        """http { access_log off; ssl_protocols TLSv1.2 TLSv1.3;
        server { listen 127.0.0.1:443 ssl; server_name localhost;
                 ssl_certificate localhost.pem; ssl_certificate_key localhost.pem;
                 location / { return 200 "$scheme $https"; } location /r { return 301 /x; } }
        server { listen 127.0.0.1:443 ssl; server_name other.example;
                 ssl_certificate other.example.pem; ssl_certificate_key other.example.pem; return 200 other; } }"""
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context, server_hostname="localhost")
    writer.write(
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /r HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    answer = await asyncio.wait_for(reader.read(), 10)
    assert b"\r\n\r\nhttps on" in answer
    assert b"Location: https://localhost:%d/x" % site.port in answer
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context, server_hostname="other.example")
    writer.write(b"GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"other")
    writer.close()
    await site.raw(b"GET / HTTP/1.1\r\nHost: plain\r\n\r\n")
    async with asyncio.timeout(10):
        while site.gateway.stats()["connections"]:
            await asyncio.sleep(0.01)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
async def test_curl(http, html):
    (html / "a.txt").write_text("file\n")
    site = await http("location /py { content_by_python edge_handlers:echo; } location /go { return 302 /a.txt; }")

    async def curl(*args: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--max-time", "10", *args, stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0]

    base = f"http://127.0.0.1:{site.port}"
    assert await curl(f"{base}/a.txt") == b"file\n"
    assert await curl("-L", f"{base}/go") == b"file\n"
    assert await curl("-H", "Expect: 100-continue", "-d", "x" * 5000, f"{base}/py") == b"x" * 5000
    assert await curl("-H", "Transfer-Encoding: chunked", "-d", "abc", f"{base}/py") == b"abc"
    assert await curl("-C", "2", f"{base}/a.txt") == b"le\n"
    assert await curl(f"{base}/a.txt", f"{base}/a.txt", "-w", "%{num_connects}") == b"file\n1file\n0"


async def test_out_of_order_is_impossible(http):
    """A slow answer holds the ones behind it on the same connection."""
    site = await http("location /wait { content_by_python edge_handlers:wait; } location / { return 200 fast; }")
    answer = await site.raw(
        b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", eof=False
    )
    assert answer.index(b"waited") < answer.index(b"fast")


async def test_reads_with_a_half_closed_client(http):
    site = await http("location / { content_by_python edge_handlers:big; }")
    sock = socket.create_connection(("127.0.0.1", site.port))
    sock.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.count(b"x") >= 3_000_000
    writer.close()


async def test_a_body_that_is_cut_short_is_no_fault_of_ours(serve):
    site = await serve(
        """error_log logs/e.log info; http { log_format s "$status"; access_log logs/a.log s; client_body_timeout 200ms;
        server { listen 127.0.0.1:80; location / { content_by_python edge_handlers:echo; } } }"""
    )
    part = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"
    assert b"200" not in await site.raw(part)
    assert await site.raw(part, eof=False) == b""
    async with asyncio.timeout(10):
        while site.log("a.log").count("\n") < 2:
            await asyncio.sleep(0.01)
    assert sorted(site.log("a.log").split()) == ["400", "408"]
    assert "Traceback" not in site.log("e.log")
    assert "prematurely closed" in site.log("e.log")


async def test_a_client_that_does_not_read_is_given_up(serve):
    site = await serve(
        """error_log logs/e.log info; http { access_log off; send_timeout 200ms;
        server { listen 127.0.0.1:80; location / { content_by_python edge_handlers:flood; } } }"""
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readexactly(100)
    async with asyncio.timeout(10):
        while site.gateway.stats()["connections"] or "[info]" not in site.log("e.log"):
            await asyncio.sleep(0.01)
    assert "Traceback" not in site.log("e.log")
    writer.close()


@pytest.mark.parametrize("how", ["on", "off"])
async def test_sendfile_or_not(http, html, how):
    data = os.urandom(300_000)
    (html / "big").write_bytes(data)
    site = await http(f"sendfile {how};")
    status, headers, body = await site.get("/big")
    assert (status, headers["content-length"], body == data) == (200, "300000", True)
    status, _, body = await site.get("/big", "Range: bytes=1000-200999")
    assert (status, body == data[1000:201000]) == (206, True)
    status, headers, body = await site.get("/big", "Range: bytes=0-99999,200000-200009")
    assert (status, int(headers["content-length"])) == (206, len(body))


async def test_rewrite_log(serve):
    site = await serve(
        """error_log logs/e.log notice; http { access_log off; rewrite_log on;
        server { listen 127.0.0.1:80; location /a { rewrite ^/no x; rewrite ^/a/(.*)$ /b/$1?c last; } location /b { return 204; } } }"""
    )
    await site.get("/a/x?d")
    lines = [
        line.partition("*")[2].partition(" ")[2].partition(", client")[0] for line in site.log("e.log").splitlines()
    ]
    assert lines == [
        '"^/no" does not match "/a/x"',
        '"^/a/(.*)$" matches "/a/x"',
        'rewritten data: "/b/x", args: "c&d"',
    ]


async def test_an_early_answer_is_the_answer(http):
    """O09: once an early phase has answered, no later handler runs."""
    site = await http(
        """location /a { access_by_python edge_handlers:answer_early; content_by_python edge_handlers:fail; }
        location /b { access_by_python edge_handlers:answer_and_go_on; content_by_python edge_handlers:fail; }"""
    )
    assert (await site.get("/a"))[2] == b"early\n"
    assert (await site.get("/b"))[2] == b"first\n"
    async with asyncio.timeout(10):
        while handlers.seen != ["went on"]:
            await asyncio.sleep(0.01)


async def test_keepalive_limits_of_a_location_may_be_wider(http):
    site = await http(
        """keepalive_requests 2; location / { return 200 $connection_requests; }
        location /more { keepalive_requests 4; return 200 "$connection_requests $connection_time"; }
        location /none { keepalive_timeout 0; return 200 n; }"""
    )
    for path, answered in ((b"/", 2), (b"/more", 4), (b"/none", 1)):
        answer = await site.raw(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path * 6, eof=False)
        assert answer.count(b"HTTP/1.1 200") == answered
        assert answer.count(b"Connection: close") == 1
