"""Bytes and a reset in one readiness, on both loops: uvloop tells of it once, and the end must be heard all the same."""

import asyncio
import contextlib
import socket
import struct

import pytest
from test_stream_sockets import Waiting, tcp_pair

from headrace import errors
from headrace.core.clock import Clock
from headrace.core.http1.client import NoReply, exchange
from headrace.core.pool import Key, Pool
from headrace.core.stream import Stream
from headrace.core.tls import TlsConfig, TlsStream


class Counting(socket.socket):
    """A socket that counts its reads."""

    reads = 0

    def recv(self, *args):
        self.reads += 1
        return super().recv(*args)


def counting_pair():
    near, far = tcp_pair()
    return Counting(fileno=near.detach()), far


def reset(sock, data=b""):
    """Send bytes, and break the connection before the loop has seen them."""
    sock.setblocking(True)
    if data:
        sock.sendall(data)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def reading():
    loop = asyncio.get_running_loop()
    near, far = counting_pair()
    owner = Waiting()
    stream = Stream(near, loop, Clock(loop), owner)
    stream.start_reading()
    return stream, owner, far


@pytest.mark.parametrize("size", [1, 200_000])
async def test_an_owner_hears_bytes_and_then_the_reset(size):
    stream, owner, far = reading()
    await asyncio.sleep(0)
    reset(far, b"x" * size)
    async with asyncio.timeout(20):
        await owner.until(lambda: owner.lost)
    assert owner.data
    assert owner.data == b"x" * len(owner.data)
    assert owner.lost[0].kind == "reset"
    assert stream.closed


async def test_reading_again_after_a_pause():
    stream, owner, far = reading()
    await asyncio.sleep(0)
    owner.data_received = lambda data: (owner.pieces.append(data), stream.pause_reading())
    reset(far, b"x")
    for _ in range(5):
        await asyncio.sleep(0)
    assert owner.data == b"x"
    stream.start_reading()
    async with asyncio.timeout(20):
        await owner.until(lambda: owner.lost)
    assert owner.lost[0].kind == "reset"


async def test_pulling():
    loop = asyncio.get_running_loop()
    near, far = tcp_pair()
    stream = Stream(near, loop, Clock(loop))
    first = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.01)
    reset(far, b"x")
    async with asyncio.timeout(20):
        assert await first == b"x"
        with pytest.raises(errors.ConnectionFailed) as caught:
            await stream.read()
    assert caught.value.kind == "reset"


async def test_half_an_answer_of_http():
    loop = asyncio.get_running_loop()
    near, far = tcp_pair()
    stream = Stream(near, loop, Clock(loop))
    waiting = asyncio.ensure_future(exchange(stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", read_timeout=None))
    await asyncio.sleep(0.01)
    with contextlib.suppress(BlockingIOError):
        far.recv(1000)
    reset(far, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    with pytest.raises(NoReply) as caught:
        async with asyncio.timeout(20):
            await waiting
    assert caught.value.reply_started


async def test_a_pool():
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    near, far = tcp_pair()
    pool, key = Pool(clock), Key(("a", 1))
    stream = Stream(near, loop, clock)
    assert pool.put(key, stream)
    await asyncio.sleep(0)
    reset(far, b"x")
    async with asyncio.timeout(20):
        while len(pool):
            await asyncio.sleep(0.001)
    assert stream.closed


async def test_tls(pki):
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    near, far = tcp_pair()
    server = TlsStream(near, loop, clock, TlsConfig(role="server", cert=pki.server, verify_mode="none"))
    client = TlsStream(far, loop, clock, TlsConfig(ca_path=pki.ca), server_hostname="localhost")
    async with asyncio.timeout(20):
        await asyncio.gather(server.handshake(), client.handshake())
    owner = Waiting()
    server.set_owner(owner)
    server.start_reading()
    await asyncio.sleep(0.01)
    client.write(b"x")
    reset(client.detach())
    async with asyncio.timeout(20):
        await owner.until(lambda: owner.lost)
    assert owner.data == b"x"
    assert owner.lost[0].kind == "reset"


async def test_a_message_costs_one_read():
    stream, owner, far = reading()
    await asyncio.sleep(0)
    for number in range(1, 51):
        far.setblocking(True)
        far.sendall(b"message")
        await owner.until(lambda number=number: len(owner.pieces) == number)
    assert stream.sock.reads == 50
    stream.close()
    far.close()
