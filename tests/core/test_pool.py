"""The pool in virtual time: whom it hands out, whom it closes, and what each decision costs."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.pool import Key, Pool
from headrace.core.tls import TlsConfig
from headrace.testing.clock import FakeClock
from headrace.testing.streams import MemoryLoop, Recorder, stream_pair

KEY = Key(("127.0.0.1", 80))
OTHER = Key(("127.0.0.1", 81))


class Bench:
    def __init__(self, **limits):
        self.clock = FakeClock()
        self.loop = MemoryLoop()
        self.pool = Pool(self.clock, **limits)
        self.pairs = []

    def connection(self):
        made = stream_pair(self.clock, loop=self.loop)
        self.pairs.append(made)
        return made

    def put(self, key=KEY, **options):
        made = self.connection()
        kept = self.pool.put(key, made.near, **options)
        return made, kept


def test_the_connection_used_last_comes_first():
    bench = Bench()
    first, second = (bench.put()[0] for _ in range(2))
    assert bench.pool.idle(KEY) == len(bench.pool) == 2
    assert bench.pool.take(KEY) is second.near
    assert bench.pool.take(KEY) is first.near
    assert bench.pool.take(KEY) is None
    assert bench.pool.stats.reused == 2


def test_a_taken_connection_is_the_takers():
    bench = Bench()
    made, _ = bench.put(idle_timeout=5.0)
    stream = bench.pool.take(KEY)
    bench.clock.advance(100.0)
    owner = Recorder()
    stream.set_owner(owner)
    stream.start_reading()
    made.far.write(b"answer")
    bench.loop.run()
    assert owner.data == b"answer"
    assert bench.pool.stats.discarded_stale == bench.pool.stats.timed_out == 0


def test_reuse_costs_two_looks_at_the_socket_and_no_change_of_the_loop():
    bench = Bench()
    made, _ = bench.put()
    before = dict(made.near_socket.calls)
    for _ in range(10):
        stream = bench.pool.take(KEY)
        bench.pool.put(KEY, stream)
    assert made.near_socket.calls["recv"] - before["recv"] == 20
    assert made.near_socket.calls["add_reader"] == 1
    assert made.near_socket.calls["remove_reader"] == 0


def test_identity_is_everything_that_differs():
    client = TlsConfig(cert="a.pem")
    keys = [
        KEY,
        OTHER,
        Key("/run/sock"),
        Key(KEY.address, name="mine"),
        Key(KEY.address, sni="a"),
        Key(KEY.address, tls=TlsConfig()),
        Key(KEY.address, tls=client),
        Key(KEY.address, tls=client, client_cert="x"),
    ]
    assert len(set(keys)) == len(keys)
    assert Key(KEY.address, tls=TlsConfig(cert="a.pem")) == Key(KEY.address, tls=client)
    assert hash(Key(KEY.address, tls=TlsConfig(cert="a.pem"))) == hash(Key(KEY.address, tls=client))
    bench = Bench()
    for key in keys:
        bench.put(key)
    assert [bench.pool.idle(key) for key in keys] == [1] * len(keys)


@pytest.mark.parametrize("event", ["eof", "data", "reset"])
def test_what_happens_to_an_idle_connection_is_noticed_at_once(event):
    bench = Bench()
    made, _ = bench.put()
    if event == "eof":
        made.far.close()
    elif event == "data":
        made.far.write(b"408 Request Timeout")
    else:
        made.far.abort()
    bench.loop.run()
    assert len(bench.pool) == 0
    assert made.near.closed
    assert bench.pool.stats.discarded_stale == 1


@pytest.mark.parametrize("event", ["eof", "data", "reset"])
def test_what_the_loop_has_not_told_yet_is_noticed_when_taking(event):
    bench = Bench()
    good, _ = bench.put()
    for _ in range(3):
        made, _ = bench.put()
        if event == "eof":
            made.far.close()
        elif event == "data":
            made.far.write(b"x")
        else:
            made.near_socket.recv_error = ConnectionResetError(errno.ECONNRESET, "x")
    assert bench.pool.take(KEY) is good.near
    assert bench.pool.stats.discarded_stale == 3
    bench.loop.run()
    assert bench.pool.stats.discarded_stale == 3
    assert [pair.near.closed for pair in bench.pairs] == [False, True, True, True]


def test_idle_timeout():
    bench = Bench()
    short, _ = bench.put(idle_timeout=5.0)
    long, _ = bench.put(idle_timeout=50.0)
    forever, _ = bench.put(idle_timeout=None)
    bench.clock.advance(10.0)
    assert [pair.near.closed for pair in (short, long, forever)] == [True, False, False]
    bench.clock.advance(1000.0)
    assert [pair.near.closed for pair in (short, long, forever)] == [True, True, False]
    assert bench.pool.stats.timed_out == 2


def test_a_key_is_capped_by_evicting_the_one_unused_longest():
    bench = Bench(max_idle_per_key=2)
    made = [bench.put()[0] for _ in range(4)]
    assert [pair.near.closed for pair in made] == [True, True, False, False]
    assert bench.pool.stats.evicted == 2
    bench.put(max_idle=1)
    assert bench.pool.stats.evicted == 3


def test_all_keys_together_are_capped_too():
    bench = Bench(max_idle=3)
    made = [bench.put(Key(("10.0.0.1", port)))[0] for port in range(5)]
    assert [pair.near.closed for pair in made] == [True, True, False, False, False]
    assert len(bench.pool) == 3
    again = bench.pool.take(Key(("10.0.0.1", 2)))
    bench.pool.put(Key(("10.0.0.1", 2)), again)  # used: now it is the youngest
    bench.put(Key(("10.0.0.1", 9)))
    assert [pair.near.closed for pair in made] == [True, True, False, True, False]


def test_a_connection_wears_out():
    bench = Bench()
    made = bench.connection()
    assert bench.pool.put(KEY, made.near, max_requests=3)
    assert bench.pool.put(KEY, bench.pool.take(KEY), max_requests=3)
    assert not bench.pool.put(KEY, bench.pool.take(KEY), max_requests=3)
    assert made.near.closed
    assert (made.near.uses, bench.pool.stats.worn_out) == (3, 1)


def test_what_cannot_be_reused_is_not_kept():
    bench = Bench()
    unsent, ended, closed, chatty = (bench.connection() for _ in range(4))
    unsent.near.append(b"x")
    ended.far.close()
    closed.near.close()
    chatty.far.write(b"x")
    for pair in (unsent, ended, closed, chatty):
        assert not bench.pool.put(KEY, pair.near)
        assert pair.near.closed
    assert unsent.near_socket.was_reset
    assert bench.pool.stats.discarded_stale == 4
    assert not Bench(max_idle=0).put()[1]
    assert not Bench(max_idle_per_key=0).put()[1]


def test_a_changed_endpoint_closes_its_connections_only():
    bench = Bench()
    old = [bench.put()[0] for _ in range(2)]
    other, _ = bench.put(OTHER)
    assert bench.pool.discard(KEY) == 2
    assert bench.pool.discard(KEY) == 0
    assert [pair.near.closed for pair in (*old, other)] == [True, True, False]


def test_close_all_closes_what_is_there_and_what_comes():
    bench = Bench()
    made = [bench.put()[0] for _ in range(3)]
    bench.pool.close_all()
    assert all(pair.near.closed for pair in made)
    late, kept = bench.put()
    assert not kept
    assert late.near.closed
    bench.loop.run()
    bench.clock.advance(1000.0)
    assert len(bench.pool) == 0
    assert bench.pool.stats.discarded_stale == bench.pool.stats.timed_out == 0


def test_the_former_owner_hears_nothing_of_an_idle_connection():
    bench = Bench()
    former = Recorder()
    made = bench.connection()
    made.near.set_owner(former)
    made.near.start_reading()
    bench.pool.put(KEY, made.near)
    made.far.abort()
    bench.loop.run()
    assert (former.lost, former.data) == ([], b"")


def test_dialled_connections_are_counted_by_the_one_who_dials():
    bench = Bench()
    bench.pool.opened()
    assert bench.pool.stats.opened == 1


steps = st.lists(st.tuples(st.sampled_from(["put", "take", "end", "wait"]), st.integers(0, 2)), max_size=60)


@given(steps)
def test_whatever_happens_no_dead_connection_is_handed_out_and_none_is_lost(script):
    bench = Bench(max_idle_per_key=2, max_idle=4)
    keys = [Key(("10.0.0.1", port)) for port in range(3)]
    out = []
    for action, which in script:
        if action == "put":
            bench.put(keys[which], idle_timeout=5.0)
        elif action == "take":
            stream = bench.pool.take(keys[which])
            if stream is not None:
                assert stream.probe() == "idle"
                assert stream.owner is None
                out.append(stream)
        elif action == "end" and bench.pairs:
            bench.pairs[which % len(bench.pairs)].far.close()
        elif action == "wait":
            bench.clock.advance(2.0)
        if which:
            bench.loop.run()  # or not yet: the loop is late
        assert len(bench.pool) == sum(bench.pool.idle(key) for key in keys) <= 4
        assert all(bench.pool.idle(key) <= 2 for key in keys)
    bench.pool.close_all()
    bench.loop.run()
    assert [pair.near for pair in bench.pairs if not pair.near.closed] == [
        pair.near for pair in bench.pairs if pair.near in out
    ]
    stats = bench.pool.stats
    gone = stats.reused + stats.discarded_stale + stats.evicted + stats.timed_out
    assert gone <= len(bench.pairs)
