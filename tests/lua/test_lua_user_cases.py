"""What users of OpenResty ran into, by the number of the case."""

from __future__ import annotations

import asyncio
import hashlib

import pytest


async def recording(origin, reader, writer, _number) -> None:
    while data := await reader.read(65536):
        origin.received += data
        if data.endswith(b"hello"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("more", ["", 'ngx.req.set_header("Transfer-Encoding", "chunked")'])
async def test_o11_a_subrequest_has_framing_of_its_own(gateway, origin, more):
    server = await origin(recording)
    await gateway.start(f"""
        location /m {{ content_by_lua_block {{
            ngx.req.read_body() {more}
            ngx.print(ngx.location.capture("/up", {{method = ngx.HTTP_POST, body = "hello"}}).body)
        }} }}
        location /up {{ proxy_pass http://{server.address}; }}
    """)
    raw = b"POST /m HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert b"ok" in await gateway.raw(raw)
    sent = server.received.lower()
    assert sent.count(b"http/1.") == 1
    assert sent.count(b"content-length: 5\r\n") == sent.count(b"content-length") == 1
    assert b"transfer-encoding" not in sent
    both = await gateway.raw(raw.replace(b"Host", b"Content-Length: 3\r\nHost"))
    assert both.startswith(b"HTTP/1.1 400 ")
    assert server.received.lower() == sent


async def test_o10_what_is_flushed_is_seen_and_a_slow_reader_holds_the_writer(gateway):
    await gateway.start(
        """
        location / { content_by_lua_block {
            local count = ngx.shared.d
            ngx.print("event\\n") assert(ngx.flush(true))
            for i = 1, 200 do ngx.print(("x"):rep(65536)) assert(ngx.flush(true)) count:set("written", i) end
        } }
        location /written { content_by_lua_block { ngx.sleep(0.05) ngx.print(ngx.shared.d:get("written") or 0) } }
        """,
        "lua_shared_dict d 1m;",
    )
    reader, writer = await asyncio.open_unix_connection(gateway.path, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert (await reader.readuntil(b"event\n")).startswith(b"HTTP/1.1 200 ")
    assert int((await gateway.get("/written")).text) < 100
    assert len(await reader.read(-1)) > 200 * 65536
    writer.close()
    assert (await gateway.get("/written")).text == "200"


async def test_o15_a_client_that_leaves_gives_its_unit_back(gateway):
    http = 'init_by_lua_block { sema = require("ngx.semaphore").new(1) }'
    await gateway.start(
        """lua_check_client_abort on;
        location /hold { content_by_lua_block {
            ngx.on_abort(function() sema:post(1) ngx.exit(499) end)
            assert(sema:wait(0)) ngx.say("held") ngx.flush(true) ngx.sleep(60)
        } }
        location /next { content_by_lua_block { ngx.print(sema:wait(10)) } }
        """,
        http,
    )
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readuntil(b"held")
    writer.close()
    assert (await gateway.get("/next")).text == "true"


async def test_o23_the_context_of_a_redirect_within_is_new(gateway):
    await gateway.start("""
        location /a { access_by_lua_block { ngx.ctx.first = 1 ngx.exec("/b") } }
        location /b {
            content_by_lua_block { ngx.ctx.second = 2 ngx.print(tostring(ngx.ctx.first)) }
            log_by_lua_block { ngx.log(ngx.WARN, "kept: ", ngx.ctx.first, " ", ngx.ctx.second) }
        }
    """)
    assert (await gateway.get("/a")).text == "nil"
    assert "kept: nil 2" in gateway.log()


async def test_o27_status_and_headers_sent_before_output(gateway):
    await gateway.content(
        "local a, b = ngx.status, ngx.headers_sent ngx.say(a, b) ngx.print(ngx.status, ngx.headers_sent)"
    )
    assert (await gateway.get()).text == "0false\n200true"


async def test_h12_a_chunked_body_is_there_decoded(gateway):
    await gateway.content("ngx.req.read_body() ngx.print(ngx.md5(ngx.req.get_body_data()))")
    pieces = [bytes([i]) * (i * 7 + 1) for i in range(40)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await gateway.raw(head + chunks)
    assert hashlib.md5(b"".join(pieces)).hexdigest().encode() in answer
