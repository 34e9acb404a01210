"""A gateway process with two workers, by curl and by raw bytes."""

from __future__ import annotations

import hashlib
import os
import re

import pytest
import wire_rig as rig

from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

CONF = """\
worker_processes 2;
error_log error.log info;
events {}
http {
    log_format line '$request_method $uri $status $body_bytes_sent';
    access_log access.log line;
    lua_package_path "PREFIX/lua/?.lua;;";
    server {
        listen 127.0.0.1:PORT;
        client_max_body_size 1m;
        location = /plain { return 200 "plain\\n"; }
        location = /say { content_by_lua_block { ngx.say("one") ngx.say("two") } }
        location = /stream {
            content_by_lua_block {
                for i = 1, 3 do ngx.say(i) ngx.flush(true) end
            }
        }
        location = /length {
            content_by_lua_block { ngx.header.content_length = 3 ngx.print("abc") }
        }
        location = /body {
            content_by_lua_block {
                ngx.req.read_body()
                local data = ngx.req.get_body_data()
                if not data then
                    local name = ngx.req.get_body_file()
                    if name then
                        local file = assert(io.open(name, "rb"))
                        data = file:read("*a")
                        file:close()
                    end
                end
                ngx.print(ngx.md5(data or ""))
            }
        }
        location = /unread { content_by_lua_block { ngx.say("unread") } }
        location = /limited { client_max_body_size 1k; content_by_lua_block { ngx.req.read_body() ngx.say("read") } }
        location = /limited204 { client_max_body_size 1k; return 204; }
        location = /limited200 { client_max_body_size 1k; return 200 "ok"; }
        location = /args { content_by_lua_block { ngx.print(ngx.req.get_uri_args().a) } }
        location = /shared { content_by_lua_block { require("shared").use() } }
        location = /fault { content_by_lua_block { error("on purpose") } }
    }
}
"""

# A socket kept in a module, which users of Lua gateways are bitten by.
SHARED = """\
local kept
local M = {}
function M.use()
    local arg = ngx.var.arg_do
    if arg == "make" then
        kept = ngx.socket.tcp()
        assert(kept:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
        ngx.say(kept:send("first"))
    elseif arg == "fresh" then
        local sock = ngx.socket.tcp()
        assert(sock:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
        ngx.say(sock:send("fresh"))
    else
        ngx.say(kept:send("foreign"))
    end
end
return M
"""


class Gateway:
    def __init__(self, launcher, conf=CONF, name="nginx.conf"):
        self.port = free_port()
        self.folder = launcher.prefix / f"site{self.port}"
        (self.folder / "lua").mkdir(parents=True)
        (self.folder / "lua" / "shared.lua").write_text(SHARED)
        (self.folder / name).write_text(conf.replace("PORT", str(self.port)).replace("PREFIX", str(self.folder)))
        os.chmod(self.folder, 0o777)  # workers of a test run by root may be somebody else
        self.process = launcher("nginx", "-p", self.folder, "-c", name, "-g", "daemon off;")
        rig.wait_listens(self.port, self.process)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def log(self, name="error.log"):
        return (self.folder / name).read_text()

    def client(self):
        assert self.process.running, self.process.output
        return rig.Client(self.port)


@pytest.fixture(scope="module")
def gateway(shared):
    return Gateway(shared)


def request(path, method="GET", version="1.1", body=b"", *fields):
    lines = [f"{method} {path} HTTP/{version}", "Host: a", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


# Versions and keep-alive.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/plain", b"plain\n"),
        ("/say", b"one\ntwo\n"),
        ("/stream", b"1\n2\n3\n"),
        ("/length", b"abc"),
        ("/unread", b"unread\n"),
    ],
)
def test_versions(gateway, path, body):
    with gateway.client() as client:
        for _ in range(3):
            answer = client.ask(request(path))
            assert (answer.status, answer.body) == (200, body)
            assert answer.headers["connection"] == "keep-alive"
            assert answer.chunked == (path in {"/say", "/stream", "/unread"})
        head = client.ask(request(path, "HEAD"), "HEAD")
        assert (head.status, head.body) == (200, b"")
        last = client.ask(request(path, "GET", "1.1", b"", "Connection: close"))
        assert last.body == body
        assert last.headers["connection"] == "close"
        assert client.rest() == b""
    with gateway.client() as client:
        answer = client.ask(request(path, version="1.0"))
        assert answer.body == body
        assert answer.headers["connection"] == "close"
        assert not answer.chunked
        assert client.rest() == b""


def test_http10_keep_alive_needs_a_length(gateway):
    with gateway.client() as client:
        for _ in range(2):
            answer = client.ask(request("/plain", "GET", "1.0", b"", "Connection: keep-alive"))
            assert answer.headers["connection"] == "keep-alive"
        answer = client.ask(request("/say", "GET", "1.0", b"", "Connection: keep-alive"))
        assert answer.body == b"one\ntwo\n"
        assert client.rest() == b""


def test_curl(gateway):
    assert rig.curl(gateway.url("/say")) == (200, b"one\ntwo\n")
    assert rig.curl("--http1.0", gateway.url("/say")) == (200, b"one\ntwo\n")
    status, head = rig.curl("-I", gateway.url("/say"))
    assert status == 200
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    data = bytes(range(256)) * 8000
    expected = hashlib.md5(data[:500_000]).hexdigest().encode()
    path = gateway.folder / "upload"
    path.write_bytes(data[:500_000])
    for fields in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
        assert rig.curl(*fields, "--data-binary", f"@{path}", gateway.url("/body")) == (200, expected)
    path.write_bytes(data)
    for fields in ([], ["-H", "Transfer-Encoding: chunked"]):
        assert rig.curl(*fields, "--data-binary", f"@{path}", gateway.url("/body"))[0] == 413
    assert rig.curl(gateway.url("/args?a=%C3%A9%20b+c")) == (200, "é b c".encode())
    assert rig.curl(gateway.url("/none"))[0] == 404


# Pipelining.


def test_pipelined_requests_are_answered_in_order(gateway):
    with gateway.client() as client:
        client.send(
            request("/say")
            + request("/body", "POST", "1.1", b"hello")
            + request("/plain")
            + request("/unread", "POST", "1.1", b"x" * 5000)
            + request("/stream")
            + request("/none")
            + request("/plain", "HEAD")
            + request("/length", "GET", "1.1", b"", "Connection: close")
            + request("/plain")
        )
        answers = [client.answer(method) for method in ["GET"] * 6 + ["HEAD", "GET"]]
        assert [answer.status for answer in answers] == [200] * 5 + [404, 200, 200]
        assert [answer.body for answer in answers[:5]] == [
            b"one\ntwo\n", hashlib.md5(b"hello").hexdigest().encode(), b"plain\n", b"unread\n", b"1\n2\n3\n"
        ]  # fmt: skip
        assert answers[7].body == b"abc"
        assert client.rest() == b"", "an answer behind Connection: close"


def test_many_pipelined_requests_one_byte_at_a_time(gateway):
    with gateway.client() as client:
        for byte in request("/plain") + request("/say"):
            client.send(bytes([byte]))
        assert client.answer().body == b"plain\n"
        assert client.answer().body == b"one\ntwo\n"
        client.send(request("/plain") * 200)
        assert {client.answer().body for _ in range(200)} == {b"plain\n"}


# Bodies.


@pytest.mark.parametrize("size", [0, 1, 5, 1023, 8192, 70_000])
def test_chunked_posts(gateway, size):
    data = os.urandom(size)
    pieces = [data[at : at + 997] for at in range(0, size, 997)]
    with gateway.client() as client:
        for _ in range(2):
            client.send(b"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.send(rig.chunks(*pieces))
            assert client.answer().body == hashlib.md5(data).hexdigest().encode()
        assert client.ask(request("/plain")).body == b"plain\n"


def test_expect_continue(gateway):
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with gateway.client() as client:
        client.send(head % (b"/body", 5))
        assert client.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"  # before a byte of the body is there
        assert client.ask(b"hello").body == hashlib.md5(b"hello").hexdigest().encode()
        # Too large is said at once, and no body is asked for.
        answer = client.ask(head % (b"/body", 2 << 20))
        assert (answer.status, answer.interim) == (413, [])


@pytest.mark.parametrize("path", ["/limited", "/limited204", "/limited200"])
def test_the_body_limit_holds_for_chunked_bodies(gateway, path):
    """H03: exactly the limit passes; a byte more is 413 or the end of the connection, whoever reads it."""
    good = {"/limited": 200, "/limited204": 204, "/limited200": 200}[path]
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    behind = request("/plain", "GET", "1.1", b"", "Connection: close")
    with gateway.client() as client:
        client.send(head + rig.chunks(*[b"x" * 64] * 16) + behind)
        assert client.answer().status == good
        assert client.answer().body == b"plain\n"
    with gateway.client() as client:
        client.send(head + rig.chunks(*[b"x" * 64] * 16, b"y") + behind)
        first = client.answer()
        assert first.status == 413 or (path != "/limited" and first.status == good)
        assert b"HTTP/1.1" not in client.rest()


# Lua across requests and processes.


def test_a_socket_in_a_module_ends_with_its_request(gateway):
    """O01: the origin gets nothing of a foreign use, and a fresh socket works."""
    with rig.origin() as origin, gateway.client() as client:  # one connection: one worker

        def use(what):
            return client.ask(request(f"/shared?do={what}&port={origin.port}"))

        assert use("make").body == b"5\n"
        assert use("kept").body == b"nilclosed\n"
        assert use("fresh").body == b"5\n"
        wait_until(lambda: origin.accepts == 2 and origin.open == 0, "both connections closed with their requests")


def test_a_fault_is_logged_as_nginx_does(gateway):
    assert rig.get(gateway.port, "/fault").status == 500
    wait_until(lambda: 'request: "GET /fault' in gateway.log(), "the line")
    lines = gateway.log().splitlines()
    at = next(at for at, line in enumerate(lines) if "on purpose" in line)
    assert re.match(
        r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[error\] (\d+)#\1: \*\d+ lua entry thread aborted: "
        r"runtime error: content_by_lua\(nginx\.conf:\d+\):1: on purpose$",
        lines[at],
    ), lines[at]
    assert lines[at + 1] == "stack traceback:"
    assert lines[at + 2].startswith("coroutine 0:")
    (last,) = [line for line in lines[at:] if 'request: "GET /fault' in line]
    assert last.endswith(', client: 127.0.0.1, server: , request: "GET /fault HTTP/1.1", host: "a"')


def test_the_access_log_has_one_line_for_each_request(gateway):
    before = gateway.log("access.log").count("GET /length 200 3")
    for _ in range(20):
        assert rig.get(gateway.port, "/length").body == b"abc"
    wait_until(lambda: gateway.log("access.log").count("GET /length 200 3") == before + 20, "twenty lines")


# Slow clients.


def test_slow_clients_beside_a_normal_one(prefix, headrace):
    """H08: two hundred clients that send a byte now and then; none of them moves its deadline, nobody waits for them."""
    gateway = Gateway(
        headrace, CONF.replace("client_max_body_size 1m;", "client_header_timeout 2s; client_body_timeout 2s;")
    )
    slow = [gateway.client() for _ in range(200)]
    try:
        for client in slow[:150]:
            client.send(b"G")
        for client in slow[150:]:
            client.send(b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
        with gateway.client() as normal:
            text = iter(b"ET /plain HTTP")
            for byte in text:
                assert normal.ask(request("/plain")).body == b"plain\n"
                assert normal.ask(request("/say")).body == b"one\ntwo\n"
                for client in slow[:150]:
                    client.send(bytes([byte]))
        for client in slow:
            # A head that is not whole in its time ends without an answer or with 408; never with another.
            assert client.rest()[:12] in {b"", b"HTTP/1.1 408"}
        assert rig.get(gateway.port, "/plain").body == b"plain\n"
        figures = rig.stats(headrace, gateway.process)["edge"]
        assert figures["timeouts"] >= 200
    finally:
        for client in slow:
            client.sock.close()
