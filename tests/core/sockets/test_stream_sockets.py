"""Streams over real sockets, on both loops."""

import asyncio
import contextlib
import socket
import struct
import tempfile

import pytest

from headrace import errors
from headrace.core.clock import Clock
from headrace.core.stream import Stream
from headrace.testing.streams import Recorder


class Waiting(Recorder):
    """A recorder whose tests can wait for what it hears."""

    def __init__(self):
        super().__init__()
        self.changed = asyncio.Event()

    def data_received(self, data):
        super().data_received(data)
        self.changed.set()

    def eof_received(self):
        super().eof_received()
        self.changed.set()

    def connection_lost(self, error):
        super().connection_lost(error)
        self.changed.set()

    async def until(self, condition):
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    far.setblocking(False)
    return near, far


def make(kind):
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair() if kind == "unix" else tcp_pair()
    owner = Waiting()
    stream = Stream(near, loop, Clock(loop), owner)
    stream.start_reading()
    return stream, owner, far


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_bytes_both_ways_and_half_close(kind):
    stream, owner, far = make(kind)
    with far:
        far.send(b"hello")
        await owner.until(lambda: owner.data == b"hello")
        stream.write(b"world")
        far.setblocking(True)
        assert far.recv(10) == b"world"
        far.shutdown(socket.SHUT_WR)
        await owner.until(lambda: owner.eof)
        stream.write(b"still here")
        assert far.recv(20) == b"still here"
        stream.close()
        await owner.until(lambda: owner.lost)
        assert far.recv(10) == b""
    assert owner.lost == [None]
    assert stream.sock.fileno() == -1


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_megabytes_and_a_file_to_a_slow_reader(kind):
    stream, owner, far = make(kind)
    loop = asyncio.get_running_loop()
    marks = []
    with far, tempfile.TemporaryFile() as file:
        file.write(b"f" * 3_000_000)
        file.flush()
        far.setblocking(False)
        stream.write(b"a" * 1_000_000)
        stream.chain.mark(lambda error: marks.append(("a", error)))
        stream.chain.append_file(file.fileno(), 0, 3_000_000)
        stream.append(b"end")
        stream.chain.mark(lambda error: marks.append(("end", error)))
        stream.flush()
        assert stream.chain.length > 0
        stream.close()
        got = bytearray()
        while not got.endswith(b"end"):
            got += await loop.sock_recv(far, 100_000)
        await owner.until(lambda: owner.lost)
    assert got == b"a" * 1_000_000 + b"f" * 3_000_000 + b"end"
    assert marks == [("a", None), ("end", None)]


async def test_a_reset_is_reported_once():
    stream, owner, far = make("tcp")
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    await owner.until(lambda: owner.lost)
    stream.write(b"x")
    await asyncio.sleep(0)
    assert [error.kind for error in owner.lost] == ["reset"]
    assert owner.lost[0].message == "recv() failed (104: Connection reset by peer)"


async def test_abort_is_a_reset_for_the_peer():
    stream, owner, far = make("tcp")
    stream.abort()
    await owner.until(lambda: owner.lost)
    with far:
        far.setblocking(True)
        with pytest.raises(ConnectionResetError):
            far.recv(1)


async def test_a_peer_that_vanished_while_we_only_write():
    stream, owner, far = make("unix")
    stream.pause_reading()
    while not stream.chain.length:
        stream.write(b"x" * 100_000)
    far.close()
    await owner.until(lambda: owner.lost)
    assert owner.lost[0].kind in {"broken_pipe", "reset"}
    assert len(owner.lost) == 1


async def test_the_descriptor_can_be_used_again_at_once():
    for _ in range(50):
        stream, owner, far = make("unix")
        far.send(b"x")
        stream.close()
        far.close()
        again, other, peer = make("unix")
        peer.send(b"y")
        await other.until(lambda other=other: other.data == b"y")
        again.close()
        peer.close()
        await other.until(lambda other=other: other.lost)
        assert owner.data == b""


async def test_pull_mode_with_real_readiness():
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    stream = Stream(near, loop, Clock(loop))
    with far:
        task = asyncio.ensure_future(stream.read(timeout=30))
        await asyncio.sleep(0)
        far.send(b"abc")
        assert await task == b"abc"
        with pytest.raises(errors.Timeout):
            await stream.read(timeout=0.01)
        stream.write(b"x" * 2_000_000)
        with pytest.raises(errors.Timeout):
            await stream.drained(timeout=0.01)
        reader = asyncio.ensure_future(drain(loop, far))
        await stream.drained(timeout=30)
        stream.close()
        assert await reader == 2_000_000
    with pytest.raises(errors.ConnectionFailed):
        await stream.read()


async def drain(loop, sock):
    sock.setblocking(False)
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while data := await loop.sock_recv(sock, 1 << 20):
            count += len(data)
    return count


async def test_addresses():
    stream, _, far = make("tcp")
    with far:
        assert stream.peer == far.getsockname()
        assert stream.local == far.getpeername()
        assert "unsent=0" in repr(stream)
    stream.abort()
