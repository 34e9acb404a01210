"""Cosockets against scripted origins: reading, writing, timeouts, concurrent use, pools."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket

import pytest
from lua_rig import echo, sending, silent

from headrace.testing.plugin import free_port

CONNECT = 'local sock = ngx.socket.tcp() assert(sock:connect("%s"))\n'


async def run(gateway, origin, script, code, **kw):
    server = await origin(script)
    await gateway.content(CONNECT % server.address + code, **kw)
    answer = await gateway.get()
    assert answer.status == 200, gateway.log()
    return answer.text


async def test_round_trips_behind_unflushed_output(gateway, origin):
    text = await run(
        gateway,
        origin,
        echo,
        """
        ngx.say("hello")
        for _ = 1, 2000 do
            assert(sock:send("hello") == 5)
            assert(sock:receive(5) == "hello")
        end
        ngx.say(sock:close())
    """,
    )
    assert text == "hello\n1\n"
    stats = gateway.runtime.stats()
    assert stats["chain_peak"] == 1
    assert stats["cosockets_opened"] == stats["cosockets_closed"] == 1
    assert stats["sockets"] == stats["requests"] == 0


async def test_send_kinds(gateway, origin):
    text = await run(
        gateway,
        origin,
        echo,
        """
        ngx.say(sock:send({"a", {1, {"c"}}, "b"}), sock:receive(4))
        ngx.say(sock:send(12), sock:send(1.5), sock:send(nil), sock:send(false), sock:receive(13))
        ngx.say(pcall(sock.send, sock, {a = 1}))
        ngx.say(pcall(sock.send, sock, {ngx.null}))
        ngx.say(pcall(sock.send, sock, print))
        ngx.say(pcall(sock.send, sock))
        ngx.say(sock:send(""))
    """,
    )
    assert text.splitlines() == [
        "4a1cb",
        "2335121.5nilfalse",
        "falsebad argument #2 to '?' (non-array table found)",
        "falsebad argument #2 to '?' (bad data type userdata found)",
        "falsebad argument #2 to '?' (string, number, boolean, nil, or array table expected, got function)",
        "falseexpecting 2 arguments (including the object), but got 1",
        "0",
    ]


async def test_more_than_the_kernel_takes(gateway, origin):
    async def slow(_origin, reader, writer, _number):
        total = 0
        while total < 8_000_000:
            total += len(await reader.read(1 << 20))
        writer.write(b"%d\n" % total)
        await reader.read()

    text = await run(
        gateway,
        origin,
        slow,
        """
        ngx.say(sock:send(string.rep("x", 8000000)))
        ngx.say(sock:receive())
    """,
    )
    assert text == "8000000\n8000000\n"


async def test_receive_patterns(gateway, origin):
    text = await run(
        gateway,
        origin,
        sending(b"one\r\ntw", b"o\n\r\n12345", b"678rest"),
        """
        for _ = 1, 3 do ngx.say("[", sock:receive(), "]") end
        ngx.say(sock:receive("8"))
        ngx.say(sock:receive(0) == "")
        ngx.say(sock:receive("*a"))
        ngx.say(sock:receive("*l"))
    """,
    )
    assert text == "[one]\n[two]\n[]\n12345678\ntrue\nrest\nnilclosed\n"


async def test_receive_arguments(gateway, origin):
    text = await run(
        gateway,
        origin,
        silent,
        """
        ngx.say(pcall(sock.receive, sock, "*x"))
        ngx.say(pcall(sock.receive, sock, "line"))
        ngx.say(pcall(sock.receive, sock, -1))
        ngx.say(pcall(sock.receive, sock, {}))
        ngx.say(pcall(sock.receive, sock, 1, 2))
        ngx.say(pcall(sock.receiveany, sock, 0))
        ngx.say(pcall(sock.receiveany, sock))
        ngx.say(sock:receiveuntil(""))
        ngx.say(pcall(sock.settimeout, sock, "a"))
        ngx.say(pcall(sock.settimeout, sock, nil))
        ngx.say(pcall(sock.settimeout, sock, -1))
        ngx.say(pcall(sock.settimeout, sock))
        ngx.say(pcall(sock.settimeouts, sock, 1))
    """,
    )
    assert text.splitlines() == [
        "falsebad argument #2 to '?' (bad pattern argument)",
        "falsebad argument #2 to '?' (bad pattern argument: line)",
        "falsebad argument #2 to '?' (bad number argument)",
        "falsebad argument #2 to '?' (bad argument)",
        "falseexpecting 1 or 2 arguments (including the object), but got 3",
        "falsebad argument #2 to '?' (bad max argument)",
        "falseexpecting 2 arguments (including the object), but got 1",
        "nilpattern is empty",
        "true",
        "true",
        "falsebad timeout value",
        "falsengx.socket settimeout: expecting 2 arguments (including the object) but seen 1",
        "falsengx.socket settimeout: expecting 4 arguments (including the object) but seen 2",
    ]


async def test_receiveany(gateway, origin):
    text = await run(
        gateway,
        origin,
        sending(b"abcdef"),
        """
        ngx.say(sock:receiveany(4))
        ngx.say(sock:receiveany(4))
        ngx.say(sock:receiveany(4))
    """,
    )
    assert text == "abcd\nef\nnilclosed\n"


async def test_the_end_of_the_stream_gives_what_there_was(gateway, origin):
    text = await run(
        gateway,
        origin,
        sending(b"abc"),
        """
        ngx.say(sock:receive(5))
        ngx.say(sock:receive(1))
        ngx.say(sock:close())
    """,
    )
    assert text == "nilclosedabc\nnilclosed\n1\n"


async def test_read_timeout_keeps_the_connection(gateway, origin):
    async def late(_origin, reader, writer, _number):
        writer.write(b"ab")
        await reader.readexactly(1)
        writer.write(b"cd")
        await reader.read()

    text = await run(
        gateway,
        origin,
        late,
        """
        sock:settimeouts(1000, 1000, 30)
        ngx.say(sock:receive(4))
        sock:settimeout(5000)
        sock:send("x")
        ngx.say(sock:receive(2))
    """,
    )
    assert text == "niltimeoutab\ncd\n"
    assert "lua tcp socket read timed out" in gateway.log()


@pytest.mark.parametrize("phase", ["rewrite", "access", "content"])
async def test_timeouts_hold_in_every_phase(gateway, origin, phase):
    """O06."""
    server = await origin(silent)
    code = (
        CONNECT % server.address
        + """
        sock:settimeouts(100, 100, 40)
        local before = ngx.now()
        local data, err, partial = sock:receive(5)
        ngx.update_time()
        ngx.say(err, #partial, ngx.now() - before >= 0.035)
    """
    )
    await gateway.start(f"location / {{ {phase}_by_lua_block {{ {code} }} }}")
    assert (await gateway.get()).text == "timeout0true\n"


async def test_timeouts_hold_in_timers(gateway, origin):
    server = await origin(silent)
    await gateway.content(f"""
        local done
        ngx.timer.at(0, function()
            {CONNECT % server.address}
            sock:settimeout(20)
            local data, err = sock:receive(5)
            done = err
        end)
        for _ = 1, 100 do ngx.sleep(0.01) if done then break end end
        ngx.say(done)
    """)
    assert (await gateway.get()).text == "timeout\n"


async def test_directives_set_the_timeouts(gateway, origin):
    server = await origin(silent)
    await gateway.start(
        "location / { lua_socket_read_timeout 30ms; lua_socket_log_errors off; content_by_lua_block {"
        + CONNECT % server.address
        + "sock:settimeout(0) ngx.say(select(2, sock:receive(1))) } }"
    )
    assert (await gateway.get()).text == "timeout\n"
    assert "timed out" not in gateway.log()


async def test_second_user_is_told_who_is_busy(gateway, origin):
    """O02: one reader and one writer at once; the first operation goes on undisturbed."""
    text = await run(
        gateway,
        origin,
        silent,
        """
        sock:settimeout(60)
        local a = ngx.thread.spawn(function() return sock:receive(1) end)
        ngx.say("receive ", sock:receive(1))
        ngx.say("any ", sock:receiveany(1))
        ngx.say("until ", sock:receiveuntil("x")())
        ngx.say("send ", sock:send("abc"))
        ngx.say("close ", sock:close())
        ngx.say("keep ", sock:setkeepalive())
        ngx.say("connect ", sock:connect("unix:/x"))
        ngx.say("reused ", sock:getreusedtimes())
        local ok, data, err = ngx.thread.wait(a)
        ngx.say(ok, data, err)
        ngx.say(sock:close())
    """,
    )
    assert text.splitlines() == [
        "receive nilsocket busy reading",
        "any nilsocket busy reading",
        "until nilsocket busy reading",
        "send 3",
        "close nilsocket busy reading",
        "keep nilsocket busy reading",
        "connect nilsocket busy reading",
        "reused 0",
        "truenil" + "timeout",
        "1",
    ]


async def test_busy_writing(gateway, origin):
    async def stuck(_origin, reader, _writer, _number):
        reader._transport.pause_reading()
        await asyncio.sleep(3600)

    text = await run(
        gateway,
        origin,
        stuck,
        """
        sock:settimeout(60)
        local a = ngx.thread.spawn(function() return sock:send(string.rep("x", 8000000)) end)
        ngx.say(sock:send("abc"))
        ngx.say(sock:close())
        ngx.say(ngx.thread.wait(a))
    """,
    )
    assert text == "nilsocket busy writing\nnilsocket busy writing\ntrueniltimeout\n"


async def test_full_duplex(gateway, origin):
    text = await run(
        gateway,
        origin,
        echo,
        """
        local block = string.rep("0123456789", 100000)
        local writer = ngx.thread.spawn(function() return sock:send(block) end)
        ngx.say(sock:receive(#block) == block)
        ngx.say(ngx.thread.wait(writer))
    """,
    )
    assert text == "true\ntrue1000000\n"


async def test_a_socket_belongs_to_its_handler(gateway, origin):
    """O01: another request's use is an error that says where the socket was made; the origin gets nothing of it."""

    async def record(one, reader, _writer, _number):
        while data := await reader.read(100):
            one.received += data

    server = await origin(record)
    (gateway.folder / "keep.lua").write_text("return {}")
    await gateway.start(
        f"""
        location = /make {{ content_by_lua_block {{
            local keep = require "keep"
            {CONNECT % server.address}
            keep.sock = sock
            ngx.say(sock:send("1"))
            ngx.flush(true)
            ngx.sleep(0.4)
        }} }}
        location = /use {{ content_by_lua_block {{ require("keep").sock:send("x") }} }}
        location = /ended {{ content_by_lua_block {{ ngx.say(require("keep").sock:send("x")) }} }}
        location = /caught {{ content_by_lua_block {{
            local sock = require("keep").sock
            for _, op in ipairs {{ "send", "receive", "close", "setkeepalive" }} do
                ngx.say(op, select(2, pcall(sock[op], sock, op == "send" and "x" or nil)):match("bad request"))
            end
        }} }}
        """,
        http=f'lua_package_path "{gateway.folder}/?.lua;;";',
    )
    making = asyncio.ensure_future(gateway.get("/make"))
    while not server.received:
        await asyncio.sleep(0.01)
    assert (await gateway.get("/use")).status == 500
    assert (await gateway.get("/caught")).text == "".join(
        f"{op}bad request\n" for op in ("send", "receive", "close", "setkeepalive")
    )
    assert (await making).text == "1\n"
    assert (
        "bad request: this socket belongs to the handler that made it, at content_by_lua(nginx.conf:" in gateway.log()
    )
    assert (await gateway.get("/ended")).text == "nilclosed\n"
    assert server.received == b"1"
    assert (await gateway.get("/make")).text == "1\n"


async def test_names_are_resolved(gateway):
    async def greet(reader, writer):
        writer.write(b"hi\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        ngx.say(sock:connect("localhost", {port}))
        ngx.say(sock:receive())
        ngx.say(sock:connect("127.0.0.1", "{port}"))
        ngx.say(sock:getreusedtimes(), sock:setoption("keepalive", true))
        ngx.say(select(2, sock:connect("no such host", 1)))
        ngx.say((select(2, sock:connect("nohost.invalid", 1)):match("^nohost.invalid could not be resolved")))
        local other = ngx.socket.connect("127.0.0.1", {port})
        ngx.say(other:receive("*a"))
    """)
    assert (await gateway.get()).text.splitlines() == [
        "1",
        "hi",
        "1",
        "0true",
        'failed to parse host name "no such host": invalid host',
        "nohost.invalid could not be resolved",
        "hi",
        "",
    ]
    server.close()


async def test_sockets_close_with_their_request(gateway, origin):
    async def until_eof(one, reader, _writer, _number):
        await reader.read()
        one.received += b"closed"

    server = await origin(until_eof)
    await gateway.content(CONNECT % server.address + "ngx.say('x')")
    await gateway.get()
    for _ in range(200):
        if server.received:
            break
        await asyncio.sleep(0.01)
    assert server.received == b"closed"
    assert gateway.runtime.stats()["sockets"] == 0


@pytest.fixture
def full():
    """The port of a listener that takes no connection more: who connects waits."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_thread_that_ends_while_it_connects_leaves_nothing(gateway, full):
    connect = "local s = ngx.socket.tcp() s:settimeout(30000) s:connect('127.0.0.1', %d, {pool_size = 3, backlog = 0})"
    spawn = f"ngx.thread.spawn(function() {connect % full} end)"
    await gateway.start(
        f"location /exit {{ content_by_lua_block {{ {spawn} {spawn} ngx.sleep(0.01) ngx.exit(204) }} }}"
        f"location /kill {{ content_by_lua_block {{ ngx.say(ngx.thread.kill({spawn})) }} }}"
        f"location /error {{ content_by_lua_block {{ {spawn} ngx.sleep(0.01) error('on purpose') }} }}"
    )
    before = len(os.listdir("/proc/self/fd"))
    for path, status in (("/exit", 204), ("/kill", 200), ("/error", 500)) * 3:
        # Places in the pool come back too: the second round would find no room in it.
        answer = await gateway.get(path)
        assert (answer.status, answer.text == "1\n") == (status, path == "/kill")
    assert len(os.listdir("/proc/self/fd")) == before


FAILING = """location / { content_by_lua_block {
    for _, peer in ipairs{{"127.0.0.1", %(port)d}, {"[::1]", %(port)d}, {"unix:/nowhere/at.all"}, {"unix:/dev/null"}, {"::1", 1}} do
        ngx.say(ngx.socket.tcp():connect(unpack(peer)))
    end
} }"""


def _failures(log: str) -> list[str]:
    return re.findall(r"(\[\w+\]) \S+ \S+ (connect\(\).*?), client", log)


@pytest.mark.peer
async def test_failed_connects_as_in_nginx(gateway, nginx):
    code = FAILING % {"port": free_port()}
    get = nginx(code)
    theirs = get("/").text, _failures((get.folder / "error.log").read_text())
    await gateway.start(code)
    assert ((await gateway.get()).text, _failures(gateway.log())) == theirs
