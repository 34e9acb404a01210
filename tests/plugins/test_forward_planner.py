"""Which node is used: weights, standby, the breaker and the failure detector, without I/O and in virtual time."""

import asyncio
import logging
import math
from collections import Counter

import pytest

from headrace.errors import ConnectionFailed
from headrace.pipeline.discovery import Service
from headrace.plugins.out_forward.addresses import NodeNames
from headrace.plugins.out_forward.balancer import Balancer
from headrace.plugins.out_forward.detector import SAMPLES, FailureDetector
from headrace.plugins.out_forward.heartbeat import Heartbeats
from headrace.plugins.out_forward.node import DOWN_AFTER, Detection, Node
from headrace.testing.clock import FakeClock


def rig(*services, detection=None, first=0):
    balancer = Balancer(lambda limit: min(first, limit - 1))
    nodes = [
        Node(service, detection or Detection(), now=0.0, changed=balancer.changed, names=NodeNames())
        for service in services
    ]
    balancer.set_nodes(nodes)
    return balancer, nodes


def host(name, weight=60, **more):
    return Service(name, weight=weight, **more)


def firsts(balancer, count, now=0.0):
    return Counter(next(balancer.order(now)).service.host for _ in range(count))


def names(balancer, now=0.0):
    return [node.service.host for node in balancer.order(now)]


def test_turns_are_as_the_weights_exactly():
    balancer, _ = rig(host("a", 20), host("b", 30))
    assert firsts(balancer, 50) == {"a": 20, "b": 30}


def test_turns_are_spread_and_not_in_blocks():
    balancer, _ = rig(host("a", 5), host("b", 1), host("c", 1))
    turns = [next(balancer.order(0.0)).service.host for _ in range(7)]
    assert "".join(turns) == "aabacaa"


@pytest.mark.parametrize("weights", [(1_000_003, 999_983), (1, 1_000_000_000)])
def test_large_weights_cost_nothing(weights):
    balancer, _ = rig(host("a", weights[0]), host("b", weights[1]))
    counted = firsts(balancer, 1000)
    assert abs(counted["a"] - 1000 * weights[0] / sum(weights)) <= 1


def test_senders_do_not_all_begin_with_the_first_node():
    begun = {next(rig(host("a"), host("b"), host("c"), first=first)[0].order(0.0)).service.host for first in range(3)}
    assert begun == {"a", "b", "c"}


def test_no_weight_no_load():
    balancer, _ = rig(host("a", 0), host("b"))
    assert names(balancer) == ["b"]
    assert names(rig(host("a", 0))[0]) == []


def test_each_node_is_tried_once_and_failed_ones_last():
    balancer, (a, b, c) = rig(host("a"), host("b"), host("c"))
    b.failed(0.0)
    for _ in range(6):
        order = names(balancer, 0.5)
        assert sorted(order) == ["a", "b", "c"]
        assert order[-1] == "b"
    assert firsts(balancer, 30, 1.5) == {"a": 10, "b": 10, "c": 10}, "its time is over"
    a.gone = c.gone = True
    assert names(balancer, 1.5) == ["b"]


def test_the_breaker_opens_longer_each_time_up_to_recover_wait():
    _, (node,) = rig(host("a"), detection=Detection(recover_wait=5.0))
    held = []
    for _ in range(6):
        node.failed(100.0)
        held.append(next(wait for wait in range(1, 60) if not node.held(100.0 + wait)))
    assert held == [1, 2, 4, 5, 5, 5]
    node.succeeded(100.0)
    assert not node.held(100.0)


def test_chunks_that_fail_together_are_one_failure():
    _, (node,) = rig(host("a"))
    error = ConnectionFailed("closed")
    for _ in range(8):
        node.failed(0.0, error)
    assert node.failures == 1
    node.failed(0.0, ConnectionFailed("refused"))
    assert node.failures == 2
    node.succeeded(0.0)
    node.failed(0.0, error)
    assert node.failures == 1


def test_one_delivery_tries_a_failed_node_and_the_others_wait_for_it():
    balancer, (a, _b) = rig(host("a"), host("b"))
    a.failed(0.0)
    now = 1.1
    turn = next(node for node in (next(balancer.order(now)) for _ in range(2)) if node is a)
    turn.begin(now)
    assert firsts(balancer, 10, now) == {"b": 10}


def test_standby_nodes_take_the_weight_that_is_lost():
    balancer, (a, b, *_rest) = rig(
        host("a", 60), host("b", 60), host("s", 40, standby=True), host("t", 40, standby=True), host("u", standby=True)
    )
    assert set(firsts(balancer, 100)) == {"a", "b"}
    a.detach()
    assert set(firsts(balancer, 100)) == {"b", "s", "t"}
    a.available = True
    balancer.changed()
    assert set(firsts(balancer, 100)) == {"a", "b"}
    for _ in range(DOWN_AFTER):
        b.failed(0.0)
    assert {"a", "s", "t"} <= set(firsts(balancer, 100))
    b.succeeded(0.0)
    assert set(firsts(balancer, 100)) == {"a", "b"}


def test_a_standby_node_that_is_down_is_passed_over():
    balancer, (a, s, _t) = rig(host("a"), host("s", standby=True), host("t", standby=True))
    s.detach()
    a.detach()
    assert names(balancer) == ["t"]


def test_a_node_that_goes_down_in_the_middle_of_a_delivery_calls_its_standby():
    balancer, (a, _s) = rig(host("a"), host("s", standby=True))
    for _ in range(DOWN_AFTER - 1):
        a.failed(0.0)
    tried = []
    for node in balancer.order(100.0):
        tried.append(node.service.host)
        if node is a:
            a.failed(100.0)
    assert tried == ["a", "s"]


# The detector.


def direct(intervals, interval, silence):
    """phi by the definition, without running sums."""
    weights = range(1, len(intervals) + 1)
    mean = sum(gap * weight for gap, weight in zip(intervals, weights, strict=True)) / sum(weights)
    return (silence - interval + 1) / (mean - interval + 1) / math.log(10)


@pytest.mark.parametrize("interval", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("beats", [1, 10, SAMPLES + 500])
def test_phi_is_as_defined(interval, beats):
    detector = FailureDetector(interval, 0.0)
    intervals = [interval]
    now = 0.0
    for number in range(beats):
        gap = interval + (number % 7) * 0.125
        now += gap
        intervals.append(gap)
        detector.heard(now)
    wanted = direct(intervals[-SAMPLES:], interval, 5.0)
    assert detector.phi(now + 5.0) == pytest.approx(wanted, rel=1e-9)
    assert detector.samples == min(beats + 1, SAMPLES)


def test_with_the_defaults_silence_of_37_seconds_gives_a_node_up():
    """phi_threshold 16 at one heartbeat a second, as in Fluentd: 16 * ln 10 = 36.8."""
    _, (node,) = rig(host("a"))
    for second in range(1, 101):
        node.heartbeat(float(second))
    gave_up = next(second for second in range(101, 200) if node.tick(float(second)))
    assert gave_up == 137
    assert not node.available


def test_hard_timeout_gives_up_without_phi():
    _, (node,) = rig(host("a"), detection=Detection(phi=False, hard_timeout=60))
    node.heartbeat(10.0)
    assert node.tick(70.0) == ""
    assert "hard_timeout" in node.tick(70.1)


def test_a_node_comes_back_after_recover_wait_of_heartbeats():
    _, (node,) = rig(host("a"), detection=Detection(recover_wait=10.0))
    node.detach()
    node.succeeded(5.0)
    assert not node.available, "a chunk that arrives does not bring it back"
    recovered = [second for second in range(100, 130) if node.heartbeat(float(second))]
    assert recovered == [109]
    assert node.available


def test_a_silence_while_it_is_given_up_begins_the_count_again():
    _, (node,) = rig(host("a"), detection=Detection(recover_wait=10.0, hard_timeout=5.0))
    node.detach()
    for second in range(100, 108):
        node.heartbeat(float(second))
    node.tick(120.0)
    assert [second for second in range(120, 140) if node.heartbeat(float(second))] == [130]


def test_without_heartbeats_nothing_gives_a_node_up():
    _, (node,) = rig(host("a"), detection=Detection(heartbeats=False))
    node.detach()
    assert node.available


# The loops.


async def test_heartbeats_survive_whatever_a_beat_raises(caplog):
    clock = FakeClock()
    _, nodes = rig(host("a"), host("b"), host("c"))
    beats = Counter()
    hang = asyncio.get_running_loop().create_future()

    async def beat(node):
        beats[node.service.host] += 1
        if node.service.host == "a":
            raise RuntimeError("a bug") if beats["a"] == 1 else ConnectionFailed("refused")
        if node.service.host == "b":
            await hang
        return True

    heartbeats = Heartbeats(1.0, beat, clock, logging.getLogger("headrace.test"))
    heartbeats.watch(nodes)
    await clock.elapse(10.5)
    assert beats == {"a": 10, "b": 1, "c": 10}, "one that hangs holds up no other"
    assert "unexpected error RuntimeError('a bug')" in caplog.text
    assert nodes[0].counters.heartbeats_failed == 10
    assert nodes[0].failures == 9
    await clock.elapse(60)
    assert [node.available for node in nodes] == [False, False, True]
    heartbeats.watch(nodes[2:])
    await clock.elapse(5)
    assert beats["a"] <= 72
    before = asyncio.all_tasks()
    await heartbeats.stop()
    assert not [task for task in before if not task.done() and "heartbeat" in task.get_name()]


async def test_a_detector_that_fails_does_not_end_the_judging(caplog, monkeypatch):
    clock = FakeClock()
    _, nodes = rig(host("a"), host("b"))

    async def beat(node):
        return False

    def broken(now):
        raise RuntimeError("a bug")

    monkeypatch.setattr(nodes[0], "tick", broken)
    heartbeats = Heartbeats(1.0, beat, clock, logging.getLogger("headrace.test"))
    heartbeats.watch(nodes)
    await clock.elapse(100)
    assert not nodes[1].available
    assert "detector of a:24224" in caplog.text
    await heartbeats.stop()


# Addresses.


def test_addresses_are_remembered_as_long_as_told():
    found = [(2, ("10.0.0.1", 1)), (2, ("10.0.0.2", 1))]
    for seconds, kept in ((None, True), (0, False), (5, True)):
        names_ = NodeNames(seconds)
        names_.keep("h", 1, list(found), 0.0)
        assert (names_.find("h", 1, 1.0) == found) is kept
        assert (names_.find("h", 1, 1e6) == found) is (seconds is None)
        names_.forget()
        assert names_.find("h", 1, 0.0) is None


def test_dns_round_robin_tries_another_address_first():
    found = [(2, (f"10.0.0.{number}", 1)) for number in range(4)]
    names_ = NodeNames(shuffled=True)
    given = list(found)
    names_.keep("h", 1, given, 0.0)
    assert sorted(given) == found
    seen = {tuple(names_.find("h", 1, 1.0)) for _ in range(200)}
    assert len({order[0] for order in seen}) == 4
    assert all(sorted(order) == found for order in seen)
