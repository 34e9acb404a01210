"""Requests that came whole: answered without an exchange, and as any other way would answer them."""

from __future__ import annotations

import random

import pytest
from http1_rig import Answering, Rig, chunked, get, post, read_answers, say

from headrace.core.http1.frame import response_head
from headrace.core.http1.prompt import PromptConnection
from headrace.testing.clock import FakeClock, settle
from headrace.testing.streams import Recorder, stream_pair


class Prompt(Answering):
    """Answers by `prompt` what `takes` lets it; a target with "raise" is left to `handle`, which raises."""

    def __init__(self, takes=lambda head, body: head.method == b"POST") -> None:
        super().__init__()
        self.takes = takes
        self.prompted: list[bytes] = []
        self.handled: list[bytes] = []

    def prompt(self, conn, head, body, keep_alive):
        if not self.takes(head, body):
            return None
        self.prompted.append(body)
        self.seen.append((head.method, head.target, body))
        fields = [
            (b"Content-Length", b"%d" % (len(body) + 2)),
            (b"Connection", b"keep-alive" if keep_alive else b"close"),
        ]
        return response_head(200, fields) + b"ok" + body

    def handle(self, exchange):
        self.handled.append(exchange.head.target)
        return super().handle(exchange)


class PromptRig(Rig):
    """A rig whose connection offers whole requests to its handler."""

    def __init__(self, handler=None, *, capacity=1 << 20, **settings):
        super().__init__(handler or Prompt(), **settings)
        self.client = Recorder()
        self.clock = FakeClock()
        self.pair = stream_pair(self.clock, far_owner=self.client, capacity=capacity)
        self.pair.far.start_reading()
        self.settings.stats.accepted = self.settings.stats.connections = 0
        self.conn = PromptConnection(self.pair.near, self.handler, self.settings, self.clock)


async def test_one_recv_one_send_and_no_exchange(monkeypatch):
    rig = PromptRig()
    monkeypatch.setattr("headrace.core.http1.server.Exchange", None)
    monkeypatch.setattr("headrace.core.http1.prompt.Exchange", None)
    rig.pair.near_socket.calls.clear()
    for number in range(5):
        assert (await say(rig, post(5, b"body%d" % number))).endswith(b"okbody%d" % number)
    calls = rig.pair.near_socket.calls
    assert (calls["recv"], calls["send"], calls["sendmsg"]) == (5, 5, 0)
    assert calls["add_reader"] == calls["add_writer"] == 0
    assert rig.settings.stats.requests == rig.settings.stats.answered == rig.conn.requests == 5
    assert rig.handler.handled == []
    assert rig.conn.idle


async def test_what_is_not_whole_or_has_no_body_is_handled():
    rig = PromptRig()
    for data in (get(b"a"), chunked(b"bb"), post(0)):
        assert read_answers(await say(rig, data), []) == ["200"]
    await say(rig, post(4, b"cc"))
    assert read_answers(await say(rig, b"cc"), []) == ["200"]
    await say(rig, post(2)[:-1])
    assert read_answers(await say(rig, b"\ndd"), []) == ["200"]
    assert rig.handler.prompted == []
    assert [body for _, _, body in rig.handler.seen] == [b"", b"bb", b"", b"cccc", b"dd"]


async def test_none_means_handle_with_the_same_body():
    rig = PromptRig(Prompt(lambda head, body: body != b"no"))
    answer = await say(rig, post(2, b"ja") + post(2, b"no") + post(2, b"ja"))
    assert read_answers(answer, []) == ["200"] * 3
    assert rig.handler.prompted[0] == b"ja"
    assert [body for _, _, body in rig.handler.seen] == [b"ja", b"no", b"ja"]
    assert rig.conn.requests == rig.settings.stats.answered == 3


@pytest.mark.parametrize(
    ("bad", "status"),
    [(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx", "400"), (b"POST / HTTP/7.1\r\nHost: a\r\n\r\n", "505")],
)
async def test_a_bad_head_behind_a_good_request(bad, status):
    rig = PromptRig()
    assert read_answers(await say(rig, post(2, b"ja") + bad), []) == ["200", status]
    assert rig.ended


async def test_a_body_above_the_limit_is_not_offered():
    rig = PromptRig(max_body=3)
    assert read_answers(await say(rig, post(3, b"abc") + post(4, b"abcd")), []) == ["200", "413"]
    assert rig.handler.prompted == [b"abc"]
    rig = PromptRig(max_body=0)
    assert read_answers(await say(rig, post(4, b"abcd")), []) == ["200"]


async def test_the_end_of_a_connection():
    rig = PromptRig()
    answer = await say(rig, post(2, b"aa", b"Connection: close\r\n") + post(2, b"bb"))
    assert read_answers(answer, []) == ["200"]
    assert rig.handler.prompted == [b"aa"]
    assert rig.ended
    rig = PromptRig(keepalive_requests=3)
    assert read_answers(await say(rig, post(2, b"aa") * 5), []) == ["200"] * 3
    assert rig.ended
    rig = PromptRig()
    rig.conn.close_soon()
    assert b"close" in await say(rig, post(2, b"aa"))
    assert rig.ended


async def test_the_deadline_moves_with_each_request():
    rig = PromptRig(keepalive_timeout=10.0)
    for _ in range(4):
        await say(rig, post(2, b"aa"))
        await rig.clock.elapse(8)
        assert not rig.ended
    await rig.clock.elapse(2.1)
    assert rig.ended
    assert rig.handler.closed_count == 1


async def test_a_client_that_does_not_read_gets_no_further_answers():
    rig = PromptRig(capacity=3000)
    rig.pair.far.pause_reading()
    body = b"x" * 200
    rig.send(post(200, body) * 16)
    await settle()
    taken = len(rig.handler.seen)
    assert 2 < taken < 16
    rig.send(post(200, body) * 4)
    await settle()
    assert len(rig.handler.seen) == taken
    rig.pair.far.start_reading()
    for _ in range(30):
        await settle()
    assert read_answers(rig.output, []) == ["200"] * 20
    assert len(rig.handler.seen) == 20


async def test_answers_do_not_depend_on_how_the_bytes_came():
    requests = [
        post(3, b"abc"),
        get(b"x"),
        chunked(b"12", b"345"),
        post(3, b"abc"),
        post(700, b"y" * 700),
        b"\r\n" + post(3, b"abd"),
        post(2, b"zz", b"Connection: close\r\n"),
    ]
    data = b"".join(requests)
    chance = random.Random(5)
    wanted = None
    for _ in range(40):
        cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(6)))
        rig = PromptRig(Prompt(lambda head, body: head.method == b"POST" and body != b"abd"))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            await say(rig, data[start:end])
        wanted = wanted or rig.output
        assert rig.output == wanted
        assert len(rig.handler.seen) == len(requests) == rig.settings.stats.answered
        assert rig.ended
