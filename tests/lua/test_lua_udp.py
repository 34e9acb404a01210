"""ngx.socket.udp against an echoing peer; the same code in nginx with its Lua module."""

from __future__ import annotations

import socket
import threading

import pytest

CODE = """
location / { content_by_lua_block {
    local udp = ngx.socket.udp()
    ngx.say(udp:send("x"))
    ngx.say(udp:close())
    ngx.say(udp:setpeername("127.0.0.1", 70000))
    ngx.say(udp:setpeername("127.0.0.1", %(port)d))
    ngx.say(udp:send("hello"), udp:receive())
    ngx.say(udp:send({"a", {1, "b"}}), udp:receive(2))
    ngx.say(udp:send(12), udp:receive(), udp:send(nil), udp:receive(), udp:send(true), udp:receive())
    udp:settimeout(20)
    ngx.say(udp:receive())
    udp:settimeout(100)
    local reader = ngx.thread.spawn(function() return udp:receive() end)
    ngx.say(udp:receive())
    ngx.say(udp:close())
    ngx.say(udp:send("late"))
    ngx.say(ngx.thread.wait(reader))
    ngx.say(udp:close(), udp:close())
    udp:settimeout(5000)
    ngx.say(udp:setpeername("unix:%(path)s"))
    ngx.say(udp:send("unix"), udp:receive())
    ngx.say(udp:setpeername("unix:/nowhere/at/all"))
    ngx.say(pcall(ngx.socket.udp, 1))
} }
"""
OUTPUT = """nilclosed
nilclosed
nilbad port number: 70000
1
1hello
1a1
1121nil1true
niltimeout
nilsocket busy
nilsocket busy
nilsocket busy
trueniltimeout
1nilclosed
1
1unix
nilno such file or directory
falseexpecting zero arguments, but got 1
"""


@pytest.fixture
def echo(tmp_path):
    """Two peers that send back what they get: (port, path)."""
    peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)]
    path = str(tmp_path / "udp.sock")
    for peer, address in zip(peers, (("127.0.0.1", 0), path), strict=True):
        peer.bind(address)
        peer.settimeout(30)

    def serve(peer):
        while True:
            try:
                data, sender = peer.recvfrom(65536)
            except OSError:
                return
            if data == b"end of the test":
                return
            peer.sendto(data, sender)

    threads = [threading.Thread(target=serve, args=(peer,), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    yield peers[0].getsockname()[1], path
    for peer, family in zip(peers, (socket.AF_INET, socket.AF_UNIX), strict=True):
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end of the test", peer.getsockname())
    for thread in threads:
        thread.join(10)
    for peer in peers:
        peer.close()


async def test_an_echo(gateway, echo):
    port, path = echo
    await gateway.start(CODE % {"port": port, "path": path})
    text = (await gateway.get()).text
    assert text == OUTPUT
    stats = gateway.runtime.stats()
    assert stats["sockets"] == stats["requests"] == 0


@pytest.mark.peer
def test_an_echo_in_nginx(nginx, echo):
    port, path = echo
    assert nginx(CODE % {"port": port, "path": path})("/").text == OUTPUT


async def test_a_connect_that_fails_is_critical_as_in_nginx(gateway):
    await gateway.content(
        'ngx.say(ngx.socket.udp():setpeername("unix:/nowhere")) ngx.say(ngx.socket.udp():setpeername("255.255.255.255", 9))'
    )
    assert (await gateway.get()).text == "nilno such file or directory\nnilpermission denied\n"
    assert [line.split()[2] for line in gateway.log().splitlines() if "connect() failed" in line] == [
        "[crit]",
        "[crit]",
    ]
