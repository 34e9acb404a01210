"""The connection of a lane against a scripted origin: reuse, what is stale, what is sent again."""

import asyncio
import contextlib
from collections import Counter

import pytest
import uvloop

from headrace.core.clock import Clock
from headrace.core.connect import Target, dial
from headrace.errors import ConnectionFailed, Timeout
from headrace.plugins.out_http.connection import FRESH, LaneConnection
from headrace.plugins.out_http.endpoint import parse
from headrace.testing.clock import FakeClock
from headrace.testing.origin import Origin, Reply, ok


@contextlib.asynccontextmanager
async def lane(*, reuse=True, read_timeout=5.0, now=None):
    loop = asyncio.get_running_loop()
    clock = Clock(loop)

    async def open_connection(endpoint):
        return await dial(Target(endpoint.host, endpoint.port), loop=loop, clock=clock, timeout=5.0)

    connection = LaneConnection(
        open_connection, now or clock.now, method=b"POST", reuse=reuse, read_timeout=read_timeout
    )
    yield connection
    connection.close()


async def send(connection, origin, path="/", body=b"x"):
    endpoint = parse(origin.url(path))
    head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n" % (
        endpoint.target,
        endpoint.authority,
        len(body),
    )
    return await connection.send(endpoint, head, body)


def counts(connection):
    return {name: value for name, value in connection.counters.as_dict().items() if value}


READ_TO_THE_END = [
    ok(b"told"),
    ok(b"a longer body in chunks", chunked=True),
    ok(status="204 No Content"),
    ok(status="503 Service Unavailable", body=b"later"),
    Reply(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"),
    Reply(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
]


@pytest.mark.parametrize("reply", READ_TO_THE_END)
async def test_one_connection_for_all_requests(reply):
    async with Origin([reply]) as origin, lane() as connection:
        for number in range(10):
            response = await send(connection, origin, f"/{number}")
        assert origin.accepts == 1
        assert len(origin.requests) == 10
        assert counts(connection) == {"opened": 1, "reused": 9}
        assert response.status in {200, 204, 503}
        connection.close()
        await origin.all_closed()


class Counting:
    """A socket that counts calls."""

    def __init__(self, sock):
        self._sock = sock
        self.calls = Counter()

    def __getattr__(self, name):
        self.calls[name] += 1
        return getattr(self._sock, name)


async def ten_requests():
    clock = FakeClock()
    async with Origin() as origin, lane(now=clock.now) as connection:
        await send(connection, origin)
        sock = connection.stream.sock = Counting(connection.stream.sock)
        for _ in range(10):
            await send(connection, origin)
        return dict(sock.calls)


def test_a_request_on_a_kept_connection_is_one_send_and_one_receive():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop of the product: it calls in time
        assert runner.run(ten_requests()) == {"send": 10, "recv": 10}


async def test_a_connection_that_was_kept_for_long_is_looked_at():
    clock = FakeClock()
    async with Origin() as origin, lane(now=clock.now) as connection:
        await send(connection, origin)
        sock = connection.stream.sock = Counting(connection.stream.sock)
        clock.advance(FRESH)
        await send(connection, origin)
        assert sock.calls == {"send": 1, "recv": 2}  # one of them takes nothing


async def test_one_connection_for_each_request_without_reuse():
    async with Origin() as origin, lane(reuse=False) as connection:
        for _ in range(10):
            await send(connection, origin)
        assert origin.accepts == 10
        assert counts(connection) == {"opened": 10}
        await origin.all_closed()


NOT_TO_BE_KEPT = [
    ok(b"x", close=True),
    Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"),
    Reply(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"),
    Reply(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", close=True),
    Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n"),
]


@pytest.mark.parametrize("reply", NOT_TO_BE_KEPT)
async def test_a_connection_that_cannot_be_kept_is_closed(reply):
    async with Origin([reply]) as origin, lane() as connection:
        for _ in range(3):
            assert (await send(connection, origin)).status == 200
        assert origin.accepts == 3
        assert counts(connection) == {"opened": 3}
        await origin.all_closed()


async def test_a_connection_closed_while_idle_is_noticed_before_it_is_written_to():
    async with Origin([ok(close_after=0.01)]) as origin, lane() as connection:
        for _ in range(4):
            await send(connection, origin)
            await origin.all_closed()
        assert origin.accepts == 4
        assert counts(connection) == {"opened": 4, "discarded_stale": 3}


async def test_bytes_that_nobody_asked_for_make_a_connection_stale():
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with Origin() as origin, lane() as connection:
        await send(connection, origin)
        for task in origin.writers:
            task.write(late)
        while connection.stream.quiet:
            await asyncio.sleep(0.001)
        assert (await send(connection, origin)).status == 200
        assert counts(connection) == {"opened": 2, "discarded_stale": 1}


@pytest.mark.parametrize("broken", [Reply(b"", reset=True), Reply(b"", close=True)])
async def test_a_request_that_breaks_before_the_reply_is_sent_once_more(broken):
    async with Origin([ok(), broken, ok(b"second")]) as origin, lane() as connection:
        await send(connection, origin)
        assert (await send(connection, origin, body=b"again")).body == b"second"
        assert [request.body for request in origin.requests] == [b"x", b"again", b"again"]
        assert counts(connection) == {"opened": 2, "reused": 1, "failed": 1, "resent": 1}


async def test_it_is_sent_only_once_more():
    async with Origin([Reply(b"", reset=True)]) as origin, lane() as connection:
        with pytest.raises(ConnectionFailed) as caught:
            await send(connection, origin)
        assert caught.value.retryable
        assert len(origin.requests) == 2
        assert counts(connection) == {"opened": 2, "failed": 2, "resent": 1}
        assert connection.stream is None


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"HTTP/1.1 200 OK\r\nContent-Le", close=True),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", close=True),
    ],
)
async def test_a_reply_that_began_is_not_asked_for_again(reply):
    async with Origin([reply]) as origin, lane() as connection:
        with pytest.raises(ConnectionFailed) as caught:
            await send(connection, origin)
        assert caught.value.retryable
        assert len(origin.requests) == 1
        assert counts(connection) == {"opened": 1, "failed": 1}


async def test_what_is_no_http_is_a_failure_that_is_tried_again_later():
    async with Origin([Reply(b"SSH-2.0-x\r\n\r\n", close=True)]) as origin, lane() as connection:
        with pytest.raises(ConnectionFailed) as caught:
            await send(connection, origin)
        assert caught.value.retryable


async def test_a_timeout_is_not_sent_again_and_the_connection_is_closed():
    async with Origin([Reply(b"", hold=True)]) as origin, lane(read_timeout=0.05) as connection:
        with pytest.raises(Timeout):
            await send(connection, origin)
        assert len(origin.requests) == 1
        assert counts(connection) == {"opened": 1, "failed": 1}
        await origin.all_closed()


async def test_a_request_that_is_cancelled_leaves_no_connection():
    async with Origin([Reply(b"", hold=True)]) as origin, lane() as connection:
        sending = asyncio.ensure_future(send(connection, origin))
        while not origin.requests:
            await asyncio.sleep(0.001)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await origin.all_closed()


async def test_a_destination_that_refuses():
    async with Origin() as origin, lane() as connection:
        await origin.stop()
        with pytest.raises(ConnectionFailed) as caught:
            await send(connection, origin)
        assert caught.value.kind == "refused"
        assert counts(connection) == {"failed": 1}


async def test_another_endpoint_replaces_the_connection_and_another_path_does_not():
    async with Origin() as one, Origin() as two, lane() as connection:
        await send(connection, one, "/a")
        await send(connection, one, "/b?c")
        await send(connection, two, "/a")
        await one.all_closed()
        await send(connection, one, "/a")
        assert (one.accepts, two.accepts) == (2, 1)
        assert counts(connection) == {"opened": 3, "reused": 1, "replaced": 2}


async def test_a_large_body_and_a_large_reply():
    body = bytes(3_000_000)
    async with Origin([ok(body[:1_500_000])]) as origin, lane() as connection:
        for _ in range(2):
            assert (await send(connection, origin, body=body)).truncated
        assert len(origin.requests[1].body) == 3_000_000
        assert counts(connection) == {"opened": 1, "reused": 1}


async def test_a_reply_without_end_is_cut():
    async with Origin([ok(bytes(20_000_000))]) as origin, lane() as connection:
        assert (await send(connection, origin)).status == 200
        assert connection.stream is None
        await origin.all_closed()
