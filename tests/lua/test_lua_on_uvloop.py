"""What differs between loops: uvloop, the product's, lets a descriptor go after an error on it."""

import asyncio
import socket
import struct

import pytest
import uvloop

from headrace.lua.sched import Scheduler


class Machine:
    """A VM that reads what is readable."""

    def __init__(self, sock):
        self.sock = sock
        self.heard = []
        self.ended = asyncio.Event()

    def entry(self, name):
        return self.readable if name == "on_readable" else lambda *_: None

    def readable(self, fd):
        assert fd == self.sock.fileno()
        try:
            self.heard.append(self.sock.recv(100))
        except ConnectionResetError:
            self.heard.append("reset")
            self.ended.set()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reset_that_comes_with_bytes_is_told_too(factory):
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        near.setblocking(False)
        machine, scheduler = Machine(near), Scheduler()
        scheduler.bind(machine)
        scheduler.attach(asyncio.get_running_loop())
        scheduler.watch(near.fileno())
        await asyncio.sleep(0)
        far.sendall(b"x")
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        async with asyncio.timeout(20):
            await machine.ended.wait()
        scheduler.unwatch(near.fileno())
        near.close()
        return machine.heard

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(scenario()) == [b"x", "reset"]
