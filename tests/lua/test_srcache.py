"""srcache: what another location is asked for and given to keep. The store is a shared dictionary, read by Lua."""

from __future__ import annotations

import pytest

from headrace.errors import ConfError

HTTP = "lua_shared_dict kept 1m; init_by_lua_block { ngx.shared.kept:flush_all() }"
STORE = """
location = /kept { content_by_lua_block {
    local method, kept, key = ngx.req.get_method(), ngx.shared.kept, ngx.var.args
    if method == "GET" then
        local found = kept:get(key)
        if not found then return ngx.exit(404) end
        return ngx.print(found)
    end
    kept:set(key, ngx.req.get_body_data())
    kept:incr("stores", 1, 0)
} }
location = /count { content_by_lua_block { ngx.print(ngx.shared.kept:get("stores") or 0) } }
location = /raw { content_by_lua_block { ngx.print(ngx.shared.kept:get(ngx.var.args)) } }
location = /set { content_by_lua_block { ngx.req.read_body() ngx.shared.kept:set("k", ngx.req.get_body_data()) } }
"""
BOTH = "srcache_fetch GET /kept k; srcache_store PUT /kept k;"
STATUS = " add_header X-F $srcache_fetch_status; add_header X-S $srcache_store_status;"
HELLO = 'content_by_lua_block { ngx.header["X-A"] = "b" ngx.say("hello ", ngx.time()) }'


async def count(gateway) -> str:
    return (await gateway.get("/count")).text


async def test_the_second_answer_is_the_first(gateway):
    await gateway.start(STORE + f"location /t {{ default_type text/css; {BOTH}{STATUS} {HELLO} }}", HTTP)
    first, second = await gateway.get("/t"), await gateway.get("/t")
    assert first.body == second.body
    assert (first.headers["x-f"], first.headers["x-s"]) == ("MISS", "STORE")
    assert (second.headers["x-f"], second.headers["x-s"], second.headers["x-a"]) == ("HIT", "BYPASS", "b")
    assert second.headers["content-length"] == str(len(first.body))
    assert await count(gateway) == "1"
    raw = (await gateway.get("/raw?k")).body
    assert raw == b"HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nX-A: b\r\n\r\n" + first.body


@pytest.mark.parametrize(
    ("code", "stored"),
    [
        ("echo x;", 1),
        ("srcache_store_skip 1; echo x;", 0),
        ("srcache_store_skip 0; echo x;", 1),
        ("srcache_store_skip $arg_a; echo x;", 1),
        ("echo_status 404; echo x;", 0),
        ("srcache_store_statuses 404 500; echo_status 404; echo x;", 1),
        ("content_by_lua_block { return ngx.redirect('/x') }", 1),
        ("return 200 x;", 0),
        ("srcache_store_max_size 10; echo x;", 0),
        ("srcache_store_max_size 1k; echo x;", 1),
        ("more_set_headers 'Cache-Control: private'; echo x;", 0),
        ("more_set_headers 'Cache-Control: private'; srcache_store_private on; echo x;", 1),
        ("more_set_headers 'Cache-Control: no-store'; echo x;", 0),
        ("more_set_headers 'Cache-Control: no-cache'; srcache_response_cache_control off; echo x;", 1),
        ("more_set_headers 'Cache-Control: max-age=0'; echo x;", 0),
        ("more_set_headers 'Cache-Control: max-age=9'; echo x;", 1),
        ("more_set_headers 'Expires: Thu, 01 Jan 1970 00:00:01 GMT'; echo x;", 0),
        ("more_set_headers 'Content-Encoding: br'; echo x;", 0),
        ("more_set_headers 'Content-Encoding: br'; srcache_ignore_content_encoding on; echo x;", 1),
        ("content_by_lua_block { ngx.header.content_length = 5 ngx.print('abc') }", 0),
    ],
)
async def test_which_answers_are_stored(gateway, code, stored):
    await gateway.start(STORE + f"location /t {{ {BOTH} {code} }}", HTTP)
    await gateway.get("/t")
    assert await count(gateway) == str(stored)


@pytest.mark.parametrize(
    ("code", "method", "fields", "status", "stored"),
    [
        ("", "POST", (), "BYPASS", 0),
        ("srcache_methods POST;", "POST", (), "MISS", 1),
        ("", "HEAD", (), "MISS", 0),
        ("srcache_fetch_skip 1;", "GET", (), "BYPASS", 1),
        ("srcache_request_cache_control on;", "GET", ("Cache-Control: no-cache",), "BYPASS", 1),
        ("srcache_request_cache_control on;", "GET", ("Pragma: no-cache",), "BYPASS", 1),
        ("srcache_request_cache_control on;", "GET", ("Cache-Control: no-store",), "MISS", 0),
        ("", "GET", ("Cache-Control: no-cache",), "MISS", 1),
    ],
)
async def test_which_requests_are_looked_up(gateway, code, method, fields, status, stored):
    await gateway.start(STORE + f"location /t {{ {BOTH}{STATUS} {code} {HELLO} }}", HTTP)
    answer = await gateway.get("/t", *fields, method=method)
    assert answer.headers["x-f"] == status
    assert await count(gateway) == str(stored)


@pytest.mark.parametrize(
    ("kept", "text", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nkept", "kept", ""),
        (b"HTTP/1.1 404 Not Found\r\nContent-Type: a/b\r\n\r\nkept", "kept", ""),
        (b"nonsense", "made\n", "srcache_fetch: cache sent invalid status line or header"),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", "made\n", "srcache_fetch: cache sent invalid status line or header"),
    ],
)
async def test_what_the_store_gives(gateway, kept, text, said):
    await gateway.start(STORE + f"location /t {{ {BOTH} echo made; }}", HTTP)
    await gateway.get("/set", method="POST", body=kept)
    assert (await gateway.get("/t")).text == text
    assert said in gateway.log()


async def test_fields_are_hidden_and_passed(gateway):
    code = "more_set_headers 'Set-Cookie: a=b' 'X-Foo: c' 'X-Bar: d';"
    more = (
        "srcache_store_hide_header x-foo; srcache_store_pass_header Set-Cookie; srcache_store_hide_header Content-Type;"
    )
    await gateway.start(STORE + f"location /t {{ {BOTH} {more} {code} echo x; }}", HTTP)
    await gateway.get("/t")
    assert (await gateway.get("/raw?k")).body == b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nX-Bar: d\r\n\r\nx\n"


async def test_how_long_it_may_be_kept(gateway):
    store = "srcache_store PUT /kept expire=$srcache_expire;"
    cases = [
        ("", "60"),
        ("srcache_default_expire 5m;", "300"),
        ("srcache_max_expire 7;", "7"),
        ("more_set_headers 'Cache-Control: max-age=12';", "12"),
        ("more_set_headers 'Cache-Control: max-age=12'; srcache_max_expire 7;", "7"),
    ]
    where = "".join(f"location = /t{i} {{ {store} {code} echo {i}; }}" for i, (code, _) in enumerate(cases))
    await gateway.start(STORE + where, HTTP)
    for i, (_, seconds) in enumerate(cases):
        await gateway.get(f"/t{i}")
        assert (await gateway.get(f"/raw?expire={seconds}")).text.endswith(f"\r\n\r\n{i}\n")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("srcache_fetch PATCH /kept;", '"srcache_fetch" specifies bad HTTP method PATCH'),
        ("srcache_store_statuses ok;", 'status code "ok" is an invalid number'),
        ("srcache_methods PATCH;", 'invalid value "PATCH"'),
        ("srcache_fetch GET /a; srcache_fetch GET /b;", '"srcache_fetch" directive is duplicate'),
    ],
)
async def test_what_the_configuration_may_not_say(gateway, code, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(f"location / {{ {code} }}")
