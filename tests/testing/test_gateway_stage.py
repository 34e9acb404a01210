"""Handlers tested without a port: the stage, and test files in Lua."""

from __future__ import annotations

import socket
import time

import pytest

from headrace.cli import main
from headrace.errors import ConfError, Error
from headrace.testing.gateways.peers import Reply, http, talking
from headrace.testing.gateways.stage import Stage

CONF = """
error_log logs/error.log info;
events {}
http {
    lua_shared_dict seen 1m;
    log_format short "$request_method $request_uri $status $msec";
    upstream users { server users.local:8080; server 10.0.0.2:8080 backup; }
    server {
        listen 8080;
        access_log logs/access.log short buffer=4k;
        location /hello {
            access_by_lua_block { if ngx.var.http_authorization ~= "ok" then return ngx.exit(401) end }
            content_by_lua_block { ngx.sleep(3600) ngx.say(ngx.time(), ngx.var.remote_addr, ngx.var.server_port) }
            log_by_lua_block { ngx.log(ngx.WARN, "logged ", ngx.status) }
        }
        location /users/ { proxy_pass http://users; proxy_read_timeout 5s; }
        location /redis { content_by_lua_block {
            local sock = ngx.socket.tcp()
            sock:settimeout(2000)
            ngx.say(sock:connect(ngx.var.arg_at or "redis.local", 6379))
            sock:send("PING\\r\\n")
            ngx.say(sock:receive())
            ngx.say(sock:setkeepalive())
        } }
        location /count { content_by_lua_block { ngx.say((ngx.shared.seen:incr("n", 1, 0, 60))) } }
        location /timer { content_by_lua_block { ngx.timer.at(60, function() ngx.log(ngx.WARN, "fired ", ngx.now()) end) } }
        location /body { content_by_lua_block { ngx.req.read_body() ngx.say(ngx.req.get_body_data()) } }
    }
}
"""


@pytest.fixture
def stage():
    with Stage(text=CONF) as made:
        yield made


async def silent(reader, _writer) -> None:
    await reader.read()


def test_a_handler_with_no_port_opened(stage, monkeypatch):
    monkeypatch.setattr(socket.socket, "listen", None)
    monkeypatch.setattr(socket.socket, "connect", None)
    assert stage.get("/hello").start == ("HTTP/1.1", "401", "Unauthorized")
    answer = stage.request("GET", "/hello", {"Authorization": "ok"}, client="10.0.0.9")
    assert answer.body == b"176722920010.0.0.98080\n"
    assert answer.header("date") == "Thu, 01 Jan 2026 01:00:00 GMT"
    assert stage.passed == 3600
    assert "logged 401" in stage.log
    assert stage.access_log == "GET /hello 401 1767225600.000\nGET /hello 200 1767229200.000\n"


def test_cosockets_and_their_pool(stage):
    stage.upstream("redis.local:6379", talking(lambda data: "+PONG\r\n" if data == b"PING\r\n" else None))
    assert [stage.get("/redis").body for _ in range(2)] == [b"1\n+PONG\n1\n"] * 2
    assert stage.connects == ["redis.local:6379"]
    stage.upstream("redis.local:6379", silent)
    stage.upstream("10.0.0.1:6379", silent)
    assert stage.get("/redis?at=10.0.0.1").body.startswith(b"1\nniltimeout\n")
    assert stage.passed == 2
    assert stage.get("/redis?at=10.0.0.7").body.startswith(b"nilconnection refused\n")
    assert stage.get("/redis?at=none.local").body.startswith(
        b"nilnone.local could not be resolved (3: Host not found)\n"
    )
    assert stage.connects[1:] == ["10.0.0.1:6379", "10.0.0.7:6379"]


def test_upstreams_of_the_configuration(stage):
    seen = []
    stage.upstream("users.local:8080", http(lambda request: seen.append(request) or Reply(201, {"X-A": "b"}, "ann")))
    answer = stage.request("POST", "/users/1", {"X-B": "c"}, "body")
    assert (answer.start[1], answer.header("x-a"), answer.body) == ("201", "b", b"ann")
    assert (seen[0].start[:2], seen[0].header("x-b"), seen[0].body) == (("POST", "/users/1"), "c", b"body")
    stage.upstream("users.local:8080", silent)
    assert stage.get("/users/1").start[1] == "502"
    assert round(stage.passed, 1) == 5
    assert stage.connects[1:] == ["users.local:8080", "10.0.0.2:8080"]


def test_timers_and_what_expires(stage):
    stage.get("/timer")
    assert [stage.get("/count").body for _ in range(2)] == [b"1\n", b"2\n"]
    assert "fired" not in stage.log
    stage.elapse(61)
    assert "fired 1767225660" in stage.log
    assert stage.get("/count").body == b"1\n"
    assert stage.request("PUT", "/body", body="x" * 100).body == b"x" * 100 + b"\n"


def test_stages_do_not_see_each_other(stage):
    real = time.time()
    assert stage.get("/count").body == b"1\n"
    with Stage(text=CONF, wall=1000.0) as other:
        assert other.get("/count").body == b"1\n"
        assert time.time() == 1000
    assert time.time() == real


def test_what_cannot_run():
    real = time.time
    with pytest.raises(ConfError, match='unknown directive "nonsense"'):
        Stage(text="nonsense on;")
    assert time.time is real
    with Stage(text=CONF) as stage:
        for address in ("nowhere", "host:", "host:http"):
            with pytest.raises(Error, match="is no address"):
                stage.upstream(address, silent)
        with pytest.raises(Error, match="no listener 9"):
            stage.request("GET", "/", listen="9")


TESTS = """
local users = {["/users/1"] = "ann"}

test("who is nobody is not let in", function(t)
    equal(t:request("/hello").status, 401)
end)

test("others wait an hour", function(t)
    local answer = t:request{uri = "/hello", headers = {Authorization = "ok"}}
    equal({answer.status, answer.body, t:passed()}, {200, "1767229200127.0.0.18080\\n", 3600})
    equal(t:access_log():match("^[^.]+"), "GET /hello 200 1767229200")
end)

test("users", function(t)
    t:http_upstream("users.local:8080", function(request)
        return {status = 201, headers = {["X-Host"] = request.headers.host}, body = users[request.uri]}
    end)
    local answer = t:request{uri = "/users/1", body = "x"}
    equal({answer.status, answer.headers["x-host"], answer.body}, {201, "users", "ann"})
    equal(t:connects(), {"users.local:8080"})
end)

test("redis", function(t)
    t:upstream("redis.local:6379", function(data) return "+PONG\\r\\n" end)
    equal(t:request("/redis").body, "1\\n+PONG\\n1\\n")
    t:request("/timer")
    t:elapse(60)
    assert(t:log():find("fired", 1, true))
end)
"""


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "nginx.conf"
    path.write_text(CONF)
    return path


def test_a_file_of_tests_in_lua(conf, capsys):
    conf.with_name("nginx.test.lua").write_text(TESTS)
    assert main(["test", str(conf)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    who is nobody is not let in", "ok    others wait an hour", "ok    users", "ok    redis",
        "4 passed, 0 failed",
    ]  # fmt: skip
    assert main(["test", str(conf), "-k", "redis"]) == 0
    assert sorted(path.name for path in conf.parent.iterdir()) == ["nginx.conf", "nginx.test.lua"]


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("equal(t:request('/count').body, '7')", 2, '"1\\\n" is not "7"'),
        ("equal({a = {1}}, {a = {2}}, 'tables')", 2, "tables: {a = {1}} is not {a = {2}}"),
        ("error('boom')", 2, "boom"),
        ("t:upstream('redis.local:6379', function() error('up') end) t:request('/redis')", 2, "up"),
        ("t:request{uri = '/', listen = '9'}", 1, "there is no listener 9 without TLS"),
    ],
)
def test_a_test_that_fails(conf, capsys, code, line, message):
    path = conf.with_name("nginx.test.lua")
    path.write_text(f"test('fails', function(t)\n{code} end)")
    assert main(["test", str(conf)]) == 1
    out = capsys.readouterr().out
    assert f"  {path}:{line}: {message}" in out
    assert out.endswith("0 passed, 1 failed\n")


def test_files_that_are_not_right(conf, capsys):
    path = conf.with_name("nginx.test.lua")
    assert main(["test", str(conf)]) == 1
    assert "write NAME.test.lua" in capsys.readouterr().err
    path.write_text("test('x')")
    assert main(["test", str(conf)]) == 1
    assert "a test has a name and a function" in capsys.readouterr().err
    path.write_text("x = = 1")
    assert main(["test", str(conf)]) == 1
    assert "nginx.test.lua:1" in capsys.readouterr().err
