"""setkeepalive and the pools: who gets a connection again, and who never must."""

from __future__ import annotations

import asyncio
import random

from lua_rig import echo, silent


async def lines(gateway, code, **kw):
    await gateway.content(code, **kw)
    answer = await gateway.get()
    assert answer.status == 200, gateway.log()
    return answer.text.splitlines()


async def test_reuse_and_its_count(gateway, origin):
    server = await origin(echo)
    assert await lines(
        gateway,
        f"""
        for _ = 1, 3 do
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            sock:send("ping")
            ngx.say(sock:receive(4), sock:getreusedtimes())
            ngx.say(sock:setkeepalive(), sock:send("x"))
        end
    """,
    ) == ["ping0", "1nilclosed", "ping1", "1nilclosed", "ping2", "1nilclosed"]
    stats = gateway.runtime.stats()
    assert server.accepted == 1
    assert (stats["cosockets_opened"], stats["cosockets_reused"], stats["idle"]) == (1, 2, 1)


async def test_own_pool_names(gateway, origin):
    server = await origin(echo)
    assert await lines(
        gateway,
        f"""
        local function visit(pool)
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}", {{ pool = pool }}))
            ngx.say(sock:getreusedtimes())
            sock:setkeepalive()
        end
        visit("a") visit("b") visit("a")
    """,
    ) == ["0", "0", "1"]


async def test_unread_bytes_close_the_connection(gateway, origin):
    async def talkative(_origin, reader, writer, _number):
        writer.write(b"abcdef")
        await reader.read()

    server = await origin(talkative)
    assert await lines(
        gateway,
        f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        sock:receive(3)
        ngx.say(sock:setkeepalive())
        assert(sock:connect("{server.address}"))
        ngx.sleep(0.02)
        ngx.say(sock:setkeepalive())
        ngx.say(sock:connect("{server.address}"), sock:getreusedtimes())
    """,
    ) == ["nilunread data in buffer", "nilconnection in dubious state", "10"]
    assert server.accepted == 3


async def test_a_late_answer_reaches_nobody_else(gateway, origin):
    """O04: after a read timeout the connection is not given to the next request."""

    async def tardy(_origin, reader, writer, number):
        while line := await reader.readline():
            await asyncio.sleep(0.1 if number == 1 else 0)
            writer.write(b"reply to " + line)

    server = await origin(tardy)
    assert await lines(
        gateway,
        f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(20)
        assert(sock:connect("{server.address}"))
        sock:send("1\\n")
        ngx.say(select(2, sock:receive()))
        ngx.say(sock:setkeepalive())
        local other = ngx.socket.tcp()
        assert(other:connect("{server.address}"))
        ngx.sleep(0.15)
        other:send("2\\n")
        ngx.say(other:getreusedtimes(), other:receive())
    """,
    ) == ["timeout", "nilinvalid connection", "0reply to 2"]
    assert server.accepted == 2


async def test_interleavings_never_mix_answers(gateway, origin):
    """O04, 200 times: whatever the timing, a request reads its own answer or none."""
    rng = random.Random(4)

    async def moody(_origin, reader, writer, _number):
        while line := await reader.readline():
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.004)))
            writer.write(line)

    server = await origin(moody)
    assert await lines(
        gateway,
        f"""
        local wrong, seen, timeouts = 0, 0, 0
        local function visit(n)
            local sock = ngx.socket.tcp()
            sock:settimeout(2)
            assert(sock:connect("{server.address}"))
            sock:send(n .. "\\n")
            local data, err = sock:receive()
            if data then seen = seen + 1 else timeouts = timeouts + 1 end
            if data and data ~= tostring(n) then wrong = wrong + 1 end
            sock:setkeepalive()
        end
        for n = 1, 200, 4 do
            local threads = {{}}
            for k = 0, 3 do threads[k + 1] = ngx.thread.spawn(visit, n + k) end
            for k = 1, 4 do assert(ngx.thread.wait(threads[k])) end
        end
        ngx.say(wrong, " ", seen + timeouts)
    """,
    ) == ["0 200"]


async def test_a_peer_that_closes_while_idle_is_noticed(gateway, origin):
    async def short(_origin, reader, writer, _number):
        writer.write(await reader.read(4))

    server = await origin(short)
    assert await lines(
        gateway,
        f"""
        for _ = 1, 2 do
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            sock:send("ping")
            ngx.say(sock:receive(4), sock:getreusedtimes())
            sock:setkeepalive()
            ngx.sleep(0.03)
        end
    """,
    ) == ["ping0", "ping0"]
    assert gateway.runtime.stats()["idle"] == 0


async def test_size_and_timeout_of_a_pool(gateway, origin):
    server = await origin(silent)
    assert await lines(
        gateway,
        f"""
        local socks = {{}}
        for i = 1, 3 do
            socks[i] = ngx.socket.tcp()
            assert(socks[i]:connect("{server.address}"))
        end
        for i = 1, 3 do ngx.say(socks[i]:setkeepalive(40, 2)) end
        ngx.sleep(0.12)
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        ngx.say(sock:getreusedtimes())
    """,
    ) == ["1", "1", "1", "0"]
    assert gateway.runtime.stats()["cosockets_discarded"] == 3


async def test_backlog(gateway, origin):
    server = await origin(echo)
    assert await lines(
        gateway,
        f"""
        local options = {{ pool_size = 1, backlog = 1 }}
        local first = ngx.socket.tcp()
        ngx.say(first:connect("{server.address}", options))
        local second = ngx.thread.spawn(function()
            local sock = ngx.socket.tcp()
            local ok, err = sock:connect("{server.address}", options)
            return ok, err, sock:getreusedtimes()
        end)
        local third = ngx.socket.tcp()
        ngx.say(third:connect("{server.address}", options))
        ngx.say(first:setkeepalive())
        ngx.say(ngx.thread.wait(second))
        local fourth = ngx.socket.tcp()
        fourth:settimeout(20)
        ngx.say(fourth:connect("{server.address}", options))
    """,
    ) == ["1", "niltoo many waiting connect operations", "1", "true1nil1", "niltimeout"]
    assert server.accepted == 1


async def test_pool_options_are_checked(gateway):
    assert await lines(
        gateway,
        """
        local sock = ngx.socket.tcp()
        ngx.say(pcall(sock.connect, sock, "127.0.0.1", 1, { pool_size = 0 }))
        ngx.say(pcall(sock.connect, sock, "127.0.0.1", 1, { pool_size = "a" }))
        ngx.say(pcall(sock.connect, sock, "127.0.0.1", 1, { backlog = -1 }))
        ngx.say(pcall(sock.connect, sock, "127.0.0.1", 1, { pool = {} }))
        ngx.say(pcall(sock.connect, sock))
    """,
    ) == [
        "falsebad argument #4 to '?' (bad \"pool_size\" option value: 0)",
        "falsebad argument #4 to '?' (bad \"pool_size\" option type: string)",
        "falsebad argument #4 to '?' (bad \"backlog\" option value: -1)",
        "falsebad argument #4 to '?' (bad \"pool\" option type: table)",
        "falsengx.socket connect: expecting 2, 3, or 4 arguments (including the object), but seen 1",
    ]


async def test_idle_connections_close_when_the_worker_ends(gateway, origin):
    async def until_eof(one, reader, _writer, _number):
        await reader.read()
        one.received += b"closed"

    server = await origin(until_eof)
    await lines(
        gateway,
        f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        ngx.say(sock:setkeepalive(0))
    """,
    )
    gateway.runtime.exit()
    for _ in range(200):
        if server.received:
            break
        await asyncio.sleep(0.01)
    assert server.received == b"closed"


async def test_a_connection_keeps_its_timers_while_it_is_used_and_idle(gateway, origin):
    async def slow(_origin, reader, writer, _number):
        while await reader.readexactly(4):
            await asyncio.sleep(0.002)
            writer.write(b"pong")

    server = await origin(slow)
    await gateway.content(
        f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(1000)
        assert(sock:connect("{server.address}"))
        sock:send("ping")
        ngx.say(sock:receive(4))
        sock:setkeepalive(60000)
    """,
        http="lua_socket_spin_time 0;",
    )
    count = gateway.runtime.vm.entry("pending_entries")
    waiting = []
    for _ in range(5):
        assert (await gateway.get()).text == "pong\n"
        waiting.append(count())
    assert waiting[0] == waiting[-1] <= 2
    assert (server.accepted, gateway.runtime.stats()["parks"]) == (1, 5)


async def test_an_idle_connection_ends_in_its_own_time_however_often_it_was_used(gateway, origin):
    server = await origin(echo)
    await gateway.content(
        f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        ngx.say(sock:getreusedtimes())
        sock:setkeepalive(tonumber(ngx.var.arg_ms))
    """
    )
    assert [(await gateway.get(f"/?ms={ms}")).text for ms in (60000, 60000, 30)] == ["0\n", "1\n", "2\n"]
    async with asyncio.timeout(20):
        while gateway.runtime.stats()["idle"]:
            await asyncio.sleep(0.01)
    assert (await gateway.get("/?ms=60000")).text == "0\n"


async def test_retries_stop_where_others_wait_for_the_loop(gateway, origin):
    server = await origin(echo)
    await gateway.content(
        f"""
        local function visit()
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            for _ = 1, 20 do sock:send("ping") sock:receive(4) end
            sock:setkeepalive()
        end
        local all = {{}}
        for i = 1, 8 do all[i] = ngx.thread.spawn(visit) end
        for i = 1, 8 do ngx.thread.wait(all[i]) end
        ngx.say("done")
    """
    )
    assert (await gateway.get()).text == "done\n"
    stats = gateway.runtime.stats()
    assert stats["parks"] > stats["spins"]
