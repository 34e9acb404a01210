"""The Lua phases of stream {}: what scripts see of a session, of its client, and of the phases."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
import trustme

from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.edge.build import build
from headrace.edge.registry import families
from headrace.lua.directives import LuaFamily
from headrace.lua.stream.directives import StreamLuaFamily
from headrace.stream.families import stream_families


class Served:
    def __init__(self, folder) -> None:
        self.folder = folder
        self.gateway = None
        self.runtimes = []
        self.warnings = []

    async def start(self, stream: str, http: str = "") -> None:
        text = f"error_log error.log info; events {{}} {http} stream {{ {stream} }}"
        problems = Problems()
        sessions, requests = StreamLuaFamily(), LuaFamily()
        known = [*families(), *stream_families((sessions,)), requests, sessions]
        tree = parse(text.replace("SOCK", f"unix:{self.folder}/"), str(self.folder / "nginx.conf"))
        gateway = build(tree, prefix=str(self.folder), problems=problems, conf_dir=str(self.folder), families=known)
        problems.raise_first()
        self.warnings = [str(one) for one in problems.warnings]
        loop = asyncio.get_running_loop()
        gateway.open_logs()
        self.gateway = gateway
        self.runtimes = [one.runtime for one in (sessions, requests) if one.runtime is not None]
        for runtime in self.runtimes:
            runtime.use_error_log(gateway.error_log)
            runtime.run_init()
            runtime.attach(loop)
        await gateway.start(loop, Clock(loop), {spec.socket_key: gateway.open_socket(spec) for spec in gateway.listens})

    async def stop(self) -> None:
        if self.gateway is not None:
            await self.gateway.stop(0)
        for runtime in self.runtimes:
            runtime.exit()
            runtime.detach()

    @property
    def log(self) -> str:
        return (self.folder / "error.log").read_text()

    async def logged(self, text: str) -> None:
        async with asyncio.timeout(10):
            while text not in self.log:
                await asyncio.sleep(0.005)

    async def open(self, name: str = "a"):
        return await asyncio.open_unix_connection(f"{self.folder}/{name}")

    async def ask(self, data: bytes = b"", name: str = "a", *, eof: bool = False) -> bytes:
        reader, writer = await self.open(name)
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def left(self) -> tuple[int, ...]:
        """Records, sockets of the VM; sessions that it knows."""
        runtime = self.runtimes[0]
        return (*runtime.vm.entry("sizes")()[:2], len(runtime.side.client.sessions), len(runtime.side.client._clients))


@pytest.fixture
async def served(tmp_path):
    made = Served(tmp_path)
    yield made
    await made.stop()


def content(code: str, rest: str = "") -> str:
    return f"server {{ listen SOCKa; {rest} content_by_lua_block {{ {code} }} }}"


CONTENT = {
    "say and print": ('ngx.say("a", 1, nil, true) ngx.print({"b", {"c"}})', b"", b"a1niltrue\nbc"),
    "a variable": ("ngx.say(ngx.var.protocol, ngx.var.nothing, ngx.var.status)", b"", b"TCPnilnil\n"),
    "the phase": ("ngx.say(ngx.get_phase(), ngx.config.subsystem)", b"", b"contentstream\n"),
    "what http has": ("ngx.say(ngx.redirect, ngx.exec, ngx.HTTP_OK, ngx.header, ngx.req.get_headers, ndk)", b"", b"nil" * 6 + b"\n"),
    "what both have": ('ngx.say(ngx.md5("a"):sub(1, 4), ngx.re.match("ab", "b")[0], ngx.OK, ngx.ERR)', b"", b"0cc1b04\n"),
    "lines": ("local s = ngx.req.socket() ngx.say(s:receive(), s:receive(2), s:receive('*a'))", b"ab\ncdef", b"abcdef\n"),
    "until": ("local s = ngx.req.socket() local r = s:receiveuntil('--') ngx.say(r(), r())", b"a--b--", b"ab\n"),
    "the end": ("local s = ngx.req.socket() ngx.say(s:receive(9))", b"abc", b"nilclosedabc\n"),
    "both ways to write": ("local s = ngx.req.socket() ngx.print(1) s:send(2) ngx.print(3) s:send({4, {5}})", b"", b"12345"),
    "twice the socket": ("ngx.req.socket() ngx.say(ngx.req.socket(true))", b"", b"nilduplicate call\n"),
    "no use after eof": ("ngx.say('a') ngx.eof() ngx.log(ngx.WARN, 'r: ', select(2, ngx.say('b')))", b"", b"a\n"),
    "flush": ("ngx.say(ngx.flush(true)) ngx.say(ngx.flush())", b"", b"1\n1\n"),
    "waiting": ("ngx.sleep(0.001) local t = ngx.thread.spawn(function() return 'x' end) ngx.say(ngx.thread.wait(t))", b"", b"truex\n"),
    "exit": ("ngx.say(1) ngx.exit(500) ngx.say(2)", b"", b"1\n"),
    "shutdown": ("local s = ngx.req.socket() ngx.print('a') s:shutdown('send') ngx.log(ngx.WARN, s:receive('*a'), select(2, s:shutdown('send')))", b"bc", b"a"),
    "what else there is": ("local s = ngx.req.socket() ngx.say(s:getfd() > 2, ngx.now() - ngx.req.start_time() < 60)", b"", b"truetrue\n"),
    "the status": ("ngx.say(ngx.status) ngx.status = 404 ngx.say(ngx.status)", b"", b"0\n404\n"),
    "a fault": ("error('oops')", b"", b""),
    "the ctx": ("ngx.ctx.a = 1 ngx.say(ngx.ctx.a)", b"", b"1\n"),
    "dictionaries": ("ngx.shared.d:set('a', 2) ngx.say(ngx.shared.d:get('a'))", b"", b"2\n"),
    "globals of init": ("ngx.say(from_init)", b"", b"7\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENT)
async def test_content(served, name):
    code, data, expected = CONTENT[name]
    head = "lua_shared_dict d 64k; init_by_lua_block { from_init = 7 }"
    await served.start(head + content(code))
    assert await served.ask(data, eof=True) == expected
    async with asyncio.timeout(10):
        while served.left() != (0, 0, 0, 0):
            await asyncio.sleep(0.005)


async def test_what_is_not_used_goes_on(served):
    await served.start(
        """server { listen SOCKa; preread_by_lua_block {
            local sock = ngx.req.socket()
            ngx.ctx.kind = sock:peek(1)
            if sock:peek(2) == "ea" then ngx.ctx.eaten = sock:receive(3) end
            local ok, err = pcall(sock.peek, sock, 1)
            ngx.var.got = ngx.ctx.kind .. (ngx.ctx.eaten or "-") .. (ok and "" or ":" .. err)
            if ngx.ctx.kind == "q" then return ngx.exit(403) end
        } proxy_pass SOCKb; proxy_half_close on; log_by_lua_block { ngx.log(ngx.WARN, "log: ", ngx.var.got, ngx.var.status, ngx.ctx.kind) } }
        lua_add_variable $got;
        server { listen SOCKb; content_by_lua_block { ngx.say("got ", ngx.req.socket():receive("*a")) } }"""
    )
    assert await served.ask(b"abcdef", eof=True) == b"got abcdef\n"
    assert await served.ask(b"eatme", eof=True) == b"got me\n"
    assert await served.ask(b"quit", eof=True) == b""
    await served.logged("log: q-403q")
    assert "log: a-200a" in served.log
    assert "log: eeat:attempt to peek on a consumed socket200e" in served.log


async def test_a_peek_has_bounds(served):
    await served.start(
        """preread_buffer_size 16; preread_timeout 60ms; log_format main $status; access_log access.log main;
        server { listen SOCKa; preread_by_lua_block { ngx.req.socket():peek(17) ngx.log(ngx.WARN, "no") } return x; }"""
    )
    assert await served.ask(b"0123456789abcdefg") == b""
    assert await served.ask(b"abc") == b""
    await served.logged("client timed out (110: Connection timed out) while prereading client data")
    assert "preread buffer full while prereading client data" in served.log
    async with asyncio.timeout(10):
        while (served.folder / "access.log").read_text() != "400\n200\n":
            await asyncio.sleep(0.005)


async def test_phases_and_their_words(served):
    await served.start(
        """init_worker_by_lua_block { ngx.timer.at(0, function() ngx.log(ngx.WARN, "timer ", ngx.get_phase()) end) }
        upstream u { server SOCKnobody; balancer_by_lua_block {
            local b = require "ngx.balancer"
            if ngx.ctx.no then return ngx.exit(403) end
            print("asked ", ngx.get_phase(), " ", ngx.ctx.tried)
            local ok, err = pcall(ngx.sleep, 1) print(err)
            if not ngx.ctx.tried then ngx.ctx.tried = b.get_last_failure() or "none" b.set_more_tries(1)
                assert(b.set_current_peer("unix:gone"))
            else assert(b.set_current_peer("SOCKb")) end
        } }
        server { listen SOCKa; preread_by_lua_block { print("at ", ngx.get_phase()) } proxy_pass u;
            log_by_lua_block { print("log ", ngx.get_phase(), " ", pcall(ngx.say, 1)) } }
        server { listen SOCKb; content_by_lua_block { ngx.say("b") } }
        server { listen SOCKc; preread_by_lua_block { ngx.ctx.no = true } proxy_pass u; log_by_lua_block { print("c ", ngx.var.status) } }"""
    )
    assert await served.ask() == b"b\n"
    await served.logged("log log falseAPI disabled in the context of log_by_lua*")
    assert await served.ask(name="c") == b""
    await served.logged("c 403")
    for line in (
        "timer timer, context: ngx.timer",
        "at preread while prereading client data, client: unix:",
        "asked balancer nil while connecting to upstream",
        "asked balancer none while connecting to upstream",
        "API disabled in the context of balancer_by_lua*",
    ):
        assert line in served.log


async def test_a_cosocket_ends_its_side(served):
    await served.start(
        content(
            """local s = ngx.socket.tcp() assert(s:connect("unix:" .. ngx.config.prefix() .. "b")) s:send("all")
            ngx.say(s:shutdown("send"), " ", select(2, s:send("x")), " ", s:receive("*a"), pcall(s.shutdown, s))"""
        )
        + "server { listen SOCKb; content_by_lua_block { local s = ngx.req.socket() ngx.print('b:', s:receive('*a')) } }"
    )
    assert (await served.ask()).startswith(b"1 closed b:allfalse")


async def test_scripts_in_handshakes(served, tmp_path):
    authority = trustme.CA()
    for name in ("one.example", "two.example"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    await served.start(
        """server { listen SOCKa ssl; ssl_certificate one.example.pem; ssl_certificate_key one.example.pem;
        ssl_client_hello_by_lua_block {
            local name = require("ngx.ssl.clienthello").get_client_hello_server_name()
            if name == "no.example" then ngx.exit(ngx.ERROR) end
        }
        ssl_certificate_by_lua_block {
            local ssl = require "ngx.ssl"
            ngx.sleep(0.001)
            if ssl.server_name() ~= "two.example" then return end
            local file = assert(io.open(ngx.config.prefix() .. "two.example.pem")):read("*a")
            assert(ssl.clear_certs()) assert(ssl.set_cert(assert(ssl.parse_pem_cert(file))))
            assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(file))))
        }
        content_by_lua_block { local s = ngx.req.socket() ngx.say(s:receive(), ngx.var.ssl_server_name) } }"""
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for name in ("one.example", "two.example"):
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/a", ssl=context, server_hostname=name)
        writer.write(b"line\n")
        assert await reader.read() == b"line" + name.encode() + b"\n"
        writer.close()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_unix_connection(f"{tmp_path}/a", ssl=context, server_hostname="no.example")


async def test_http_and_stream_are_apart(served):
    await served.start(
        "init_by_lua_block { where = 'stream' } lua_shared_dict d 64k;"
        + content("ngx.shared.d:add('k', where) ngx.say(where, ngx.shared.d:get('k'), ngx.shared.e)"),
        """http { init_by_lua_block { where = 'http' } lua_shared_dict d 64k; lua_shared_dict e 64k;
        server { listen SOCKh; location / { content_by_lua_block {
            ngx.say(where, ngx.shared.d:get('k'), ngx.config.subsystem, ngx.HTTP_OK)
        } } } }""",
    )
    assert await served.ask() == b"streamstreamnil\n"
    assert (await served.ask(b"GET / HTTP/1.0\r\n\r\n", "h")).endswith(b"httpnilhttp200\n")


async def test_a_client_that_goes_is_noticed(served):
    await served.start(
        content(
            """ngx.on_abort(function() ngx.log(ngx.WARN, "gone") ngx.exit(444) end)
            ngx.say("in") ngx.flush(true) ngx.sleep(60)""",
            "lua_check_client_abort on; log_by_lua_block { ngx.log(ngx.WARN, 'status ', ngx.var.status) }",
        )
    )
    reader, writer = await served.open()
    assert await reader.readline() == b"in\n"
    writer.close()
    await served.logged("status 444")
    assert "gone" in served.log
    assert "stream client prematurely closed connection" in served.log


async def test_output_to_a_client_that_is_gone_fails(served):
    await served.start(
        content(
            """local why repeat ngx.sleep(0.002) _, why = ngx.say(("x"):rep(100)) until why
            ngx.log(ngx.WARN, "say: ", why) ngx.log(ngx.WARN, "flush: ", select(2, ngx.flush(true)))"""
        )
    )
    reader, writer = await served.open()
    assert await reader.readline()
    writer.close()
    await served.logged("say: nginx output filter error")
    await served.logged("flush: client aborted")


async def test_a_slow_reader_makes_a_script_wait(served):
    await served.start(
        content(
            "local s = ngx.req.socket() local n = s:send(('x'):rep(4000000)) ngx.log(ngx.WARN, 'sent ', n) s:send('!')"
        )
    )
    reader, writer = await served.open()
    assert await reader.readexactly(10) == b"x" * 10
    await asyncio.sleep(0.02)
    assert "sent" not in served.log
    assert len(await reader.read(-1)) == 4000000 - 9
    await served.logged("sent 4000000")
    writer.close()


async def test_a_datagram(served):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        await served.start(
            f"""server {{ listen 127.0.0.1:{port} udp; preread_by_lua_block {{ ngx.ctx.a = ngx.var.protocol }}
            content_by_lua_block {{
                local sock = ngx.req.socket()
                sock:send(ngx.ctx.a .. sock:receive(2))
                sock:send(sock:receive())
                sock:send({{ select(2, sock:receive()), "!" }})
                sock:send(select(2, pcall(ngx.say, "x")))
            }} }}"""
        )
        client.setblocking(False)
        client.sendto(b"hello", ("127.0.0.1", port))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            said = [await loop.sock_recv(client, 100) for _ in range(4)]
        assert said == [b"UDPhe", b"llo", b"no more data!", b"API disabled in the current context"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("server { listen 1; rewrite_by_lua_block { } return x; }", '"rewrite_by_lua_block" directive is not allowed here'),
        ("content_by_lua_block { }", '"content_by_lua_block" directive is not allowed here'),
        ("server { listen 1; preread_by_lua_block { } }", "no handler for server"),
        ("lua_add_variable foo;", 'invalid variable name "foo"'),
        ("init_by_lua_block { error('no') } server { listen SOCKa; content_by_lua return; }", "init_by_lua error"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_said(served, lines, message):
    with pytest.raises(Exception, match=r".") as caught:
        await served.start(lines)
    assert message in str(caught.value)
