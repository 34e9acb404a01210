"""Bodies that a script makes; the same code in nginx with its Lua module."""

from __future__ import annotations

import pytest

CODE = r"""
location / { client_body_buffer_size 8k; content_by_lua_block {
    local function show()
        local file = ngx.req.get_body_file()
        local kept = ""
        if file then local f = io.open(file) kept = f:read("*a") f:close() end
        ngx.say(ngx.var.http_content_length, " ", ngx.req.get_body_data() or "nil", " ", #kept, "|", kept:sub(1, 9))
    end
    ngx.say(pcall(ngx.req.init_body))
    ngx.say(pcall(ngx.req.append_body, "x"))
    ngx.req.read_body()
    ngx.say(pcall(ngx.req.append_body))
    ngx.say(pcall(ngx.req.append_body, "x"))
    ngx.say(pcall(ngx.req.finish_body))
    ngx.say(pcall(ngx.req.init_body, 1, 2))
    ngx.say(pcall(ngx.req.init_body, -1))
    ngx.req.init_body(4) ngx.req.append_body("h") ngx.req.append_body("ell") ngx.req.finish_body() show()
    ngx.req.init_body(4) ngx.req.append_body("h") ngx.req.append_body("ello") ngx.req.finish_body() show()
    ngx.req.init_body() for _ = 1, 9 do ngx.req.append_body(("x"):rep(1000)) end ngx.req.finish_body() show()
    ngx.req.init_body() ngx.req.append_body(12) ngx.req.finish_body() show()
    ngx.req.set_body_file("%(path)s") show()
    ngx.say(pcall(ngx.req.set_body_file, "/nowhere/at/all"))
    ngx.req.set_body_file("%(path)s", true) show()
} }
"""
OUTPUT = """falserequest body not read yet
falserequest_body not initialized
falseexpecting 1 arguments but seen 0
falserequest_body not initialized
falserequest_body not initialized
falseexpecting 0 or 1 argument but seen 2
falsebad size argument: -1
4 hell 0|
5 nil 5|hello
9000 nil 9000|xxxxxxxxx
2 12 0|
6 nil 6|a file
falsestat() "/nowhere/at/all" failed
6 nil 6|a file
"""


async def test_bodies(gateway, tmp_path):
    path = tmp_path / "body"
    path.write_text("a file")
    await gateway.start(CODE % {"path": path})
    assert (await gateway.get("/", method="POST", body=b"theirs")).text == OUTPUT
    assert not path.exists()


@pytest.mark.peer
def test_bodies_in_nginx(nginx, tmp_path):
    path = tmp_path / "body"
    path.write_text("a file")
    assert nginx(CODE % {"path": path})("/", method="POST", body=b"theirs").text == OUTPUT


async def test_a_file_that_was_to_be_cleaned_goes_with_the_next_one(gateway):
    for name in "ab":
        (gateway.folder / name).write_text(name)
    await gateway.start(f"""location / {{ client_body_in_file_only on; content_by_lua_block {{
        ngx.req.read_body()
        ngx.say(ngx.req.get_body_file():match("/(%d+)$") ~= nil)
        for _, name in ipairs({{ "a", "b" }}) do ngx.req.set_body_file("{gateway.folder}/" .. name, true) end
        ngx.say(io.open("{gateway.folder}/a") == nil, io.open("{gateway.folder}/b") ~= nil)
    }} }}""")
    assert (await gateway.get("/", method="POST", body=b"x")).text == "true\ntruetrue\n"
    assert not (gateway.folder / "b").exists()


async def test_echo_knows_the_body_that_lua_has_read(gateway):
    await gateway.content("ngx.req.read_body() ngx.req.set_body_data('new') ngx.say(ngx.var.echo_request_body)")
    assert (await gateway.get("/", method="POST", body=b"x")).text == "new\n"


async def test_a_body_that_comes_too_slowly_is_no_error_of_ours(gateway):
    await gateway.start("location / { client_body_timeout 20ms; content_by_lua_block { ngx.req.read_body() } }")
    await gateway.raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
    assert "[error]" not in gateway.log()
    assert "[info]" in gateway.log()
