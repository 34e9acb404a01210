"""Libraries for OpenResty as the distribution ships them, unmodified, against real servers."""

from __future__ import annotations

import socket

import pytest
from libs_rig import library

pytestmark = pytest.mark.peer

REDIS = """
    local red = require("nginx.redis"):new()
    red:set_timeouts(5000, 5000, 5000)
    assert(red:connect("unix:%s"))
    ngx.say(red:set("dog", "an animal"), " ", red:get("dog"), " ", red:get("cat") == ngx.null)
    ngx.say(red:hmset("h", {a = 1, b = 2}), " ", table.concat(red:hmget("h", "a", "b"), ","))
    red:init_pipeline()
    for i = 1, 50 do red:incr("n") end
    local results = red:commit_pipeline()
    ngx.say(#results, " ", results[50])
    ngx.say(red:multi(), " ", red:get("n"), " ", red:exec()[1])
    ngx.say(red:eval("return {KEYS[1], ARGV[1]}", 1, "k", "v")[2])
    ngx.say(red:nothing_known())
    local sub = require("nginx.redis"):new()
    assert(sub:connect("unix:%s"))
    ngx.say(sub:subscribe("c")[1])
    red:publish("c", "hello")
    ngx.say(sub:read_reply()[3])
    local big = ("x"):rep(200000)
    red:set("big", big)
    ngx.say(red:get("big") == big)
    ngx.say(red:set_keepalive(10000, 10), " ", sub:close())
    local again = require("nginx.redis"):new()
    assert(again:connect("unix:%s"))
    ngx.say(again:get_reused_times(), " ", again:get("dog"))
"""


async def test_redis(gateway, redis):
    library("nginx/redis.lua")
    await gateway.content(REDIS % ((redis,) * 3))
    text = (await gateway.get()).text
    lines = text.splitlines()
    unknown = lines.pop(5)
    assert unknown.startswith("falseERR unknown command")
    assert lines == [
        "OK an animal true", "OK 1,2", "50 50", "OK QUEUED 50", "v", "subscribe", "hello", "true", "1 1", "1 an animal",
    ], gateway.log()  # fmt: skip
    assert gateway.runtime.stats()["cosockets_reused"] == 1


async def test_redis_connector(gateway, redis):
    library("nginx/redis/connector.lua")
    await gateway.content(f"""
        package.preload["resty.redis"] = function() return require "nginx.redis" end
        package.preload["resty.redis.connector"] = function() return require "nginx.redis.connector" end
        local connector = assert(require("nginx.redis.connector").new{{path = "unix://{redis}"}})
        local red = assert(connector:connect())
        ngx.say(red:set("a", 1), red:get("a"))
        ngx.say(connector:set_keepalive(red))
        ngx.say(connector:connect{{path = "unix://{redis}.gone"}})
    """)
    text = (await gateway.get()).text
    assert text.splitlines() == ["OK1", "1", "nilno such file or directory"], gateway.log()


async def test_cookie(gateway):
    library("nginx/cookie.lua")
    await gateway.content("""
        local cookie = require("nginx.cookie"):new()
        local set = cookie:set{key = "n", value = "v", path = "/", httponly = true, max_age = 5}
        cookie:set{key = "m", value = "w"}
        ngx.say(set, cookie:get("a"), cookie:get("b"), cookie:get("c"))
    """)
    answer = await gateway.get("/", "Cookie: a=1; b=2")
    assert answer.text.splitlines() == ["true12nil"], gateway.log()
    assert [value for name, value in answer.fields if name == "Set-Cookie"] == [
        "n=v; Max-Age=5; Path=/; HttpOnly",
        "m=w",
    ]


MEMCACHED = """
    local memc = require("nginx.memcached"):new()
    memc:set_timeout(5000)
    assert(memc:connect("unix:%s"))
    ngx.say(memc:flush_all())
    ngx.say(memc:set("dog", 32, 0, 526))
    ngx.say((memc:get("dog")), " ", select(2, memc:get("dog")))
    ngx.say(memc:get("cat"))
    ngx.say(memc:incr("dog", 2), " ", memc:add("dog", 1))
    local many = memc:get({"dog", "cat"})
    ngx.say(many.dog[1], " ", many.cat)
    local big = ("y"):rep(100000)
    memc:set("big", big)
    ngx.say((memc:get("big")) == big)
    ngx.say(memc:set_keepalive(10000, 10))
"""


async def test_memcached(gateway, memcached):
    library("nginx/memcached.lua")
    await gateway.content(MEMCACHED % memcached)
    assert (await gateway.get()).text.splitlines() == [
        "1", "1", "32 526", "nilnilnil", "34 nilNOT_STORED", "34 nil", "true", "1",
    ], gateway.log()  # fmt: skip


async def test_string(gateway):
    library("nginx/string.lua")
    await gateway.content("""
        local str, aes = require "nginx.string", require "nginx.aes"
        local function digest(name, text)
            local one = require("nginx." .. name):new()
            one:update(text)
            return str.to_hex(one:final())
        end
        ngx.say(digest("sha1", "hello"))
        ngx.say(digest("sha256", "hello"))
        ngx.say(digest("md5", "hello"))
        ngx.say(str.atoi("123"), " ", #require("nginx.random").bytes(16))
        local cipher = aes:new("a key")
        ngx.say(cipher:decrypt(cipher:encrypt("hello")))
    """)
    assert (await gateway.get()).text.splitlines() == [
        "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d",
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "5d41402abc4b2a76b9719d911017c592",
        "123 16",
        "hello",
    ], gateway.log()


async def test_lrucache(gateway):
    library("resty/lrucache.lua")
    await gateway.content("""
        for _, name in ipairs{"resty.lrucache", "resty.lrucache.pureffi"} do
            local cache = require(name).new(2)
            cache:set("a", 1) cache:set("b", {2}) cache:get("a") cache:set("c", 3)
            ngx.say(cache:get("a"), cache:get("b"), cache:get("c"), cache:count())
        end
    """)
    assert (await gateway.get()).text == "1nil32\n" * 2, gateway.log()


WEBSOCKET = """
    listen 127.0.0.1:%d;
    location = /ws { content_by_lua_block {
        local wb = assert(require("nginx.websocket.server"):new{timeout = 5000, max_payload_len = 65535})
        while true do
            local data, kind, err = wb:recv_frame()
            if not data then ngx.log(ngx.ERR, "ended: ", err) return ngx.exit(444) end
            if kind == "close" then wb:send_close(1000, "bye") return end
            if kind == "text" then wb:send_text(data:upper()) end
            if kind == "ping" then wb:send_pong(data) end
        end
    } }
    location / { content_by_lua_block {
        local wb = require("nginx.websocket.client"):new{timeout = 5000}
        assert(wb:connect("ws://127.0.0.1:%d/ws", {}))
        wb:send_text("hello")
        ngx.say(wb:recv_frame())
        wb:send_text(("x"):rep(60000))
        local big, kind = wb:recv_frame()
        ngx.say(#big, kind)
        wb:send_ping("p")
        ngx.say(wb:recv_frame())
        wb:send_close(1000, "over")
        ngx.say(wb:recv_frame())
    } }
"""


async def test_websocket(gateway):
    library("nginx/websocket/server.lua")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await gateway.start(WEBSOCKET % (port, port))
    assert (await gateway.get()).text.splitlines() == ["HELLOtextnil", "60000text", "ppongnil", "byeclose1000"], (
        gateway.log()
    )
    assert gateway.runtime.stats()["sockets"] == 0
