"""The table of raw requests: whole, byte by byte, at every split, behind a good request, and over sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest
from http1_rig import Answering, Rig, read_answers
from table import CASES

from headrace.core.clock import Clock
from headrace.core.http1.parse import RequestParser
from headrace.core.http1.server import HttpConnection, ServerSettings
from headrace.core.stream import Stream
from headrace.testing.clock import settle

GOOD = b"GET /good HTTP/1.1\r\nHost: a\r\n\r\n"
IDS = [case[0] for case in CASES]
SHORT = [case for case in CASES if len(case[2]) < 1000]


def methods_of(data: bytes) -> list[bytes]:
    return [data.split(b" ", 1)[0]]


async def play(pieces: list[bytes], *, half_close: bool, methods: list[bytes]) -> tuple[list[str], bool, Rig]:
    rig = Rig()
    for piece in pieces:
        rig.send(piece)
        await settle()
    if half_close:
        rig.pair.far.shutdown_write()
    await settle()
    return read_answers(rig.output, methods), rig.ended, rig


async def check(case, pieces, prefix=()):
    name, _, data, wanted, closes, why = case
    half_close = why.endswith("[half-close]")
    statuses, ended, rig = await play(pieces, half_close=half_close, methods=[b"GET"] * len(prefix) + methods_of(data))
    assert not rig.faults
    statuses = [status for status in statuses if status != "100"]
    for status in prefix:
        assert statuses.pop(0) == status
    pipelined = name in {"KA01", "KA12"}
    wanted = [status for status in wanted if status != "100"]
    if pipelined:
        assert statuses == wanted
    elif not statuses:
        assert "eof" in wanted if ended else "timeout" in wanted
    else:
        assert len(statuses) == 1, "a second answer"
        assert statuses[0] in wanted
    if closes is not None and not (half_close and not closes):
        assert ended == closes
    for method, target, _ in rig.handler.seen:
        assert target in {b"/", b"/good", b"/2"} or method == b"GET", "a smuggled request"
        assert target != b"/next"
    return statuses, ended


@pytest.mark.parametrize("case", CASES, ids=IDS)
async def test_whole(case):
    await check(case, [case[2]])


@pytest.mark.parametrize("case", CASES, ids=IDS)
async def test_byte_by_byte(case):
    data = case[2]
    if len(data) > 1000:  # long runs of one byte: their edges matter
        pieces = [data[i : i + 1] for i in range(300)] + [data[i : i + 997] for i in range(300, len(data), 997)]
    else:
        pieces = [data[i : i + 1] for i in range(len(data))]
    assert await check(case, pieces) == await check(case, [data])


@pytest.mark.parametrize("case", CASES, ids=IDS)
async def test_behind_a_good_request(case):
    await check(case, [GOOD + case[2]], prefix=("200",))
    await check(case, [GOOD, case[2]], prefix=("200",))


def outcome(pieces):
    """What a parser makes of the pieces: events with body pieces joined, and the fault."""
    parser = RequestParser(max_body=1 << 20)
    events = []
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, bytes) and events and isinstance(events[-1], bytes):
                events[-1] += event
            else:
                events.append(event)
    shown = [
        (e.method, e.target, e.version, e.raw, e.headers(), e.host, e.keep_alive) if hasattr(e, "raw") else e
        for e in events
    ]
    return shown, parser.error and (parser.error.status, str(parser.error)), parser.between


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_split(case):
    data = case[2]
    wanted = outcome([data])
    if len(data) > 1000:
        places = [*range(1, 300), *range(8100, 8300), len(data) - 40, *range(len(data) - 40, len(data))]
    else:
        places = range(1, len(data))
    for at in places:
        assert outcome([data[:at], data[at:]]) == wanted, at


@pytest.mark.parametrize("case", SHORT, ids=[case[0] for case in SHORT])
def test_parser_byte_by_byte(case):
    data = case[2]
    assert outcome([data[i : i + 1] for i in range(len(data))]) == outcome([data])


async def test_over_sockets():
    """Every row on a connection of its own, over real sockets, all at the same time."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    settings = ServerSettings(lingering_timeout=0.2)
    handlers = []

    async def one(case):
        name, _, data, wanted, closes, why = case
        ours, theirs = socket.socketpair()
        handler = Answering()
        handlers.append(handler)
        conn = HttpConnection(Stream(ours, loop, clock), handler, settings, clock)
        reader, writer = await asyncio.open_connection(sock=theirs)
        writer.write(data)
        if why.endswith("[half-close]"):
            writer.write_eof()
        received = b""
        statuses: list[str] = []
        ended = False
        expected = 2 if name in {"KA01", "KA12"} else 1
        try:
            async with asyncio.timeout(20):
                while True:
                    statuses = read_answers(received, methods_of(data))
                    final = [status for status in statuses if status != "100"]
                    if closes is not True and len(final) >= expected:
                        break
                    piece = await reader.read(65536)
                    if not piece:
                        ended = True
                        break
                    received += piece
        except TimeoutError:
            pass
        writer.close()
        conn.close_soon()
        final = [status for status in statuses if status != "100"]
        if expected == 2:
            return name, final == wanted
        good = final[0] in wanted if len(final) == 1 else not final and ("eof" if ended else "timeout") in wanted
        return name, good and not (closes is True and not ended)

    results = await asyncio.gather(*(one(case) for case in CASES))
    assert [name for name, good in results if not good] == []
