"""Streams over memory sockets: system calls counted, every order of events, virtual time."""

import asyncio
import errno

import pytest

from headrace import errors
from headrace.core.stream import stats
from headrace.testing.clock import FakeClock, settle
from headrace.testing.streams import Recorder, stream_pair


class Echo(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.stream.write(data)


def pushed(**options):
    """A pair whose near end pushes to a recorder; no loop runs, `pair.loop.run()` moves it."""
    clock = FakeClock()
    owner = Recorder()
    pair = stream_pair(clock, owner, **options)
    pair.near.start_reading()
    return clock, owner, pair


def test_a_request_costs_one_recv_and_one_send():
    owner = Echo()
    pair = stream_pair(FakeClock(), owner)
    owner.stream = pair.near
    pair.near.start_reading()
    for _ in range(100):
        pair.far_socket.send(b"ping")
        pair.loop.run()
        assert pair.far_socket.recv(100) == b"ping"
    assert pair.near_socket.calls == {"recv": 100, "send": 100, "add_reader": 1}
    assert pair.near.chain.peak_segments == 1


def test_one_recv_for_each_readiness():
    _, owner, pair = pushed()
    pair.far_socket.send(b"x" * 200_000)
    pair.loop.run()
    assert len(owner.data) == 200_000
    assert pair.near_socket.calls["recv"] == len(owner.pieces) == 4


def test_pausing_is_lazy():
    _, owner, pair = pushed()
    for _ in range(10):
        pair.near.pause_reading()
        pair.near.start_reading()
    assert pair.near_socket.calls == {"add_reader": 1}
    pair.near.pause_reading()
    pair.far_socket.send(b"unwanted")
    pair.loop.run()
    assert pair.near_socket.calls == {"add_reader": 1, "remove_reader": 1}
    assert owner.data == b""
    pair.near.start_reading()
    pair.loop.run()
    assert owner.data == b"unwanted"


def test_appended_bytes_go_in_one_gathered_write():
    _, _, pair = pushed()
    for piece in (b"a", b"b", b"c"):
        pair.near.append(piece)
    assert pair.near_socket.calls["sendmsg"] == 0
    pair.near.flush()
    assert pair.near_socket.calls["sendmsg"] == 1
    assert bytes(pair.far_socket.inbox) == b"abc"
    assert pair.near_socket.calls["add_writer"] == 0


def test_a_full_socket_arms_the_writer_once_and_writes_do_not_ask_again():
    _, _, pair = pushed(capacity=10)
    pair.near.write(b"x" * 15)
    for _ in range(5):
        pair.near.write(b"y" * 5)
        pair.near.flush()
    assert pair.near_socket.calls["send"] == 1
    assert pair.near_socket.calls["add_writer"] == 1
    got = b""
    while pair.near.chain.length or pair.far_socket.inbox:
        got += pair.far_socket.recv(7)
        pair.loop.run()
    assert got == b"x" * 15 + b"y" * 25
    assert pair.near_socket.calls["remove_writer"] == 1


def test_tiny_partial_writes_are_exact():
    _, _, pair = pushed()
    pair.near_socket.max_send = 1
    pair.near.append(b"abc")
    pair.near.write(b"def")
    pair.loop.run()
    assert bytes(pair.far_socket.inbox) == b"abcdef"


def test_half_close_is_reported_and_our_side_goes_on():
    _, owner, pair = pushed()
    pair.far.write(b"last words")
    pair.far.shutdown_write()
    pair.loop.run()
    assert (owner.data, owner.eof, owner.lost) == (b"last words", True, [])
    assert pair.near.eof
    pair.near.write(b"answer")
    assert bytes(pair.far_socket.inbox) == b"answer"
    pair.near.close()
    pair.loop.run()
    assert owner.lost == [None]


def test_shutdown_comes_after_the_bytes_of_the_chain():
    _, _, pair = pushed(capacity=4)
    pair.near.write(b"12345678")
    pair.near.shutdown_write()
    assert pair.near_socket.calls["shutdown"] == 0
    assert pair.far_socket.recv(10) == b"1234"
    pair.loop.run()
    assert pair.far_socket.recv(10) == b"5678"
    assert pair.far_socket.recv(10) == b""
    pair.near.shutdown_write()
    assert pair.near_socket.calls["shutdown"] == 1


def test_close_sends_what_is_pending_first():
    _, owner, pair = pushed(capacity=4)
    pair.near.write(b"12345678")
    pair.near.close()
    pair.near.write(b"dropped")
    assert pair.near.closed
    assert owner.lost == []
    assert pair.far_socket.recv(10) == b"1234"
    pair.loop.run()
    assert pair.far_socket.recv(10) == b"5678"
    assert owner.lost == [None]
    assert pair.near_socket.calls["close"] == 1
    assert not pair.near_socket.was_reset


def test_close_gives_up_on_a_peer_that_takes_nothing():
    clock, owner, pair = pushed(capacity=4)
    pair.near.send_timeout = 5.0
    pair.near.write(b"12345678")
    pair.near.close()
    pair.loop.run()
    clock.advance(4.0)
    assert owner.lost == []
    clock.advance(2.0)
    assert len(owner.lost) == 1
    assert isinstance(owner.lost[0], errors.Timeout)
    assert pair.near_socket.was_reset


def test_a_slow_reader_with_progress_is_served_and_without_is_aborted():
    clock, owner, pair = pushed(capacity=4)
    pair.near.send_timeout = 5.0
    pair.near.write(b"x" * 40)
    for _ in range(5):
        clock.advance(4.0)
        assert pair.far_socket.recv(4) == b"xxxx"
        pair.loop.run()
    assert owner.lost == []
    clock.advance(5.5)
    assert [type(error) for error in owner.lost] == [errors.Timeout]
    assert pair.near_socket.was_reset
    assert pair.near.chain.length == 0


def test_no_send_deadline_is_left_when_the_peer_caught_up():
    clock, owner, pair = pushed(capacity=4)
    pair.near.send_timeout = 5.0
    pair.near.write(b"12345678")
    pair.far_socket.recv(4)
    pair.loop.run()
    pair.far_socket.recv(4)
    clock.advance(100.0)
    assert owner.lost == []


def test_connection_lost_comes_once_and_not_from_within_our_own_call():
    _, owner, pair = pushed()
    pair.near_socket.send_error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    pair.near.write(b"x")
    assert pair.near.closed
    assert owner.lost == []
    pair.near.write(b"y")
    pair.near.close()
    pair.near.abort()
    pair.loop.run()
    assert len(owner.lost) == 1
    error = owner.lost[0]
    assert isinstance(error, errors.ConnectionFailed)
    assert (error.kind, error.message) == ("broken_pipe", "send() failed (32: Broken pipe)")
    assert isinstance(error.__cause__, BrokenPipeError)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ECONNRESET, "reset"), (errno.ETIMEDOUT, "timeout"), (errno.EHOSTUNREACH, "unreachable")]
)
def test_errors_of_reading_are_reported_with_their_kind(number, kind):
    _, owner, pair = pushed()
    pair.near_socket.recv_error = OSError(number, "x")
    pair.loop.poke()
    pair.loop.run()
    assert [error.kind for error in owner.lost] == [kind]
    assert f"recv() failed ({number}: " in owner.lost[0].message


def test_abort_resets():
    _, owner, pair = pushed()
    far = Recorder()
    pair.far.set_owner(far)
    pair.far.start_reading()
    pair.near.append(b"never sent")
    pair.near.abort()
    pair.loop.run()
    assert pair.near_socket.was_reset
    assert owner.lost == [None]
    assert far.data == b""
    assert far.lost[0].kind == "reset"


def test_an_owner_that_fails_loses_its_connection_only():
    _, _, pair = pushed()

    class Bad(Recorder):
        def data_received(self, data):
            raise ValueError("a fault of ours")

    bad = Bad()
    pair.near.set_owner(bad)
    pair.far_socket.send(b"x")
    pair.loop.run()
    assert [error.kind for error in bad.lost] == ["internal"]
    assert bad.lost[0].side is errors.Side.US
    assert isinstance(pair.loop.failures[0]["exception"], ValueError)


def test_interrupts_are_never_swallowed():
    _, _, pair = pushed()

    class Stop(Recorder):
        def data_received(self, data):
            raise KeyboardInterrupt

    pair.near.set_owner(Stop())
    pair.far_socket.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        pair.loop.run()


def test_handing_over_tells_the_new_owner_of_a_loss_nobody_heard_of():
    clock = FakeClock()
    pair = stream_pair(clock)
    pair.near.abort()
    pair.loop.run()
    late = Recorder()
    pair.near.set_owner(late)
    pair.loop.run()
    assert late.lost == [None]
    another = Recorder()
    pair.near.set_owner(another)
    pair.loop.run()
    assert another.lost == []


def test_closing_removes_reader_and_writer_before_the_descriptor():
    _, _, pair = pushed(capacity=1)
    pair.near.write(b"xx")
    order = []
    loop, sock = pair.loop, pair.near_socket
    for name, where in (("remove_reader", loop), ("remove_writer", loop), ("close", sock)):
        real = getattr(where, name)
        setattr(where, name, lambda *args, name=name, real=real: (order.append(name), real(*args))[1])
    pair.near.abort()
    assert order == ["remove_reader", "remove_writer", "close"]


def test_probe_tells_what_an_idle_connection_has_for_us():
    pair = stream_pair(FakeClock())
    assert pair.near.probe() == "idle"
    pair.far_socket.send(b"x")
    assert pair.near.probe() == "data"
    assert pair.near_socket.recv(10) == b"x"  # it is still there
    pair.near_socket.recv_error = ConnectionResetError(errno.ECONNRESET, "x")
    assert pair.near.probe() == "error"
    pair.far_socket.shutdown(1)
    assert pair.near.probe() == "eof"
    pair.near.close()
    assert pair.near.probe() == "error"


def test_open_streams_are_counted():
    before = stats.open
    pair = stream_pair(FakeClock())
    assert stats.open == before + 2
    pair.near.close()
    pair.far.detach()
    assert stats.open == before


def test_detach_gives_the_open_socket_and_tells_nobody():
    _, owner, pair = pushed()
    assert pair.near.detach() is pair.near_socket
    pair.loop.run()
    assert not pair.near_socket.closed
    assert owner.lost == []
    assert pair.near_socket.calls["remove_reader"] == 1


async def test_read_pulls_without_a_wasted_call():
    pair = stream_pair(FakeClock())
    for _ in range(10):
        pair.far.write(b"ping")
        assert await pair.near.read() == b"ping"
    assert pair.near_socket.calls["recv"] == 10
    assert pair.near_socket.calls["add_reader"] == 1


async def test_read_takes_a_stream_in_pieces_up_to_its_end():
    pair = stream_pair(FakeClock())
    pair.far.write(b"abcdef")
    pair.far.close()
    assert [await pair.near.read(4), await pair.near.read(4), await pair.near.read(4)] == [b"abcd", b"ef", b""]
    assert await pair.near.read() == b""


async def test_a_cancelled_read_loses_nothing():
    pair = stream_pair(FakeClock())
    for delivered in (False, True):
        task = asyncio.ensure_future(pair.near.read())
        await settle()
        if delivered:  # the wait is over, the task has not run yet
            pair.far_socket.send(b"kept")
            pair.loop.step()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await pair.near.read() == b"kept"


async def test_read_times_out_and_the_stream_stays_usable():
    clock = FakeClock()
    pair = stream_pair(clock)
    task = asyncio.ensure_future(pair.near.read(timeout=3.0))
    await clock.elapse(3.5)
    with pytest.raises(errors.Timeout):
        await task
    pair.far.write(b"late")
    assert await pair.near.read(timeout=3.0) == b"late"


async def test_read_raises_the_loss():
    pair = stream_pair(FakeClock())
    task = asyncio.ensure_future(pair.near.read())
    await settle()
    pair.far.abort()
    with pytest.raises(errors.ConnectionFailed, match="recv") as caught:
        await task
    assert caught.value.kind == "reset"
    with pytest.raises(errors.ConnectionFailed):
        await pair.near.read()


async def test_closing_ends_a_read():
    pair = stream_pair(FakeClock())
    task = asyncio.ensure_future(pair.near.read())
    await settle()
    pair.near.close()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        await task


async def test_pull_mode_is_for_streams_without_an_owner():
    pair = stream_pair(FakeClock(), Recorder())
    with pytest.raises(RuntimeError):
        await pair.near.read()


async def test_drained_waits_for_the_kernel():
    clock = FakeClock()
    pair = stream_pair(clock, capacity=4)
    await pair.near.drained()
    pair.near.append(b"1234")
    await pair.near.drained()
    pair.near.append(b"12345678")
    waits = [asyncio.ensure_future(pair.near.drained(timeout)) for timeout in (None, 2.0, None)]
    await clock.elapse(1.0)
    waits[2].cancel()
    await clock.elapse(2.0)
    with pytest.raises(errors.Timeout):
        await waits[1]
    assert not waits[0].done()
    while pair.near.chain.length:
        await pair.far.read(4)
        await settle()
    await waits[0]


async def test_drained_raises_the_loss():
    pair = stream_pair(FakeClock(), capacity=4)
    pair.near.append(b"12345678")
    wait = asyncio.ensure_future(pair.near.drained())
    await settle()
    pair.far.abort()
    pair.near_socket.blocked = False
    with pytest.raises(errors.ConnectionFailed):
        await wait


async def test_delays_of_a_memory_stream_are_virtual():
    clock = FakeClock()
    pair = stream_pair(clock)
    pair.near_socket.latency = 2.0
    pair.near.write(b"slow")
    task = asyncio.ensure_future(pair.far.read())
    await clock.elapse(1.0)
    assert not task.done()
    await clock.elapse(1.5)
    assert await task == b"slow"
    pair.near_socket.latency = 0.0
    pair.near_socket.held = True
    pair.near.write(b"held")
    await settle()
    assert pair.far.probe() == "idle"
    pair.near_socket.held = False
    assert await pair.far.read() == b"held"
