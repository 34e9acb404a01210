"""receiveuntil: the stream is one, however it is cut and however the readers are mixed."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lua_rig import LuaGateway, Origin, sending

STREAM = b"-----abc--abc"


def cut(stream: bytes, after: bytes = b""):
    """A script that cuts the stream for connection n behind its n-th byte (0: whole)."""

    async def script(_origin, _reader, writer, number):
        at = number - 1
        writer.write(stream[:at])
        await writer.drain()
        await asyncio.sleep(0.002)
        writer.write(stream[at:] + after)

    return script


async def over_all_cuts(gateway, origin, stream, code, after=b""):
    server = await origin(cut(stream, after))
    await gateway.content(f"""
        for _ = 1, {len(stream) + 1} do
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            local r = sock:receiveuntil("--abc")
            {code}
            sock:close()
        end
    """)
    lines = (await gateway.get()).text.splitlines()
    assert len(lines) == len(stream) + 1, gateway.log()
    assert len(set(lines)) == 1, lines
    return lines[0]


async def test_sized_then_receive_then_whole(gateway, origin):
    """O03."""
    line = await over_all_cuts(gateway, origin, STREAM, 'ngx.say(r(2), "|", sock:receive(4), "|", r())')
    assert line == "--|---a|bc"


async def test_whole_only(gateway, origin):
    line = await over_all_cuts(gateway, origin, STREAM, 'ngx.say(r(), "|", r(), "|", r())')
    assert line == "---||nilclosed"


async def test_end_within_the_pattern(gateway, origin):
    line = await over_all_cuts(gateway, origin, b"xy--ab", "ngx.say(r())")
    assert line == "nilclosedxy--ab"


async def test_the_example_of_the_manual(gateway, origin):
    stream = b"hello, world! -agentzh\r\n--abcedhb blah blah"
    server = await origin(sending(stream))
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        local reader = sock:receiveuntil("\\r\\n--abcedhb")
        while true do
            local data, err, partial = reader(4)
            if not data then ngx.say(err, partial) break end
            ngx.print("[", data, "]")
        end
        ngx.say(reader(4))
        ngx.say(reader(40))
    """)
    text = (await gateway.get()).text
    assert text == "[hell][o, w][orld][! -a][gent][zh]nilnil\n bla\nnilclosedh blah\n"


async def test_inclusive(gateway, origin):
    server = await origin(sending(b"hello world _END_ blah"))
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        local reader = sock:receiveuntil("_END_", {{ inclusive = true }})
        ngx.say(reader()) ngx.say(reader())
    """)
    assert (await gateway.get()).text == "hello world _END_\nnilclosed blah\n"


async def test_timeout_within_the_pattern_loses_nothing(gateway, origin):
    async def script(_origin, reader, writer, _number):
        writer.write(b"ab--a")
        await reader.readexactly(1)
        writer.write(b"bc")
        await reader.read()

    server = await origin(script)
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        sock:settimeout(30)
        assert(sock:connect("{server.address}"))
        local r = sock:receiveuntil("--abc")
        ngx.say(r())
        sock:send("x")
        ngx.say(sock:receive(2))
    """)
    assert (await gateway.get()).text == "niltimeoutab--a\nbc\n"


def expected(stream: bytes, pattern: bytes, calls: list[int | None]) -> list[bytes | None]:
    """What the calls of one reader give, by the rules of the manual; None: the boundary (or the end)."""
    out: list[bytes | None] = []
    ended = False
    for size in calls:
        if ended:
            out.append(None)
            ended = False
            continue
        at = stream.find(pattern)
        if at < 0:
            break  # what is given at the end depends on how much has arrived
        if size is None:
            out.append(stream[:at])
            stream = stream[at + len(pattern) :]
        elif at == 0 or at < size:
            out.append(stream[:at])
            stream = stream[at + len(pattern) :]
            ended = True
        else:
            out.append(stream[:size])
            stream = stream[size:]
    return out


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stream=st.text("ab-", min_size=0, max_size=24),
    pattern=st.text("ab-", min_size=1, max_size=4),
    calls=st.lists(st.one_of(st.none(), st.integers(1, 6)), min_size=1, max_size=8),
    at=st.integers(0, 24),
)
def test_one_stream(tmp_path_factory, stream, pattern, calls, at):
    data = stream.encode() + pattern.encode()
    wanted = expected(data, pattern.encode(), calls)

    async def check():
        folder = tmp_path_factory.mktemp("until")
        server = Origin(str(folder / "o.sock"), sending(data[:at], data[at:]))
        await server.start()
        gateway = LuaGateway(folder)
        steps = "".join(f"show(r({'' if size is None else size}))\n" for size in calls[: len(wanted)])
        await gateway.content(f"""
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            local r = sock:receiveuntil("{pattern}")
            local function show(data) ngx.say(data == nil and "nil" or "[" .. data .. "]") end
            {steps}
        """)
        answer = await gateway.get()
        await gateway.stop()
        await server.stop()
        return answer.text.splitlines()

    assert asyncio.run(check()) == ["nil" if item is None else f"[{item.decode()}]" for item in wanted]


@pytest.mark.parametrize("size", [1, 3, 4096, 5000])
async def test_big_bodies(gateway, origin, size):
    body = bytes(range(256)) * 400
    server = await origin(sending(body + b"\r\n--x--", close=True))
    await gateway.content(f"""
        local sock = ngx.socket.tcp()
        assert(sock:connect("{server.address}"))
        local r = sock:receiveuntil("\\r\\n--x--")
        local parts = {{}}
        while true do
            local data, err = r({size})
            if not data then assert(not err, err) break end
            parts[#parts + 1] = data
        end
        ngx.print(ngx.md5(table.concat(parts)))
    """)
    assert (await gateway.get()).text == hashlib.md5(body).hexdigest()
