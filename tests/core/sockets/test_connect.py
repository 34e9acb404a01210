"""Dialling: every address of a name, one deadline, tunnels, and errors that say what happened."""

import asyncio
import base64
import contextlib
import errno
import socket

import pytest

from headrace import errors
from headrace.core.clock import Clock
from headrace.core.connect import Proxy, Target, dial
from headrace.core.names import Names
from headrace.core.stream import Stream
from headrace.core.tls import TlsConfig, TlsStream
from headrace.testing.clock import FakeClock


def listening(host="127.0.0.1", backlog=16):
    sock = socket.create_server((host, 0), backlog=backlog)
    sock.setblocking(False)
    return sock


def unused_port(host="127.0.0.1"):
    with socket.create_server((host, 0)) as sock:
        return sock.getsockname()[1]


async def connect(target, clock=None, **options):
    loop = asyncio.get_running_loop()
    return await dial(target, loop=loop, clock=clock or Clock(loop), **options)


def resolving(monkeypatch, *hosts):
    """Let `dial` see these addresses for every name."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", host) for host in hosts]

    class Loop:
        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            return getattr(self._real, name)

        async def getaddrinfo(self, *_args, **_options):
            return found

    return Loop(asyncio.get_running_loop())


async def test_tcp():
    with listening() as sock:
        stream = await connect(Target(*sock.getsockname()))
        far, peer = sock.accept()
        with far:
            assert type(stream) is Stream
            assert (stream.peer, stream.local) == (sock.getsockname(), peer)
            assert stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            stream.write(b"x")
            stream.close()
            assert await asyncio.get_running_loop().sock_recv(far, 10) == b"x"


async def test_unix(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        sock.listen()
        stream = await connect(Target(unix=path))
        assert stream.peer == path
        stream.close()
    with pytest.raises(errors.ConnectionFailed) as caught:
        await connect(Target(unix=str(tmp_path / "none")))
    assert caught.value.kind == "refused"
    assert caught.value.message == f"connect() to unix:{tmp_path}/none failed (2: No such file or directory)"


async def test_refused_has_nginx_words():
    port = unused_port()
    with pytest.raises(errors.ConnectionFailed) as caught:
        await connect(Target("127.0.0.1", port))
    error = caught.value
    assert error.message == f"connect() to 127.0.0.1:{port} failed (111: Connection refused)"
    assert (error.kind, error.side, error.retryable) == ("refused", errors.Side.SERVER, True)


async def test_localhost_that_is_ipv6_first():
    with listening() as sock:
        stream = await connect(Target("localhost", sock.getsockname()[1]))
        assert stream.peer[0] == "127.0.0.1"
        stream.close()


async def test_the_second_address_is_tried_when_the_first_refuses(monkeypatch):
    with listening("127.0.0.2") as sock:
        port = sock.getsockname()[1]
        loop = resolving(monkeypatch, ("127.0.0.1", port), ("127.0.0.2", port))
        stream = await dial(Target("two.example", port), loop=loop, clock=Clock(asyncio.get_running_loop()))
        assert stream.peer == ("127.0.0.2", port)
        stream.close()


async def test_when_all_addresses_fail_all_are_named(monkeypatch):
    port = unused_port()
    loop = resolving(monkeypatch, ("127.0.0.1", port), ("127.0.0.2", port))
    with pytest.raises(errors.ConnectionFailed) as caught:
        await dial(Target("two.example", port), loop=loop, clock=Clock(asyncio.get_running_loop()))
    assert f"to 127.0.0.1:{port} failed" in caught.value.message
    assert f"to 127.0.0.2:{port} failed" in caught.value.message
    assert caught.value.kind == "refused"


@contextlib.contextmanager
def full_backlog(host="127.0.0.1"):
    """A listener that answers no more: its backlog is full."""
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(listening(host, backlog=0))
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(sock.getsockname())
        yield sock


async def test_a_silent_address_ends_at_the_deadline():
    clock = FakeClock()
    with full_backlog() as sock:
        port = sock.getsockname()[1]
        task = asyncio.ensure_future(connect(Target("127.0.0.1", port), clock, timeout=2.0))
        await clock.elapse(1.9)
        assert not task.done()
        await clock.elapse(0.2)
        with pytest.raises(errors.Timeout, match=f"connect\\(\\) to 127.0.0.1:{port} timed out"):
            await task


async def test_a_silent_first_address_leaves_time_for_the_second(monkeypatch):
    clock = FakeClock()
    with full_backlog() as silent, listening("127.0.0.2") as sock:
        loop = resolving(monkeypatch, silent.getsockname(), sock.getsockname())
        task = asyncio.ensure_future(dial(Target("x.example", 1), loop=loop, clock=clock, timeout=2.0))
        await clock.elapse(1.1)
        stream = await task
        assert stream.peer == sock.getsockname()
        stream.close()


async def test_a_full_unix_backlog_is_waited_for(tmp_path):
    clock = FakeClock()
    path = str(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(path)
        sock.listen(0)
        number = 0
        while number != errno.EAGAIN:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            number = client.connect_ex(path)
        late = asyncio.ensure_future(connect(Target(unix=path), clock, timeout=1.0))
        await clock.elapse(1.5)
        with pytest.raises(errors.Timeout):
            await late
        patient = asyncio.ensure_future(connect(Target(unix=path), clock, timeout=10.0))
        await clock.elapse(1.0)
        assert not patient.done()
        sock.accept()[0].close()
        await clock.elapse(1.0)
        (await patient).close()


async def test_names_that_do_not_resolve():
    with pytest.raises(errors.ConnectionFailed, match=r"nowhere\.invalid could not be resolved") as caught:
        await connect(Target("nowhere.invalid", 80))
    assert caught.value.kind == "dns"
    with pytest.raises(errors.ConnectionFailed):
        await connect(Target("x" * 70 + ".example", 80))


async def test_a_cancelled_dial_leaves_no_descriptor():
    with full_backlog() as sock:
        clock = FakeClock()
        task = asyncio.ensure_future(connect(Target(*sock.getsockname()), clock))
        await clock.elapse(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def heard(sock):
    """The peer's end, when somebody has connected and has spoken."""
    loop = asyncio.get_running_loop()
    far, _ = await asyncio.wait_for(loop.sock_accept(sock), 30)
    far.setblocking(False)
    await asyncio.wait_for(loop.sock_recv(far, 1), 30)
    return far


async def serve(handler, tls=None):
    """An asyncio server for the far side; the address it listens on."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=tls.context() if tls else None)
    return server, server.sockets[0].getsockname()


async def echo(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1000):
            writer.write(data)
    writer.close()


async def echoes(stream):
    stream.write(b"ping")
    answer = await stream.read(timeout=30)
    stream.close()
    return answer == b"ping"


async def test_tls(pki):
    server, address = await serve(echo, TlsConfig(role="server", cert=pki.server, verify_mode="none"))
    async with server:
        stream = await connect(Target("localhost", address[1]), tls=TlsConfig(ca_path=pki.ca))
        assert isinstance(stream, TlsStream)
        assert await echoes(stream)
        with pytest.raises(errors.ConnectionFailed) as caught:
            await connect(Target("localhost", address[1]), tls=TlsConfig(ca_path=pki.stranger))
        assert caught.value.kind == "certificate"


async def test_a_silent_tls_peer_ends_at_the_deadline_of_the_handshake(pki):
    clock = FakeClock()
    with listening() as sock:
        task = asyncio.ensure_future(
            connect(Target(*sock.getsockname()), clock, timeout=2.0, tls=TlsConfig(ca_path=pki.ca), tls_timeout=7.0)
        )
        far = await heard(sock)
        await clock.elapse(6.9)
        assert not task.done()
        await clock.elapse(0.2)
        with far, pytest.raises(errors.Timeout, match=r"TLS handshake with 127\.0\.0\.1"):
            await task


class HttpProxy:
    """A CONNECT proxy that keeps the heads it saw."""

    def __init__(self, answer=b"HTTP/1.1 200 Connection established\r\n\r\n"):
        self.heads = []
        self.answer = answer

    async def handle(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            writer.write(self.answer)
            if b" 200 " in self.answer.split(b"\r\n")[0]:
                host, port = head.split(b" ")[1].decode().rsplit(":", 1)
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
                await asyncio.gather(self.pump(reader, far_writer), self.pump(far_reader, writer))
        writer.close()

    async def pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(10_000):
                writer.write(data)
        writer.close()


@pytest.mark.parametrize("secure", [False, True], ids=["plain proxy", "TLS proxy"])
async def test_a_tunnel_through_a_proxy(pki, secure):
    server_side = TlsConfig(role="server", cert=pki.server, verify_mode="none")
    proxy = HttpProxy()
    target_server, target = await serve(echo, server_side)
    proxy_server, address = await serve(proxy.handle, server_side if secure else None)
    async with target_server, proxy_server:
        way = Proxy("localhost", address[1], "me", "secret:ü", TlsConfig(ca_path=pki.ca) if secure else None)
        assert "secret" not in repr(way)
        stream = await connect(Target("localhost", target[1]), tls=TlsConfig(ca_path=pki.ca), proxy=way)
        stream.write(b"x" * 200_000)
        got = b""
        while len(got) < 200_000:
            got += await stream.read(timeout=30)
        assert got == b"x" * 200_000
        stream.close()
    lines = proxy.heads[0].split(b"\r\n")
    assert lines[:2] == [b"CONNECT localhost:%d HTTP/1.1" % target[1], b"Host: localhost:%d" % target[1]]
    name, value = lines[2].split(b": Basic ")
    assert name == b"Proxy-Authorization"
    assert base64.b64decode(value).decode() == "me:secret:ü"


@pytest.mark.parametrize("secure", [False, True], ids=["plain proxy", "TLS proxy"])
async def test_a_tunnel_to_a_plain_target_that_speaks_first(pki, secure):
    async def greet(reader, writer):
        writer.write(b"220 hello")
        await echo(reader, writer)

    proxy = HttpProxy(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n220 hel")  # the greeting comes in the same packet
    target_server, target = await serve(greet)
    proxy_server, address = await serve(
        proxy.handle, TlsConfig(role="server", cert=pki.server, verify_mode="none") if secure else None
    )
    async with target_server, proxy_server:
        way = Proxy("localhost", address[1], tls=TlsConfig(ca_path=pki.ca) if secure else None)
        stream = await connect(Target("127.0.0.1", target[1]), proxy=way)
        got = b""
        while len(got) < 16:
            got += await stream.read(timeout=30)
        assert got == b"220 hel220 hello"
        stream.close()


async def test_a_proxy_that_says_nothing_ends_at_the_deadline():
    clock = FakeClock()
    with listening() as sock:
        way = Proxy(*sock.getsockname())
        task = asyncio.ensure_future(connect(Target("x", 443), clock, timeout=3.0, tls=TlsConfig(), proxy=way))
        far = await heard(sock)
        await clock.elapse(3.5)
        with far, pytest.raises(errors.Timeout, match="gave no answer to CONNECT x:443 in time"):
            await task


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "set the proxy's user and password"),
        (b"HTTP/1.1 403 Forbidden\r\nX: y\r\n\r\n", 'refused CONNECT localhost:443: "HTTP/1.1 403 Forbidden"'),
        (b"SSH-2.0-x\r\n\r\n", "refused CONNECT"),
        (b"", "gave no answer"),
    ],
)
async def test_a_proxy_that_refuses(answer, text):
    proxy = HttpProxy(answer)
    server, address = await serve(proxy.handle)
    async with server:
        with pytest.raises(errors.ConnectionFailed) as caught:
            await connect(Target("localhost", 443), tls=TlsConfig(), proxy=Proxy("127.0.0.1", address[1]))
    assert text in caught.value.message
    assert caught.value.kind == "proxy"


def test_targets_read_as_people_write_them():
    assert [str(t) for t in (Target("a", 1), Target("::1", 2), Target(unix="/s"))] == ["a:1", "[::1]:2", "unix:/s"]


async def test_names_are_asked_for_once_and_the_address_that_answers_is_tried_first(monkeypatch):
    asked, tried = [], []
    with listening() as sock:
        port = sock.getsockname()[1]
        loop = resolving(monkeypatch, ("127.0.0.9", port), ("127.0.0.1", port))
        answer = loop.getaddrinfo

        class Asked(type(loop)):
            async def getaddrinfo(self, *args, **options):
                asked.append(args[0])
                return await answer(*args, **options)

        class Tried(socket.socket):
            def connect_ex(self, address):
                tried.append(address[0])
                return super().connect_ex(address)

        monkeypatch.setattr(socket, "socket", Tried)
        names, clock = Names(), FakeClock()
        for _ in range(5):
            stream = await dial(Target("some.name", port), loop=Asked(loop), clock=clock, names=names)
            assert stream.peer == ("127.0.0.1", port)
            stream.close()
    assert asked == ["some.name"]
    assert tried.count("127.0.0.9") <= 2  # asked, and asked again how it went: in the first dial only


async def test_a_peer_on_the_same_host_costs_no_turn_of_the_loop():
    with listening() as sock:
        dialling = connect(Target(*sock.getsockname()))
        with pytest.raises(StopIteration) as ended:
            dialling.send(None)  # runs to its end at once
        ended.value.value.close()
