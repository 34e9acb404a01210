"""Balancing without I/O: the sequences that nginx gives."""

from __future__ import annotations

import zlib
from collections import Counter

from headrace.core.connect import Target
from headrace.edge.upstream.balance import ConsistentHash, Hash, IpHash, LeastConn, Random, Ring
from headrace.edge.upstream.peers import Group, Peer, RoundRobin


def peer(name: str, **kw) -> Peer:
    return Peer(name.encode(), Target("127.0.0.1", 1), server=name, **kw)


def group(*peers: Peer, backup=()) -> Group:
    return Group("u", peers, backup)


def sequence(make, count: int, *, failed=(), now: float = 0.0) -> str:
    """The names of the peers that so many requests in a row get; those in `failed` fail."""
    out = []
    for _ in range(count):
        chooser = make()
        found = chooser.choose(now)
        out.append("-" if found is None else found.name.decode())
        if found is not None:
            chooser.free(found, now, failed=found.name.decode() in failed)
    return "".join(out)


def test_weights_are_smooth():
    one = group(peer("a", weight=5), peer("b"), peer("c"))
    assert sequence(lambda: RoundRobin(one), 14) == "aabacaa" * 2


def test_a_failed_peer_rests_and_comes_back():
    one = group(peer("a", fail_timeout=10), peer("b"))
    assert sequence(lambda: RoundRobin(one), 6, failed="a") == "abbbbb"
    assert sequence(lambda: RoundRobin(one), 4, now=5) == "bbbb"
    assert sequence(lambda: RoundRobin(one), 6, now=11) == "bbabab"
    assert one.primary.peers[0].fails == 0


def test_max_fails_zero_never_rests():
    one = group(peer("a", max_fails=0), peer("b"))
    assert sequence(lambda: RoundRobin(one), 6, failed="ab") == "abaaaa"


def test_one_request_tries_each_once_then_the_backups():
    one = group(peer("a"), peer("b"), peer("d", down=True), backup=[peer("x"), peer("y")])
    chooser = RoundRobin(one)
    names = [chooser.choose(0.0).name for _ in range(4)]
    assert names == [b"a", b"b", b"x", b"y"]
    assert chooser.choose(0.0) is None
    assert chooser.tries == 4


def test_a_single_peer_is_asked_whatever_happened_before():
    one = group(peer("a"))
    assert sequence(lambda: RoundRobin(one), 4, failed="a") == "aaaa"


def test_connections_have_a_limit():
    one = group(peer("a", max_conns=1), peer("b", max_conns=2))
    choosers = [RoundRobin(one) for _ in range(4)]
    found = [chooser.choose(0.0) for chooser in choosers]
    assert Counter(None if one is None else one.name for one in found) == {b"a": 1, b"b": 2, None: 1}
    choosers[0].free(found[0], 0.0, failed=False)
    assert RoundRobin(one).choose(0.0) is found[0]


def test_least_conn_takes_the_least_busy_for_its_weight():
    one = group(peer("a", weight=2), peer("b"), peer("c"))
    choosers = [LeastConn(one) for _ in range(8)]
    names = [chooser.choose(0.0).name for chooser in choosers]
    assert Counter(names) == {b"a": 4, b"b": 2, b"c": 2}


def test_hash_is_that_of_memcached_clients():
    one = group(peer("a"), peer("b"), peer("c"))
    for key in (b"a", b"hello", b"x" * 99):
        expected = "abc"[((zlib.crc32(key) >> 16) & 0x7FFF) % 3]
        assert sequence(lambda key=key: Hash(one, key), 3) == expected * 3
    assert sequence(lambda: Hash(one, b""), 3) == "abc"


def test_hash_goes_on_when_its_peer_is_down():
    up = group(peer("a"), peer("b"), peer("c"))
    for number in range(50):
        key = b"k%d" % number
        first = sequence(lambda key=key: Hash(up, key), 1)
        down = group(*(peer(name, down=name == first) for name in "abc"))
        assert sequence(lambda key=key, down=down: Hash(down, key), 1) in set("abc") - {first}


def test_a_consistent_hash_moves_the_share_of_the_one_that_left():
    names = [f"10.0.0.{number}:80" for number in range(5)]
    before, after = group(*map(peer, names)), group(*map(peer, names[:-1]))
    rings = {id(one): Ring(one) for one in (before, after)}

    def choice(one: Group, key: bytes) -> str:
        found = ConsistentHash(one, rings[id(one)], key).choose(0.0)
        return found.server

    moved = [(choice(before, b"%d" % number), choice(after, b"%d" % number)) for number in range(500)]
    assert all(was == now for was, now in moved if was != names[-1])
    assert {was for was, _ in moved} == set(names)


def test_ip_hash_looks_at_three_octets():
    one = group(*(peer(name) for name in "abcdef"))
    near = {sequence(lambda last=last: IpHash(one, bytes((10, 1, 2, last))), 1) for last in range(20)}
    far = {sequence(lambda third=third: IpHash(one, bytes((10, 1, third, 1))), 1) for third in range(60)}
    assert len(near) == 1
    assert len(far) == 6


def test_random_draws_by_weight_and_two_takes_the_less_busy():
    one = group(peer("a", weight=3), peer("b"))
    draws = iter([0, 2, 3])
    assert sequence(lambda: Random(one, two=False, draw=lambda _total: next(draws)), 3) == "aab"
    one.primary.peers[0].conns = 7
    both = iter([0, 0, 3])
    assert Random(one, two=True, draw=lambda _total: next(both)).choose(0.0).name == b"b"


def test_random_falls_back_to_round_robin():
    one = group(peer("a", down=True), peer("b"))
    assert sequence(lambda: Random(one, two=False, draw=lambda _total: 0), 2) == "bb"


def test_a_peer_that_was_dead_comes_back_slowly():
    one = group(peer("a", fail_timeout=10, slow_start=100.0), peer("b"))
    assert sequence(lambda: RoundRobin(one), 3, failed="a") == "abb"
    assert "a" in sequence(lambda: RoundRobin(one), 4, now=11)  # it is tried, and found alive
    assert one.primary.peers[0].risen == 11
    shares = [Counter(sequence(lambda: RoundRobin(one), 120, now=11 + up))["a"] for up in (5, 50, 100, 200)]
    assert 3 <= shares[0] <= 9  # 5 of 105
    assert 35 <= shares[1] <= 45  # 50 of 150
    assert shares[2] == shares[3] == 60
