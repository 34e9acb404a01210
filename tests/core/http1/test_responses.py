"""Responses as a client reads them, and one exchange on a memory stream."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.http1 import client
from headrace.core.http1.client import MAX_DROPPED, NoReply, ReplyTimeout, exchange
from headrace.core.http1.events import EndOfMessage
from headrace.core.http1.parse import MAX_INTERIM, ProtocolError, ResponseParser
from headrace.testing.clock import FakeClock, settle
from headrace.testing.streams import Recorder, stream_pair


def read(data, method=b"GET", eof=False):
    """Everything a parser makes of the bytes, the same whole and byte by byte."""
    outcomes = []
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        parser = ResponseParser(method)
        events = []
        for piece in pieces:
            events += parser.feed(piece)
        if eof and not parser.done:
            events += parser.feed_eof()
        body = b"".join(event for event in events if isinstance(event, bytes))
        end = events[-1] if events and isinstance(events[-1], EndOfMessage) else None
        status = parser.head.status if parser.head else None
        keep = parser.head.keep_alive if parser.head else None
        outcomes.append((status, body, end.trailers if end else None, keep, parser.leftover))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def answer(fields, body=b"", status=b"200 OK", version=b"1.1"):
    return b"HTTP/%b %b\r\n%b\r\n%b" % (version, status, b"".join(f + b"\r\n" for f in fields), body)


class TestFraming:
    """O07: method and status first, then the fields; trailers are part of the message."""

    CHUNKED = (b"Transfer-Encoding: chunked",)

    @pytest.mark.parametrize(
        ("data", "method", "status", "body"),
        [
            (answer([b"Content-Length: 5"], b"hello"), b"GET", 200, b"hello"),
            (answer([b"Content-Length: 5"]), b"HEAD", 200, b""),
            (answer([b"Content-Length: 5"], status=b"304 Not Modified"), b"GET", 304, b""),
            (answer([], status=b"204 No Content"), b"POST", 204, b""),
            (answer([b"Content-Length: 0"], status=b"204"), b"POST", 204, b""),
            (answer(CHUNKED, status=b"204 "), b"POST", 204, b""),
            (answer(CHUNKED, b"5\r\nhello\r\n0\r\n\r\n"), b"GET", 200, b"hello"),
            (answer([b"TE:", b"transfer-encoding: CHUNKED"], b"0\r\n\r\n"), b"GET", 200, b""),
            (answer([b"Content-Length: 2, 2"], b"ok"), b"GET", 200, b"ok"),
            (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"GET", 200, b"ok"),
            (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hi\r\nA: b\r\n\r\n" + answer([b"Content-Length: 0"]),
                b"GET",
                200,
                b"",
            ),
        ],
    )
    def test_kept(self, data, method, status, body):
        assert read(data, method) == (status, body, [], True, b"")

    def test_trailers(self):
        data = answer(self.CHUNKED, b"1\r\nx\r\n0\r\nDigest: 7\r\nContent-Length: 9\r\n\r\n")
        assert read(data) == (200, b"x", [(b"Digest", b"7")], True, b"")

    def test_what_follows_is_left(self):
        assert read(answer([b"Content-Length: 1"], b"xHTTP"))[4] == b"HTTP"
        assert read(answer([b"Upgrade: x"], b"raw", b"101 Switching Protocols")) == (101, b"", [], False, b"raw")

    @pytest.mark.parametrize(
        "data",
        [
            answer([b"Content-Length: 0", b"Connection: close"]),
            answer([b"Content-Length: 0"], version=b"1.0"),
            answer([b"Content-Length: 3", *CHUNKED], b"0\r\n\r\n"),
            answer(CHUNKED, b"0\r\n\r\n", version=b"1.0"),
        ],
    )
    def test_not_kept(self, data):
        assert read(data)[2:4] == ([], False)

    def test_until_close(self):
        assert read(answer([], b"abc"), eof=True) == (200, b"abc", [], False, b"")
        assert read(answer([b"Connection: keep-alive"], b"abc", version=b"1.0"), eof=True)[3] is False

    @pytest.mark.parametrize(
        "data",
        [
            answer([b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], b"0\r\n\r\n"),
            answer([b"Transfer-Encoding: chunked, chunked"], b"0\r\n\r\n"),
            answer([b"Transfer-Encoding: gzip"], b"x"),
            answer([b"Transfer-Encoding : chunked"], b"0\r\n\r\n"),
            answer([b"Content-Length: 5", b"Content-Length: 6"], b"hello"),
            answer([b"Content-Length: -1"]),
            answer([b"A: b\x00"]),
            answer([b"A: b\rC: d"]),
            answer(CHUNKED, b"x\r\n"),
            answer(CHUNKED, b"1\r\nab\r\n"),
            b"HTTP/2 200\r\n\r\n",
            b"ICY 200 OK\r\n\r\n",
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        ],
    )
    def test_faults(self, data):
        for pieces in ([data], [data[i : i + 1] for i in range(min(len(data), 300))] + [data[300:]]):
            parser = ResponseParser(b"GET")
            with pytest.raises(ProtocolError):
                list(map(parser.feed, pieces))

    def test_lines_that_are_no_fields_are_dropped_and_folds_are_unfolded(self):
        parser = ResponseParser(b"GET")
        parser.feed(answer([b"A: b", b" c", b"no field", b"B: 1", b"Content-Length: 0"]))
        assert parser.head
        assert parser.head.headers() == [(b"A", b"b c"), (b"B", b"1"), (b"Content-Length", b"0")]

    @pytest.mark.parametrize(
        "data", [b"", b"HTTP/1.1 200", answer([b"Content-Length: 5"], b"hell"), answer(CHUNKED, b"5\r\nhello\r\n")]
    )
    def test_cut_short(self, data):
        with pytest.raises(ProtocolError) as caught:
            read(data, eof=True)
        assert caught.value.kind == "incomplete"


class Origin:
    """The far end: answers what it is told, when the test says so."""

    def __init__(self):
        self.clock = FakeClock()
        self.got = Recorder()
        self.pair = stream_pair(self.clock, far_owner=self.got)
        self.pair.far.start_reading()

    def ask(self, body=b"", **options):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
        return asyncio.create_task(exchange(self.pair.near, head, body, method=b"POST", **options))

    def say(self, data):
        self.pair.far.write(data)


class TestExchange:
    async def test_several_on_one_stream(self):
        origin = Origin()
        for number in range(3):
            task = origin.ask(b"body%d" % number)
            await settle()
            assert origin.got.data.endswith(b"\r\n\r\nbody%d" % number)
            origin.say(answer([b"Transfer-Encoding: chunked", b"X: y"], b"2\r\nok\r\n0\r\nT: 1\r\n\r\n"))
            response = await task
            assert (response.status, response.reason, response.body) == (200, b"OK", b"ok")
            assert response.trailers == [(b"T", b"1")]
            assert response.header(b"x") == b"y"
            assert response.keep_alive
            assert origin.pair.near.probe() == "idle"

    async def test_a_request_is_one_send_and_one_receive(self):
        origin = Origin()
        calls = origin.pair.near_socket.calls
        for _ in range(10):
            before = dict(calls)
            task = origin.ask()
            await settle()
            origin.say(answer([b"Content-Length: 2"], b"ok"))
            await task
            spent = {name: calls.get(name, 0) - before.get(name, 0) for name in ("send", "sendmsg", "recv")}
            assert spent == {"send": 1, "sendmsg": 0, "recv": 1}

    @pytest.mark.parametrize(
        ("data", "parsed"),
        [
            (answer([b"Content-Length: 2", b"A: once"], b"ok"), 1),
            (answer([b"Content-Length: 2", b"Connection: close", b"B: once"], b"ok"), 1),
            (answer([b"Content-Length: 2", b"C: more"], b"ok more"), 3),
            (answer([b"Content-Length: 600", b"D: large"], b"x" * 600), 3),
        ],
    )
    async def test_the_same_bytes_are_parsed_once(self, monkeypatch, data, parsed):
        parsers = []
        make = client.ResponseParser
        monkeypatch.setattr(client, "ResponseParser", lambda method: parsers.append(make(method)) or parsers[-1])
        monkeypatch.setattr(client, "_answers", {})
        seen = []
        for _ in range(3):
            origin = Origin()
            task = origin.ask()
            await settle()
            origin.say(data)
            response = await task
            seen.append((response.status, response.body, response.keep_alive, response.headers))
        assert seen[0] == seen[1] == seen[2]
        assert len(parsers) == parsed

    async def test_a_known_answer_respects_the_limit_of_the_body_and_an_unsent_request(self, monkeypatch):
        monkeypatch.setattr(client, "_answers", {})
        data = answer([b"Content-Length: 2"], b"ok")
        for max_body, body in ((9, b"ok"), (1, b"o"), (9, b"ok")):
            origin = Origin()
            task = origin.ask(max_body=max_body)
            await settle()
            origin.say(data)
            response = await task
            assert (response.body, response.truncated) == (body, max_body == 1)
        origin = Origin()
        task = origin.ask(b"x" * 10_000_000)
        await settle()
        origin.say(data)
        assert not (await task).keep_alive  # the answer came before the request was sent

    async def test_an_answer_that_ends_with_the_connection_is_not_known_before_its_end(self, monkeypatch):
        monkeypatch.setattr(client, "_answers", {})
        for more in (b"", b"", b" more"):
            origin = Origin()
            task = origin.ask()
            await settle()
            origin.say(answer([], b"ok"))
            await settle()
            assert not task.done()
            if more:
                origin.say(more)
            origin.pair.far.close()
            assert (await task).body == b"ok" + more

    async def test_the_known_answers_are_bounded(self, monkeypatch):
        monkeypatch.setattr(client, "_answers", {})
        origin = Origin()
        for number in range(client._ANSWERS_KEPT + 10):
            task = origin.ask()
            await settle()
            origin.say(answer([b"Content-Length: 0", b"N: %d" % number]))
            assert (await task).header(b"n") == b"%d" % number
        assert len(client._answers) <= client._ANSWERS_KEPT

    async def test_request_is_one_gathered_write(self):
        origin = Origin()
        task = origin.ask(b"x" * 1000)
        await settle()
        assert origin.pair.near_socket.calls["sendmsg"] == 1
        origin.say(answer([b"Content-Length: 0"]))
        await task

    async def test_no_reply_byte(self):
        origin = Origin()
        task = origin.ask()
        await settle()
        origin.pair.far.close()
        with pytest.raises(NoReply) as caught:
            await task
        assert caught.value.reply_started is False
        assert caught.value.retryable

    async def test_reset_in_the_reply(self):
        origin = Origin()
        task = origin.ask()
        await settle()
        origin.say(b"HTTP/1.1 200 OK\r\n")
        await settle()
        origin.pair.far.abort()
        with pytest.raises(NoReply) as caught:
            await task
        assert caught.value.reply_started is True

    async def test_timeout_is_per_read(self):
        origin = Origin()
        task = origin.ask(read_timeout=10.0)
        for byte in answer([b"Content-Length: 9"])[:5]:
            await origin.clock.elapse(9)
            origin.say(bytes((byte,)))
        await origin.clock.elapse(9)
        assert not task.done()
        await origin.clock.elapse(2)
        with pytest.raises(ReplyTimeout) as caught:
            await task
        assert caught.value.reply_started is True
        assert caught.value.kind == "timeout"

    async def test_slow_taking_of_the_request_is_no_silence(self):
        origin = Origin()
        origin.pair.near_socket.capacity = 100
        origin.pair.far.pause_reading()
        task = origin.ask(b"x" * 1000, read_timeout=10.0)
        for _ in range(12):
            await origin.clock.elapse(8)
            assert not task.done()
            del origin.pair.far_socket.inbox[:]
            origin.pair.loop.poke()
            await settle()
        origin.say(answer([b"Content-Length: 0"]))
        assert (await task).keep_alive

    async def test_early_answer_to_an_unfinished_request_ends_the_connection(self):
        origin = Origin()
        origin.pair.near_socket.blocked = True
        task = origin.ask(b"x" * 1000)
        await settle()
        origin.say(answer([b"Content-Length: 0"], status=b"413 Too Large"))
        response = await task
        assert response.status == 413
        assert not response.keep_alive

    async def test_body_beyond_the_limit_is_dropped(self):
        origin = Origin()
        task = origin.ask(max_body=10)
        await settle()
        origin.say(answer([b"Content-Length: 5000"], b"x" * 5000))
        response = await task
        assert (response.body, response.truncated, response.keep_alive) == (b"x" * 10, True, True)

    async def test_endless_body_is_given_up(self):
        origin = Origin()
        task = origin.ask(max_body=10)
        await settle()
        origin.say(answer([]))
        for _ in range(MAX_DROPPED // 65_536 + 2):
            origin.say(b"x" * 65_536)
            await settle(5)
        response = await task
        assert (len(response.body), response.keep_alive) == (10, False)

    async def test_bytes_after_the_answer_end_the_connection(self):
        origin = Origin()
        task = origin.ask()
        await settle()
        origin.say(answer([b"Content-Length: 0"], b"HTTP/1.1 200 OK"))
        assert not (await task).keep_alive

    async def test_close_delimited(self):
        origin = Origin()
        task = origin.ask()
        await settle()
        origin.say(answer([], b"hello"))
        origin.pair.far.close()
        response = await task
        assert (response.body, response.keep_alive) == (b"hello", False)


def test_interim_answers_without_end():
    parser = ResponseParser(b"GET")
    assert parser.feed(b"HTTP/1.1 103 Hi\r\n\r\n" * MAX_INTERIM) == []
    with pytest.raises(ProtocolError, match="too many interim"):
        parser.feed(b"HTTP/1.1 103 Hi\r\n\r\n")
