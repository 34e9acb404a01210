"""Lua and upstreams: captures through proxy_pass, variables of upstreams, filters over proxied bodies."""

from __future__ import annotations

from headrace.testing.origin import Origin, Reply, ok


async def test_a_capture_is_framed_anew(gateway):
    """The body of the capture is all that goes upstream, whatever framing the client used."""
    async with Origin([ok(b"answer", status="201 Made", headers=["X-A: 1"])]) as there:
        await gateway.start(
            f"""
            location /up {{ proxy_pass http://127.0.0.1:{there.port}; }}
            location /m {{ content_by_lua_block {{
                ngx.req.read_body()
                local res = ngx.location.capture("/up", {{ method = ngx.HTTP_POST, body = "hello" }})
                ngx.say(res.status, " ", res.header["X-A"], " ", res.body, " ", tostring(res.truncated))
            }} }}
            """
        )
        raw = b"POST /m HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        assert b"201 1 answer false" in await gateway.raw(raw)
        got = there.requests[-1]
        assert (got.method, got.body) == ("POST", b"hello")
        assert [value for name, value in got.headers if name.lower() == "content-length"] == ["5"]
        assert got.header("transfer-encoding") is None


async def test_captures_in_parallel_and_one_that_fails(gateway):
    async with Origin(lambda request: ok(request.target.encode(), close=True)) as there:
        await gateway.start(
            f"""
            location /up {{ proxy_pass http://127.0.0.1:{there.port}; }}
            location /none {{ proxy_pass http://127.0.0.1:1; }}
            location /cut {{ proxy_pass http://unix:{gateway.folder}/none.sock; }}
            location /m {{ content_by_lua_block {{
                local all = {{ ngx.location.capture_multi({{ {{ "/up/1" }}, {{ "/none" }}, {{ "/up/2?a=b" }}, {{ "/cut" }} }}) }}
                for _, res in ipairs(all) do ngx.say(res.status, " ", #res.body < 20 and res.body or "page") end
            }} }}
            """
        )
        answer = await gateway.get("/m")
        assert answer.text.split("\n")[:4] == ["200 /up/1", "502 ", "200 /up/2?a=b", "502 "]


async def test_filters_see_what_the_upstream_sent(gateway):
    data = b"HTTP/1.1 200 OK\r\nX-Up: yes\r\nContent-Length: 5\r\n\r\nhello"
    async with Origin([Reply(data, close=True)]) as there:
        await gateway.start(
            f"""
            location / {{
                proxy_pass http://127.0.0.1:{there.port};
                header_filter_by_lua_block {{
                    ngx.header["X-Seen"] = ngx.header["X-Up"] .. " " .. ngx.var.upstream_status
                    ngx.header.content_length = nil
                }}
                body_filter_by_lua_block {{ ngx.arg[1] = string.upper(ngx.arg[1] or "") }}
            }}
            """
        )
        answer = await gateway.get("/")
        assert (answer.body, answer.headers["x-seen"]) == (b"HELLO", "yes 200")
