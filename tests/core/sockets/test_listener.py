"""Listening sockets, fair accepting, and what happens when descriptors run out."""

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest
import uvloop

from headrace import errors
from headrace.core.clock import Clock
from headrace.core.listener import BACKLOG, Listener, adopt_listener, open_listener, remove_unix
from headrace.testing.clock import FakeClock

LOCAL = ("127.0.0.1", 0)


def test_tcp_of_both_families():
    with open_listener(LOCAL) as four, open_listener(("::1", 0)) as six, open_listener(("*", 0)) as every:
        assert four.family == socket.AF_INET
        assert four.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert six.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert every.getsockname()[0] == "0.0.0.0"
        assert not four.getblocking()
        with open_listener(("0.0.0.0", six.getsockname()[1])):
            pass  # v6only: the same port is free for IPv4
    assert BACKLOG == 511


def test_reuseport_lets_two_sockets_share_a_port():
    with (
        open_listener(LOCAL, reuseport=True) as one,
        open_listener(one.getsockname(), reuseport=True) as two,
    ):
        assert one.getsockname() == two.getsockname()


def test_a_port_in_use_has_nginx_words():
    with open_listener(LOCAL) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(errors.Error) as caught:
            open_listener(("127.0.0.1", port))
    assert caught.value.message == f"bind() to 127.0.0.1:{port} failed (98: Address already in use)"
    assert (caught.value.kind, caught.value.side) == ("bind", errors.Side.US)


def test_a_backlog_without_end():
    with open_listener(LOCAL, backlog=10**23) as sock:
        assert sock.getsockname()[1]


def test_a_host_that_is_none():
    with pytest.raises(errors.Error, match="host not found"):
        open_listener(("nowhere.invalid", 80))


def test_unix_sockets_and_what_dead_processes_leave(tmp_path):
    path = str(tmp_path / "s")
    with open_listener(f"unix:{path}", mode=0o660):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        with pytest.raises(errors.Error, match="Address already in use"):
            open_listener(f"unix:{path}")
    assert os.path.exists(path)  # nobody listens on it now
    with open_listener(f"unix:{path}") as again:
        remove_unix(again)
    assert not os.path.exists(path)
    Path(path).write_text("not a socket")
    with pytest.raises(errors.Error):
        open_listener(f"unix:{path}")
    assert Path(path).read_text() == "not a socket"
    with open_listener(f"unix:@headrace-test-{os.getpid()}") as abstract:
        remove_unix(abstract)


def test_inherited_descriptors(tmp_path):
    with open_listener(LOCAL) as sock:
        with adopt_listener(os.dup(sock.fileno())) as adopted:
            assert adopted.getsockname() == sock.getsockname()
        with socket.socket() as plain, pytest.raises(errors.Error, match="does not listen"):
            adopt_listener(plain.fileno())
        with open(tmp_path / "f", "w") as file, pytest.raises(errors.Error, match="is not a socket"):
            adopt_listener(file.fileno())


class Scripted:
    """A listening socket whose accept raises what the script says first."""

    def __init__(self, sock, script):
        self._sock = sock
        self.script = list(script)
        self.accepts = 0

    def __getattr__(self, name):
        return getattr(self._sock, name)

    def accept(self):
        self.accepts += 1
        if self.script:
            error = self.script.pop(0)
            if error is not None:
                raise error
        return self._sock.accept()


class Bench:
    """A listener on a free port whose connections are kept."""

    def __init__(self, script=(), **options):
        loop = asyncio.get_running_loop()
        self.clock = options.pop("clock", None) or Clock(loop)
        self.sock = Scripted(open_listener(LOCAL), script)
        self.accepted = []
        self.clients = []
        self.changed = asyncio.Event()
        self.listener = Listener(self.sock, loop, self.clock, self.take, **options)
        self.listener.start()

    def take(self, sock, peer):
        self.accepted.append((sock, peer))
        self.changed.set()

    def dial(self, count=1):
        for _ in range(count):
            self.clients.append(socket.create_connection(self.sock.getsockname()))

    async def until(self, count):
        while len(self.accepted) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)

    def close(self):
        self.listener.close()
        for sock in [*self.clients, *(sock for sock, _ in self.accepted)]:
            sock.close()


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("shared", [False, True])
async def test_connections_are_handed_over_ready_to_use(shared):
    bench = Bench(shared=shared)
    bench.dial(50)
    await bench.until(50)
    sock, peer = bench.accepted[0]
    assert not sock.getblocking()
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert peer in [client.getsockname() for client in bench.clients]
    assert (bench.listener.accepted, bench.listener.connections) == (50, 50)
    bench.close()
    bench.listener.close()


async def test_a_lone_connection_costs_one_accept():
    bench = Bench()
    for count in range(1, 6):
        bench.dial()
        await bench.until(count)
    assert bench.sock.accepts == 5
    bench.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_out_of_descriptors_stands_back_and_says_so_once(number):
    clock = FakeClock()
    told = []
    bench = Bench([OSError(number, "x"), OSError(number, "x")], clock=clock, exhausted=told.append)
    bench.dial()
    for _ in range(200):
        await asyncio.sleep(0.001)
        if told:
            break
    await turns()
    assert (bench.sock.accepts, len(told)) == (1, 1)  # no spinning on a ready socket
    clock.advance(0.6)
    for _ in range(200):
        await asyncio.sleep(0.001)
        if len(told) == 2:
            break
    clock.advance(0.6)
    await bench.until(1)
    assert bench.listener.backed_off == 2
    assert told[0].errno == number
    bench.close()


async def test_a_connection_that_died_in_the_backlog_is_passed_over():
    bench = Bench([ConnectionAbortedError(errno.ECONNABORTED, "x")])
    bench.dial()
    await bench.until(1)
    assert bench.listener.backed_off == 0
    bench.close()


async def test_the_limit_of_connections_makes_new_ones_wait():
    bench = Bench(max_connections=2)
    bench.dial(4)
    await bench.until(2)
    await turns()
    assert bench.listener.connections == 2
    bench.listener.released()
    await bench.until(3)
    await turns()
    assert (bench.listener.connections, bench.listener.accepted) == (2, 3)
    bench.close()


async def test_pause_and_start():
    bench = Bench()
    bench.listener.pause()
    bench.dial(2)
    await turns()
    assert bench.accepted == []
    bench.listener.start()
    await bench.until(2)
    bench.close()


async def test_a_connection_whose_start_fails_is_closed_and_reported():
    bench = Bench()
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    good, bench.listener._accept = bench.listener._accept, lambda _sock, _peer: 1 / 0
    bench.dial()
    while not reported:
        await asyncio.sleep(0.001)
    assert isinstance(reported[0], ZeroDivisionError)
    assert bench.listener.connections == 0
    bench.clients[0].settimeout(30)
    assert bench.clients[0].recv(1) == b""
    bench.listener._accept = good
    bench.dial()
    await bench.until(1)
    bench.close()


def worker(sock, ready, result):
    """Accept in a process of its own until told to stop; then say how many there were."""

    async def run():
        loop = asyncio.get_running_loop()
        kept = []
        listener = Listener(sock, loop, Clock(loop), lambda taken, _peer: kept.append(taken))
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        listener.start()
        os.write(ready, b"r")
        await stop.wait()
        os.write(result, json.dumps(len(kept)).encode() + b"\n")

    try:
        uvloop.run(run())
    finally:
        os._exit(0)


def share_of_two_workers(connections, pause):
    with open_listener(LOCAL) as sock:
        ready, tell_ready = os.pipe()
        result, tell_result = os.pipe()
        pids = []
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                worker(sock, tell_ready, tell_result)
            pids.append(pid)
        for _ in pids:
            os.read(ready, 1)
        clients = []
        for _ in range(connections):
            clients.append(socket.create_connection(sock.getsockname()))
            if pause:
                time.sleep(pause)
        # The last ones are accepted when the backlog is empty: the kernel tells.
        info = 1
        while info:
            info = socket.socket.getsockopt(sock, socket.IPPROTO_TCP, socket.TCP_INFO, 32)[24]  # tcpi_unacked
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        counts = [int(line) for line in os.read(result, 100).split()]
        for client in clients:
            client.close()
        for fd in (ready, tell_ready, result, tell_result):
            os.close(fd)
        return counts


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("pause", [0, 0.002], ids=["in a burst", "one by one"])
def test_connections_are_shared_between_two_workers(pause):
    # On a machine that is busy otherwise one worker may get no time at all in a round: then another round.
    rounds = []
    for _ in range(4):
        rounds.append(share_of_two_workers(200, pause))
        assert sum(rounds[-1]) == 200
        if min(rounds[-1]) >= 50:
            return
    pytest.fail(f"one worker took nearly all: {rounds}")


async def test_a_worker_that_is_alone_soon_stops_offering_connections_to_others():
    bench = Bench()
    stood_back = []
    stand_back = bench.listener._stand_back

    class Counting(Listener):
        __slots__ = ()

        def _stand_back(self):
            stood_back.append(self.accepted)
            stand_back()

    bench.listener.__class__ = Counting
    for count in range(1, 101):
        bench.dial()
        await bench.until(count)
    assert len(stood_back) < 12
    bench.listener._turns[0] += 1  # another worker has taken one
    stood_back.clear()
    bench.dial()
    await bench.until(101)
    assert stood_back == []
    bench.close()
