"""The table of raw requests (tests/core/http1/table.py) over the sockets of running processes."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path

import pytest
import wire_rig as rig

from headrace.testing.plugin import free_ports

_PATH = Path(__file__).parents[1] / "core" / "http1" / "table.py"
_SPEC = importlib.util.spec_from_file_location("raw_request_table", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_TABLE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TABLE)
CASES = _TABLE.CASES

PIPELINED = {"KA01", "KA12"}
ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")

GATEWAY = """\
error_log error.log crit;
events {}
http {
    access_log off;
    lingering_timeout 200ms;
    client_max_body_size 1m;
    server {
        listen 127.0.0.1:PORT1;
        location / { content_by_lua_block { ngx.req.read_body() ngx.print("ok", ngx.req.get_body_data() or "") } }
    }
    server {
        listen 127.0.0.1:PORT2;
        location / { return 200 "ok"; }
    }
}
"""

# Each body is a record, so that a request in order is answered with 200.
SOURCE = """\
<source>
  @type http
  port PORT
  bind 127.0.0.1
  body_size_limit 1m
  <parse>
    @type none
  </parse>
</source>
<match **>
  @type null
</match>
"""

# A GET is a health check to the http source, and its answer has no body; in HTTP/0.9 it has no head either.
SOURCE_DIFFERS = {"RL08", "RL39"}
# `return` reads no body: one that is broken where it came with its head is refused, one that is cut or too long later
# on is noticed behind the answer. The connection is then closed, and nothing that follows is answered.
UNREAD = {"CL22", "CH18", "CH23"}


def read_answers(data, methods):
    """Statuses of the answers in `data`, and whether the last one is whole."""
    statuses, at = [], 0
    while at < len(data):
        match = ANSWER.match(data, at)
        if match is None:
            if data.startswith(b"HTTP/1.1 ", at) and b"\r\n\r\n" not in data[at:]:
                return statuses, False
            return [*statuses, "0.9"], True
        at = match.end()
        status = match[1].decode()
        statuses.append(status)
        if status.startswith("1"):
            continue
        method = methods.pop(0) if methods else b"GET"
        if method == b"HEAD" or status in {"204", "304"}:
            continue
        length = re.search(rb"(?i)content-length: (\d+)", match[2])
        if length is not None:
            at += int(length[1])
            if at > len(data):
                return statuses, False
        elif b"chunked" in match[2]:
            end = data.find(b"\r\n0\r\n\r\n" if not data.startswith(b"0\r\n", at) else b"0\r\n\r\n", at)
            if end < 0:
                return statuses, False
            at = data.index(b"0\r\n\r\n", end) + 5
        else:
            return statuses, False  # the body ends with the connection
    return statuses, True


async def play(port, case):
    """(final statuses, whether the connection was closed, everything that came)."""
    name, _, data, _, closes, why = case
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received, ended = b"", False
    final: list[str] = []
    try:
        writer.write(data)
        if why.endswith("[half-close]"):
            writer.write_eof()
        async with asyncio.timeout(3 if "timeout" in case[3] else 20):
            while True:
                statuses, whole = read_answers(received, [data.split(b" ", 1)[0]])
                final = [status for status in statuses if status != "100"]
                if whole and closes is not True and len(final) >= (2 if name in PIPELINED else 1):
                    break
                try:
                    piece = await reader.read(65536)
                except ConnectionError:
                    piece = b""
                if not piece:
                    ended = True
                    break
                received += piece
    except TimeoutError:
        pass
    finally:
        writer.close()
    return final, ended, received


def judge(name, final, ended, wanted, closes):
    """What is wrong, or None."""
    wanted = [status for status in wanted if status != "100"]
    if name in PIPELINED and len(wanted) == 2:
        return None if final == wanted else f"{final}, not {wanted}"
    if not final:
        kind = "eof" if ended else "timeout"
        return None if kind in wanted else f"{kind}, not {wanted}"
    if len(final) > 1:
        return f"a second answer: {final}"
    if final[0] not in wanted:
        return f"{final[0]}, not {wanted}"
    return "left open" if closes is True and not ended else None


async def run_table(port, differs):
    gate = asyncio.Semaphore(16)

    async def one(case):
        name, _, data, wanted, closes, why = case
        wanted, closes = differs(name, wanted, closes)
        async with gate:
            final, ended, received = await play(port, (name, "", data, wanted, closes, why))
        wrong = judge(name, final, ended, wanted, closes)
        return f"{name}: {wrong} ({received[:80]!r})" if wrong else None

    return [wrong for wrong in await asyncio.gather(*map(one, CASES)) if wrong]


@pytest.fixture(scope="module")
def ports(shared):
    """Of the location that reads the body, of the one that does not, of the http source."""
    lua, plain, source = free_ports(3)
    (shared.prefix / "nginx.conf").write_text(GATEWAY.replace("PORT1", str(lua)).replace("PORT2", str(plain)))
    (shared.prefix / "fluent.conf").write_text(SOURCE.replace("PORT", str(source)))
    process = shared("headrace", "run", shared.prefix / "nginx.conf", shared.prefix / "fluent.conf")
    for port in (lua, plain, source):
        rig.wait_listens(port, process)
    return lua, plain, source


def test_the_table_is_whole():
    assert len(CASES) == 111


async def test_a_handler_that_reads_the_body(ports):
    assert await run_table(ports[0], lambda _name, wanted, closes: (wanted, closes)) == []


async def test_a_location_that_does_not_read_it(ports):
    def differs(name, wanted, closes):
        return ([*wanted, "200"], True) if name in UNREAD else (wanted, closes)

    assert await run_table(ports[1], differs) == []


async def test_the_http_source(ports):
    def differs(name, wanted, closes):
        return ([*wanted, "eof"], closes) if name in SOURCE_DIFFERS else (wanted, closes)

    assert await run_table(ports[2], differs) == []
