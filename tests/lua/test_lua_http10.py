"""Answers to HTTP/1.0 clients, and answers without a Date; in nginx too."""

from __future__ import annotations

import socket

import pytest

SERVER = """
location = /say { content_by_lua_block { ngx.say("hello") } }
location = /late { content_by_lua_block { ngx.sleep(0.001) ngx.say("hello") } }
location = /flushed { content_by_lua_block { ngx.say("hello") ngx.ctx.a = {ngx.flush(true)}
    ngx.print(tostring(ngx.ctx.a[1]), ngx.ctx.a[2]) } }
location = /begun { content_by_lua_block { ngx.send_headers() ngx.say("hello") ngx.print(ngx.flush(true)) } }
location = /much { content_by_lua_block { for i = 1, 9 do ngx.print(("x"):rep(9000)) if i % 3 == 0 then ngx.sleep(0.001) end end } }
location = /unheld { lua_http10_buffering off; content_by_lua_block { ngx.say("hello") ngx.print(ngx.flush(true)) } }
location = /exit { content_by_lua_block { ngx.status = 201 ngx.say("hello") ngx.exit(201) } }
location = /ok { access_by_lua_block { ngx.say("hello") ngx.exit(ngx.OK) } }
location = /cleared { more_clear_headers Date; content_by_lua_block { ngx.say("hello") } }
location = /filtered { header_filter_by_lua_block { ngx.header.Date = nil } content_by_lua_block { ngx.say("hello") } }
"""
LENGTHS = {
    "/say": "6",
    "/late": "6",
    "/flushed": "18",
    "/begun": None,
    "/exit": "6",
    "/ok": "6",
    "/much": "81000",
    "/unheld": None,
    "/cleared": "6",
    "/filtered": "6",
}


def judge(path: str, raw: bytes) -> None:
    head, _, body = raw.decode().partition("\r\n\r\n")
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
    if path == "/much":
        assert body == "x" * 81000
    else:
        assert body == "hello\n" + {"/flushed": "nilbuffering", "/begun": "1", "/unheld": "1"}.get(path, ""), path
    assert fields.get("content-length") == LENGTHS[path], path
    assert ("date" in fields) == (path not in {"/cleared", "/filtered"}), path
    assert "transfer-encoding" not in fields


async def test_here(gateway):
    await gateway.start(SERVER)
    for path in LENGTHS:
        judge(path, await gateway.raw(f"GET {path} HTTP/1.0\r\n\r\n".encode()))


@pytest.mark.peer
def test_in_nginx(nginx):
    get = nginx(SERVER)
    for path in LENGTHS:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(str(get.folder / "http.sock"))
            sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            raw = b""
            while data := sock.recv(65536):
                raw += data
        judge(path, raw)
