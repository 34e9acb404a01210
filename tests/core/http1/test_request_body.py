"""Request bodies: modes of reading, limits on every path, flow control, deadlines."""

from __future__ import annotations

import pytest
from http1_rig import Rig, chunked, get, head_for, post, read_answers, rig_with, say

from headrace.testing.clock import settle


def no_content(exchange):
    exchange.respond(head_for(exchange, 204, None))


async def read_all(exchange):
    body = await exchange.read_body()
    exchange.respond(head_for(exchange, 200, len(body)), body)


async def in_pieces(exchange):
    pieces = []
    while piece := await exchange.next_chunk():
        pieces.append(piece)
    body = b"".join(pieces)
    exchange.respond(head_for(exchange, 200, len(body)), body)


def at_once_or_later(exchange):
    body = exchange.body_now()
    if body is None:
        return read_all(exchange)
    exchange.respond(head_for(exchange, 200, len(body)), body)
    return None


READERS = [read_all, in_pieces, at_once_or_later]


async def say_quickly(rig, data):
    rig.send(data)
    await settle(2)


SIXTEEN = [b"x" * 64] * 16


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "data", [post(5, b"hello"), chunked(b"he", b"llo"), chunked(b"hello", end=b"0\r\nA: b\r\n\r\n")]
)
class TestReading:
    async def test_whole_and_in_pieces(self, reader, data):
        for size in (len(data), 1, 7):
            rig = await rig_with(reader)
            for at in range(0, len(data), size):
                await say(rig, data[at : at + size])
            assert rig.output.endswith(b"\r\n\r\nhello")
            assert read_answers(await say(rig, get()), []) == ["200"], "the connection goes on"

    async def test_pipelined_behind_a_body(self, reader, data):
        rig = await rig_with(reader)
        assert read_answers(await say(rig, data + data + get()), []) == ["200"] * 3


class TestLimits:
    """H03: the limit counts decoded bytes on every path; a body exactly at the limit passes."""

    @pytest.mark.parametrize("reader", READERS)
    @pytest.mark.parametrize("make", [chunked, lambda *p: post(len(b"".join(p)), b"".join(p))])
    @pytest.mark.parametrize("step", [1 << 20, 100])
    async def test_read(self, reader, make, step):
        for pieces, status in ((SIXTEEN, "200"), ([*SIXTEEN, b"y"], "413")):
            rig = await rig_with(reader, max_body=1024)
            data = make(*pieces) + get()
            for at in range(0, len(data), step):
                await say(rig, data[at : at + step])
            assert read_answers(rig.output, [])[0] == status
            assert rig.ended == (status == "413")
            assert len(read_answers(rig.output, [])) == (1 if status == "413" else 2)

    async def test_dropped_by_the_handler(self):
        for pieces, kept in ((SIXTEEN, True), ([*SIXTEEN, b"y"], False), ([b"z"] * 2000, False)):
            rig = await rig_with(no_content, max_body=1024)
            data = chunked(*pieces)
            for at in range(0, len(data), 100):
                await say(rig, data[at : at + 100])
            assert rig.ended != kept
            if kept:
                await say(rig, get())
                assert rig.conn.requests == 2

    async def test_declared_too_large_is_not_read(self):
        rig = await rig_with(read_all)
        assert read_answers(await say(rig, post(10 << 30)), []) == ["413"]
        rig = await rig_with(no_content)
        assert read_answers(await say(rig, post(10 << 30)), []) == ["204"]
        assert rig.ended

    async def test_smaller_limit_of_a_virtual_server(self):
        for way in ("now", "read", "next", "check"):

            async def strict(exchange, way=way):
                exchange.settings = type(exchange.settings)(max_body=4)
                if way == "now":
                    exchange.body_now()
                elif way == "read":
                    await exchange.read_body()
                elif way == "next":
                    await exchange.next_chunk()
                else:
                    exchange.check_body()
                exchange.respond(head_for(exchange, 200, 0))

            for data in (post(5, b"hello"), post(5, b"hel"), chunked(b"hello")):
                rig = await rig_with(strict)
                await say(rig, data)
                assert read_answers(rig.output, []) == ["413"]
            rig = await rig_with(strict)
            assert read_answers(await say(rig, post(4, b"four") + get()), []) == ["200", "200"]

    async def test_settings_of_a_virtual_server(self):
        async def larger(exchange):
            settings = type(exchange.settings)(max_body=0)
            exchange.settings = settings
            await read_all(exchange)

        rig = await rig_with(larger, max_body=10)
        assert read_answers(await say(rig, chunked(b"x" * 5000)), []) == ["200"]

    async def test_a_smaller_limit_of_the_reader(self):
        async def small(exchange):
            exchange.respond(head_for(exchange, 200, 0), await exchange.read_body(limit=3))

        rig = await rig_with(small)
        assert read_answers(await say(rig, post(4, b"1234")), []) == ["413"]


class TestFlow:
    async def test_a_lagging_handler_pauses_the_client(self):
        kept = []
        rig = await rig_with(kept.append, max_body=0)
        rig.send(post(1 << 20))
        sent = 0
        while sent < 1 << 20:
            rig.send(b"x" * 16_384)
            sent += 16_384
            await settle(3)
        exchange = kept[0]
        assert exchange.body.size < 65_536 * 2 + 16_384
        assert len(rig.pair.near_socket.inbox) > 800_000
        total = 0
        while piece := await exchange.next_chunk():
            total += len(piece)
            assert exchange.body.size < 65_536 * 2 + 16_384
        assert total == 1 << 20
        exchange.respond(head_for(exchange, 200, 0))
        await settle()
        assert read_answers(rig.output, []) == ["200"]

    async def test_unread_body_is_dropped_before_the_next_request(self):
        rig = await rig_with(no_content)
        rig.send(post(100_000))
        for _ in range(10):
            await say(rig, b"x" * 10_000)
        assert read_answers(await say(rig, get()), []) == ["204"]
        assert rig.conn.requests == 2

    async def test_dropping_has_an_end(self):
        rig = await rig_with(no_content, lingering_timeout=5.0, lingering_time=30.0)
        await say(rig, post(100_000))
        for _ in range(9):
            await rig.clock.elapse(4)
            await say(rig, b"x")
        assert rig.ended
        assert rig.settings.stats.timeouts == 1


class TestContinue:
    EXPECT = b"Expect: 100-Continue\r\n"

    async def test_sent_when_the_body_is_read(self):
        rig = await rig_with(read_all)
        assert await say(rig, post(5, extra=self.EXPECT)) == b"HTTP/1.1 100 Continue\r\n\r\n"
        answer = await say(rig, b"hello")
        assert answer.endswith(b"hello")
        assert b"keep-alive" in answer

    async def test_not_sent_when_the_body_came_unasked(self):
        rig = await rig_with(at_once_or_later)
        assert read_answers(await say(rig, post(5, b"hello", self.EXPECT)), []) == ["200"]
        assert not rig.ended

    async def test_not_sent_when_refused(self):
        rig = await rig_with(read_all, max_body=4)
        assert read_answers(await say(rig, post(5, extra=self.EXPECT)), []) == ["413"]
        assert rig.ended

    async def test_answer_without_reading_closes(self):
        rig = await rig_with(no_content)
        assert b"close" in await say(rig, post(5, extra=self.EXPECT))
        assert rig.ended

    async def test_http10_and_empty_bodies_are_not_told(self):
        rig = await rig_with(read_all)
        data = post(5, extra=self.EXPECT + b"Connection: keep-alive\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")
        assert await say(rig, data) == b""
        await say(rig, b"hello")
        assert read_answers(await say(rig, post(0, extra=self.EXPECT)), []) == ["200"]


class TestDeadlines:
    async def test_header_deadline_is_absolute(self):
        """H08: a byte now and then does not move it."""
        rig = Rig(header_timeout=60.0)
        data = get(b"x" * 1000)
        for byte in data[:59]:
            await say(rig, bytes((byte,)))
            await rig.clock.elapse(1)
        assert not rig.ended
        await rig.clock.elapse(1.1)
        assert rig.ended
        assert rig.handler.errors[0].status == 408
        assert rig.settings.stats.timeouts == 1

    async def test_many_slow_clients_and_a_normal_one(self):
        slow = [Rig(header_timeout=30.0) for _ in range(50)]
        normal = Rig(header_timeout=30.0)
        for second in range(31):
            for rig in slow:
                await say_quickly(rig, get(b"x" * 100)[second : second + 1])
                rig.clock.advance(1)
            if second % 10 == 0:
                assert read_answers(await say(normal, get()), []) == ["200"]
        await settle()
        assert all(rig.ended for rig in slow)
        assert not normal.ended

    async def test_header_deadline_of_a_later_request_counts_from_its_first_byte(self):
        rig = Rig(header_timeout=10.0, keepalive_timeout=75.0)
        await say(rig, get())
        await rig.clock.elapse(70)
        for byte in b"GET / HTT":
            await say(rig, bytes((byte,)))
            await rig.clock.elapse(1)
        assert not rig.ended
        await rig.clock.elapse(1.1)
        assert rig.ended

    async def test_silent_client_gets_no_answer(self):
        rig = Rig(header_timeout=60.0)
        await rig.clock.elapse(61)
        assert rig.ended
        assert rig.output == b""

    async def test_body_deadline_is_between_two_reads(self):
        rig = await rig_with(read_all, body_timeout=10.0)
        await say(rig, post(20))
        for _ in range(8):
            await rig.clock.elapse(8)
            await say(rig, b"x")
        assert not rig.ended
        await rig.clock.elapse(10.1)
        assert read_answers(rig.output, []) == ["408"]

    async def test_body_rate(self):
        rig = await rig_with(read_all, body_timeout=10.0, body_min_rate=100.0)
        await say(rig, post(2000))
        for _ in range(3):
            await rig.clock.elapse(8)
            await say(rig, b"x")
        assert read_answers(rig.output, []) == ["408"]

    async def test_a_handler_that_works_has_no_deadline(self):
        kept = []
        rig = await rig_with(kept.append)
        await say(rig, get())
        await rig.clock.elapse(10_000)
        assert not rig.ended
        kept[0].respond(head_for(kept[0], 200, 0))
        await settle()
        assert read_answers(rig.output, []) == ["200"]

    async def test_client_that_does_not_read(self):
        rig = await rig_with(lambda ex: ex.respond(head_for(ex, 200, 5_000_000), b"x" * 5_000_000), send_timeout=20.0)
        rig.pair.near_socket.blocked = True
        rig.send(get())
        await rig.clock.elapse(21)
        assert rig.pair.near_socket.was_reset
        assert rig.handler.closed_count == 1


class TestLingering:
    async def test_client_that_still_sends_can_read_the_refusal(self):
        rig = await rig_with(read_all, max_body=10, lingering_timeout=5.0, lingering_time=30.0)
        await say(rig, post(1 << 30))
        assert read_answers(rig.output, []) == ["413"]
        for _ in range(5):
            await rig.clock.elapse(4)
            await say(rig, b"x" * 100_000)
        assert not rig.pair.near_socket.closed
        assert rig.client.eof
        for _ in range(3):
            await rig.clock.elapse(4)
            await say(rig, b"x" * 1000)
        assert rig.pair.near_socket.closed
        assert not rig.pair.near_socket.was_reset
        assert rig.handler.closed_count == 1

    async def test_client_that_leaves_ends_it(self):
        rig = Rig()
        await say(rig, b"BAD\r\n\r\n")
        assert not rig.pair.near_socket.closed
        rig.pair.far.close()
        await settle()
        assert rig.pair.near_socket.closed

    async def test_switched_off(self):
        rig = Rig(lingering_close=False)
        await say(rig, b"BAD\r\n\r\n")
        assert rig.pair.near_socket.closed


class TestCutShort:
    @pytest.mark.parametrize("reader", READERS)
    @pytest.mark.parametrize("data", [post(50, b"hello"), chunked(b"hello", end=b""), chunked(b"hello", end=b"0\r\n")])
    async def test_half_close_in_a_body_is_never_a_short_body(self, reader, data):
        rig = await rig_with(reader)
        rig.send(data)
        rig.pair.far.shutdown_write()
        await settle()
        assert read_answers(rig.output, []) == ["400"]
        assert rig.ended
