"""HttpConnection and Exchange on memory streams, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from http1_rig import Handler, Rig, get, head_for, post, read_answers, rig_with, say

from headrace.core.http1.frame import response_head
from headrace.core.http1.linger import evict_idle
from headrace.core.http1.settings import ServerSettings
from headrace.errors import ConnectionFailed, HttpError
from headrace.testing.clock import settle


class TestSyncPath:
    async def test_one_recv_one_send_no_task(self, monkeypatch):
        rig = Rig()
        monkeypatch.setattr("headrace.core.http1.server.spawn", None)
        rig.pair.near_socket.calls.clear()
        for _ in range(5):
            assert (await say(rig, get())).startswith(b"HTTP/1.1 200 ")
        calls = rig.pair.near_socket.calls
        assert (calls["recv"], calls["send"], calls["sendmsg"]) == (5, 5, 0)
        assert calls["add_reader"] == calls["add_writer"] == 0
        assert rig.settings.stats.requests == rig.settings.stats.answered == 5
        assert rig.conn.requests == 5
        assert rig.conn.idle

    async def test_large_body_is_one_gathered_write(self):
        rig = await rig_with(lambda ex: ex.respond(head_for(ex, 200, 50_000), b"x" * 50_000))
        rig.pair.near_socket.calls.clear()
        assert len(await say(rig, get())) > 50_000
        assert rig.pair.near_socket.calls["sendmsg"] == 1

    async def test_pipelined_requests_are_answered_in_order(self):
        rig = await rig_with(lambda ex: ex.respond(head_for(ex, 200, 2), ex.head.target))
        answer = await say(rig, b"".join(get(b"%d" % i) for i in range(8)))
        assert [part[-2:] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [b"/%d" % i for i in range(8)]

    @pytest.mark.parametrize(("status", "method"), [(200, b"HEAD"), (204, b"GET"), (304, b"GET")])
    async def test_no_body_where_none_is_allowed(self, status, method):
        rig = await rig_with(lambda ex: ex.respond(head_for(ex, status, 4), b"body"))
        answer = await say(rig, get().replace(b"GET", method))
        assert answer.endswith(b"\r\n\r\n")
        assert (await say(rig, get().replace(b"GET", method))) == answer

    async def test_second_answer_is_refused(self):
        def twice(ex):
            ex.respond(head_for(ex, 200, 0))
            ex.respond(head_for(ex, 200, 0))

        rig = await rig_with(twice)
        assert read_answers(await say(rig, get()), []) == ["200"]
        assert isinstance(rig.faults[0], RuntimeError)

    async def test_http09(self):
        rig = await rig_with(lambda ex: ex.respond(head_for(ex, 200, 5), b"hello"))
        assert await say(rig, b"GET /\r\n") == b"hello"
        assert rig.ended


class TestAsync:
    async def test_answers_in_order_and_the_next_request_waits_unparsed(self):
        gates = [asyncio.Event(), asyncio.Event()]
        begun = []

        async def wait(ex):
            number = len(begun)
            begun.append(ex.head.target)
            await gates[number].wait()
            ex.respond(head_for(ex, 200, 2), ex.head.target)

        rig = await rig_with(wait)
        assert await say(rig, get(b"a") + get(b"b")) == b""
        assert begun == [b"/a"]
        assert rig.settings.stats.busy == 1
        gates[1].set()
        assert await say(rig, b"") == b""
        gates[0].set()
        await settle()
        assert rig.output.index(b"/a") < rig.output.index(b"/b")

    async def test_input_beyond_the_request_pauses_reading(self):
        gate = asyncio.Event()

        async def wait(ex):
            await gate.wait()
            ex.respond(head_for(ex, 200, 0))

        rig = await rig_with(wait, keepalive_requests=10_000)
        flood = get() * 2000
        for at in range(0, len(flood), 1000):
            rig.send(flood[at : at + 1000])
            await settle(2)
        assert len(rig.conn._buffer) <= 65_536
        assert len(rig.pair.near_socket.inbox) > 0
        gate.set()
        for _ in range(300):
            await settle()
        assert read_answers(rig.output, []) == ["200"] * 2000

    async def test_exception_is_500_and_told(self):
        async def broken(ex):
            raise KeyError("x")

        rig = await rig_with(broken)
        assert read_answers(await say(rig, get() + get()), []) == ["500", "500"]
        assert [type(fault) for fault in rig.faults] == [KeyError, KeyError]
        assert rig.handler.errors[0].kind == "internal"

    async def test_http_error_goes_to_refuse(self):
        async def teapot(ex):
            raise HttpError(418, "no", close=False)

        rig = await rig_with(teapot)
        assert read_answers(await say(rig, get()), []) == ["418"]
        assert not rig.faults
        assert not rig.ended

    async def test_exception_inside_an_answer_cuts_it_off(self):
        async def broken(ex):
            ex.start_response(response_head(200, [(b"Transfer-Encoding", b"chunked")]), framing="chunked")
            ex.send(b"part")
            await ex.drain()
            raise KeyError("x")

        rig = await rig_with(broken)
        await say(rig, get())
        assert rig.pair.near_socket.was_reset
        assert b"0\r\n\r\n" not in rig.output

    async def test_handler_that_forgets_to_answer(self):
        async def forget(ex):
            return None

        rig = await rig_with(forget)
        assert read_answers(await say(rig, get()), []) == ["500"]

    async def test_answer_given_later_by_somebody_else(self):
        kept = []
        rig = await rig_with(kept.append)
        assert await say(rig, get() + get()) == b""
        kept[0].respond(head_for(kept[0], 200, 0))
        await settle()
        kept[1].respond(head_for(kept[1], 200, 0))
        await settle()
        assert read_answers(rig.output, []) == ["200", "200"]


class TestStreaming:
    async def test_chunked(self):
        async def stream(ex):
            ex.start_response(response_head(200, [(b"Transfer-Encoding", b"chunked")]), framing="chunked")
            ex.send(b"hello")
            ex.send(b"")
            ex.send(b"x" * 20_000)
            await ex.drain()
            ex.finish([(b"Digest", b"1")])

        rig = await rig_with(stream)
        answer = await say(rig, get())
        body = answer.split(b"\r\n\r\n", 1)[1]
        assert body == b"5\r\nhello\r\n4e20\r\n" + b"x" * 20_000 + b"\r\n0\r\nDigest: 1\r\n\r\n"
        assert not rig.ended

    async def test_chunked_is_not_for_http10(self):
        rig = await rig_with(lambda ex: ex.start_response(b"HTTP/1.1 200 OK\r\n\r\n", framing="chunked"))
        answer = await say(rig, b"GET / HTTP/1.0\r\n\r\n")
        assert read_answers(answer, []) == ["500"]
        assert isinstance(rig.faults[0], ValueError)

    async def test_close_delimited(self):
        def stream(ex):
            ex.start_response(response_head(200, []), framing="close")
            ex.send(b"hello")
            ex.finish()

        rig = await rig_with(stream)
        assert (await say(rig, get() + get())).endswith(b"hello")
        assert rig.ended

    async def test_short_of_the_declared_length_closes(self):
        def stream(ex):
            ex.start_response(head_for(ex, 200, 10), framing="length")
            ex.send(b"hello")
            ex.finish()

        rig = await rig_with(stream)
        await say(rig, get())
        assert rig.ended

    async def test_beyond_the_declared_length_is_a_fault(self):
        def stream(ex):
            ex.start_response(head_for(ex, 200, 3), framing="length")
            ex.send(b"hello")

        rig = await rig_with(stream)
        answer = await say(rig, get() + get())
        assert b"hello" not in answer
        assert answer.count(b"HTTP/1.1") <= 1
        assert rig.pair.near_socket.closed

    async def test_slow_reader_gets_no_further_answers(self):
        rig = Rig(Handler(lambda ex: ex.respond(head_for(ex, 200, 10_000), b"x" * 10_000)))
        rig.pair.near_socket.blocked = True
        rig.send(get() * 500)
        await settle()
        assert rig.conn.requests == 1
        rig.pair.near_socket.blocked = False
        for _ in range(100):
            await settle()
        assert read_answers(rig.output, []) == ["200"] * 500

    async def test_interim_answer(self):
        def hint(ex):
            ex.interim(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
            ex.respond(head_for(ex, 200, 0))

        rig = await rig_with(hint)
        assert read_answers(await say(rig, get()), []) == ["103", "200"]


class TestKeepAlive:
    @pytest.mark.parametrize(
        ("request_", "kept"),
        [
            (b"GET / HTTP/1.0\r\n\r\n", False),
            (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
            (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", False),
            (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n", False),
            (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-close\r\n\r\n", True),
        ],
    )
    async def test_who_asks_for_what(self, request_, kept):
        rig = Rig()
        answer = await say(rig, request_)
        assert (b"keep-alive" in answer) == kept
        assert rig.ended != kept

    async def test_number_of_requests(self):
        rig = Rig(keepalive_requests=3)
        assert read_answers(await say(rig, get() * 5), []) == ["200"] * 3
        assert rig.ended

    async def test_age(self):
        rig = Rig(keepalive_time=10.0, keepalive_timeout=60)
        await say(rig, get())
        rig.clock.advance(11)
        assert b"close" in await say(rig, get())
        assert rig.ended

    async def test_idle_deadline_moves_with_each_request(self):
        rig = Rig(keepalive_timeout=10.0)
        for _ in range(4):
            await say(rig, get())
            await rig.clock.elapse(8)
            assert not rig.ended
        await rig.clock.elapse(2.1)
        assert rig.ended
        assert rig.handler.closed_count == 1

    async def test_short_idle_deadline_after_a_long_head_deadline(self):
        rig = Rig(keepalive_timeout=2.0, header_timeout=60.0)
        await say(rig, get())
        await rig.clock.elapse(2.1)
        assert rig.ended

    async def test_shorter_idle_deadline_of_a_later_location(self):
        rig = Rig(keepalive_timeout=75.0)
        await say(rig, get())
        rig.conn.settings = ServerSettings(keepalive_timeout=5.0, stats=rig.settings.stats)
        await say(rig, get())
        await rig.clock.elapse(5.1)
        assert rig.ended

    async def test_zero_timeout_means_close(self):
        rig = Rig(keepalive_timeout=0.0)
        assert b"close" in await say(rig, get())
        assert rig.ended


class TestGraceful:
    async def test_idle_closes_at_once(self):
        rig = Rig()
        await say(rig, get())
        rig.conn.close_soon()
        await settle()
        assert rig.ended
        assert rig.settings.stats.connections == 0

    async def test_a_fresh_connection_gets_its_first_answer(self):
        rig = Rig()
        rig.conn.close_soon()
        await settle()
        assert not rig.ended
        assert b"Connection: close" in await say(rig, get())
        assert rig.ended

    async def test_a_request_that_has_arrived_is_answered(self):
        rig = Rig()
        await say(rig, get())
        rig.send(get())
        rig.conn.close_soon()
        await settle()
        assert rig.output.count(b"HTTP/1.1 200") == 2
        assert rig.output.count(b"Connection: close") == 1
        assert rig.ended

    async def test_busy_closes_after_its_answer(self):
        gate = asyncio.Event()

        async def wait(ex):
            await gate.wait()
            ex.respond(head_for(ex, 200, 0))

        rig = await rig_with(wait)
        await say(rig, get() + get())
        rig.conn.close_soon()
        gate.set()
        await settle()
        assert read_answers(rig.output, []) == ["200"]
        assert b"Connection: close" in rig.output
        assert rig.ended

    async def test_oldest_idle_connections_make_room(self):
        rigs = [Rig() for _ in range(3)]
        for rig in reversed(rigs):
            await say(rig, get())
            for other in rigs:
                other.clock.advance(1)
        assert evict_idle([rig.conn for rig in rigs], 2) == 2
        await settle()
        assert [rig.ended for rig in rigs] == [False, True, True]


class TestAbort:
    async def test_reset_while_a_handler_runs(self):
        told = []
        outcome = []

        async def wait(ex):
            ex.on_abort = lambda: told.append(ex.aborted)
            try:
                await ex.read_body()
            except ConnectionFailed as error:
                outcome.append(error)
                raise

        rig = await rig_with(wait)
        await say(rig, post(10))
        rig.pair.far.abort()
        await settle()
        assert told == [True]
        assert len(outcome) == 1
        assert not rig.faults
        assert rig.handler.closed_count == 1
        assert rig.settings.stats.aborted == 1
        assert rig.settings.stats.busy == 0

    async def test_on_abort_that_fails(self):
        def wait(ex):
            ex.on_abort = lambda: 1 / 0

        rig = await rig_with(wait)
        await say(rig, get())
        rig.pair.far.abort()
        await settle()
        assert [type(fault) for fault in rig.faults] == [ZeroDivisionError]
        assert rig.handler.closed_count == 1

    async def test_half_closed_client_is_answered(self):
        gate = asyncio.Event()

        async def wait(ex):
            await gate.wait()
            ex.respond(head_for(ex, 200, 0))

        rig = await rig_with(wait)
        rig.send(get() + get())
        rig.pair.far.shutdown_write()
        await settle()
        gate.set()
        await settle()
        assert read_answers(rig.output, []) == ["200", "200"]
        assert rig.ended

    async def test_half_close_counts_when_asked_for(self):
        told = []

        def wait(ex):
            ex.abort_on_eof = True
            ex.on_abort = lambda: (told.append(1), ex.close())

        rig = await rig_with(wait)
        await say(rig, get())
        rig.pair.far.shutdown_write()
        await settle()
        assert told == [1]
        assert rig.ended

    async def test_close_without_an_answer(self):
        rig = await rig_with(lambda ex: ex.close())
        assert await say(rig, get()) == b""
        assert rig.ended

    async def test_refuse_without_an_answer(self):
        rig = Rig()
        rig.handler.refuse = lambda exchange, error: None
        assert await say(rig, b"\x00\n") == b""
        assert rig.ended
        assert rig.settings.stats.busy == 0


class TestUpgrade:
    async def test_stream_and_early_bytes_change_hands(self):
        got = []

        async def tunnel(ex):
            ex.start_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", framing="none")
            stream = ex.upgrade()
            got.append(ex.take_buffered())
            got.append(await stream.read())
            stream.write(b"pong")
            stream.close()
            ex.finish()

        rig = await rig_with(tunnel)
        await say(rig, get() + b"early")
        assert (await say(rig, b"ping")).endswith(b"pong")
        assert got == [b"early", b"ping"]
        assert rig.ended
        assert rig.handler.closed_count == 1
        assert rig.settings.stats.connections == rig.settings.stats.busy == 0
        assert not rig.faults

    async def test_not_inside_of_handle(self):
        rig = await rig_with(lambda ex: ex.upgrade())
        assert read_answers(await say(rig, get()), []) == ["500"]


class TestRefusal:
    async def test_a_refusal_may_take_its_time(self):
        gate = asyncio.Event()

        async def page(exchange):
            await gate.wait()
            exchange.respond(head_for(exchange, 400, 0))

        rig = Rig()
        rig.handler.refuse = lambda exchange, error: page(exchange)
        assert await say(rig, b"BAD\r\n\r\n" + get()) == b""
        gate.set()
        await settle()
        assert read_answers(rig.output, []) == ["400"]
        assert rig.ended
        assert rig.settings.stats.busy == 0

    async def test_a_refusal_that_fails_is_not_refused_again(self):
        async def broken(exchange):
            raise KeyError("x")

        rig = Rig()
        rig.handler.refuse = lambda exchange, error: broken(exchange)
        assert await say(rig, b"BAD\r\n\r\n") == b""
        assert rig.ended
        assert [type(fault) for fault in rig.faults] == [KeyError]

    async def test_what_is_known_of_a_bad_head(self):
        rig = Rig()
        seen = []
        rig.handler.refuse = lambda exchange, error: seen.append(exchange.head) or exchange.close()
        await say(rig, b"HEAD /x HTTP/1.1\r\n\r\n")
        assert (seen[0].method, seen[0].target, seen[0].raw) == (b"HEAD", b"/x", b"HEAD /x HTTP/1.1\r\n\r\n")
        assert seen[0].headers() == []
