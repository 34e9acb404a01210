"""O03: receive, receiveany and receiveuntil, inclusive or not, read one stream: a model says what each call gives."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lua_rig import LuaGateway, Origin, sending

CALLS = st.one_of(
    st.tuples(st.just("size"), st.integers(0, 7)),
    st.tuples(st.just("line"), st.just(0)),
    st.tuples(st.just("any"), st.integers(1, 7)),
    st.tuples(st.sampled_from(["until", "inclusive"]), st.sampled_from(["a", "ab", "aab", "-a-a", "\\n"])),
)
PROGRAMS = {
    "size": "sock:receive({})",
    "line": "sock:receive('*l')",
    "any": "sock:receiveany({})",
    "until": "sock:receiveuntil('{}')()",
    "inclusive": "sock:receiveuntil('{}', {{inclusive = true}})()",
}


def model(stream: bytes, kind: str, value: int | str, given: bytes) -> tuple[bytes, bytes] | None:
    """What the call gives and what is left; None when the stream ends first. `given`: how much came is not ours to say."""
    if kind == "size":
        return (stream[:value], stream[value:]) if len(stream) >= value else None
    if kind == "any":
        fits = 0 < len(given) <= value and stream.startswith(given)
        assert fits or not stream, (given, value, stream)
        return (given, stream[len(given) :]) if stream else None
    mark = b"\n" if kind == "line" else value.replace("\\n", "\n").encode()
    at = stream.find(mark)
    if at < 0:
        return None
    data = stream[: at + len(mark)] if kind == "inclusive" else stream[:at]
    return (data.replace(b"\r", b"") if kind == "line" else data), stream[at + len(mark) :]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text("ab-\n\r", max_size=30),
    st.lists(CALLS, min_size=1, max_size=8),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_calls_in_any_order(tmp_path_factory, text, calls, cuts):
    stream = text.encode()
    places = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(places) if b > a]

    async def check() -> list[str]:
        folder = tmp_path_factory.mktemp("reads")
        server = Origin(str(folder / "o.sock"), sending(*pieces))
        await server.start()
        gateway = LuaGateway(folder)
        steps = "".join(f"show({PROGRAMS[kind].format(value)})\n" for kind, value in calls)
        await gateway.content(f"""
            local sock = ngx.socket.tcp()
            assert(sock:connect("{server.address}"))
            local function hex(text) return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end
            local function show(data, why, part)
                ngx.say(data and "+" .. hex(data) or why .. " " .. hex(part or ""))
                if not data then ngx.exit(200) end
            end
            {steps}
        """)
        answer = await gateway.get()
        await gateway.stop()
        await server.stop()
        return answer.text.splitlines()

    lines = asyncio.run(check())
    for (kind, value), line in zip(calls, lines, strict=False):
        given = bytes.fromhex(line[1:]) if line.startswith("+") else b""
        wanted = model(stream, kind, value, given)
        if wanted is None:
            words, _, part = line.partition(" ")
            assert words == "closed"
            left = bytes.fromhex(part)
            assert left == (stream.replace(b"\r", b"") if kind == "line" else stream)
            return
        assert given == wanted[0]
        assert line.startswith("+")
        stream = wanted[1]
    assert len(lines) == len(calls)
