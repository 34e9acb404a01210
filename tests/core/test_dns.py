"""The resolver: messages without a network, and a scripted server for what happens between."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.dns import AAAA, Answer, NotResolved, Resolver, parse, question
from headrace.core.dns import A as V4


def answer(asked: bytes, *records: tuple[int, bytes], code: int = 0, ttl: int = 60, cut: bool = False) -> bytes:
    flags = 0x8180 | code | (0x0200 if cut else 0)
    head = asked[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0)
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data for kind, data in records)
    return head + asked[12:] + body


def test_a_question_and_its_answers():
    asked = question(0x1234, "a.example", V4)
    assert asked == b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01"
    assert parse(answer(asked, (V4, bytes(4)), (5, b"\xc0\x0c")), asked, V4) == Answer(("0.0.0.0",), 60, 0, False)
    six = question(1, "a.example", AAAA)
    assert parse(answer(six, (AAAA, bytes(15) + b"\1")), six, AAAA) == Answer(("::1",), 60, 0, False)
    assert parse(answer(asked, code=3), asked, V4) == Answer((), 0, 3, False)
    assert parse(answer(question(0x1235, "a.example", V4)), asked, V4) is None
    assert parse(answer(question(0x1234, "b.example", V4), (V4, bytes(4))), asked, V4) is None
    assert parse(asked, asked, V4) is None


@pytest.mark.parametrize("name", ["a..b", "a" * 64, ".".join(["a" * 60] * 5)])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match=name[:4]):
        question(1, name, V4)


@given(st.binary(max_size=80), st.integers(0, 60))
def test_broken_answers_are_none(noise, at):
    asked = question(7, "a.example", V4)
    whole = answer(asked, (V4, bytes(4)))
    assert parse(noise, asked, V4) is None or noise[2] & 0x80
    parse(whole[:at] + noise, asked, V4)


class Server:
    """Answers by name: a list of addresses, the name that it is an alias of, or a code. asked: the names, in order."""

    def __init__(self, names: dict[bytes, list[str] | bytes | int]) -> None:
        self.names = names
        self.asked: list[bytes] = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.setblocking(False)
        self.address = self.sock.getsockname()
        asyncio.get_running_loop().add_reader(self.sock.fileno(), self.read)

    def read(self) -> None:
        asked, sender = self.sock.recvfrom(65536)
        name = asked[13 : 13 + asked[12]]
        self.asked.append(name)
        self.sock.sendto(b"noise", sender)
        found = self.names[name]
        if isinstance(found, int):
            self.sock.sendto(answer(asked, code=found), sender)
        elif isinstance(found, bytes):
            self.sock.sendto(answer(asked, (5, bytes((len(found),)) + found + b"\0")), sender)
        else:
            records = [(V4, socket.inet_aton(text)) for text in found]
            self.sock.sendto(answer(asked, *records, ttl=0 if name == b"short" else 60), sender)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.sock.fileno())
        self.sock.close()


async def test_names_are_asked_for_once_and_remembered():
    server = Server({b"a": ["127.0.0.1", "127.0.0.2"], b"short": ["127.0.0.3"], b"none": 3, b"broken": 2})
    resolver = Resolver([server.address], kinds=[V4])
    both = await asyncio.gather(resolver.resolve("a", 10), resolver.resolve("A.", 10))
    assert both == [("127.0.0.1", "127.0.0.2")] * 2
    await resolver.resolve("a", 10)
    assert server.asked == [b"a"]
    await resolver.resolve("short", 10)
    await resolver.resolve("short", 10)
    assert server.asked == [b"a", b"short", b"short"]
    for name, code in (("none", 3), ("broken", 2), ("a..b", 3)):
        with pytest.raises(NotResolved) as caught:
            await resolver.resolve(name, 10)
        assert caught.value.code == code
    server.close()


async def test_aliases_are_followed():
    server = Server({b"a": b"b", b"b": b"c", b"c": ["127.0.0.1"], b"x": b"y", b"y": b"x", b"bad": b"none", b"none": 3})
    resolver = Resolver([server.address], kinds=[V4])
    assert await resolver.resolve("a", 10) == ("127.0.0.1",)
    assert await resolver.resolve("a", 10) == await resolver.resolve("b", 10) == ("127.0.0.1",)
    assert server.asked == [b"a", b"b", b"c"]
    for name in ("x", "y", "bad"):
        with pytest.raises(NotResolved, match="Host not found"):
            await resolver.resolve(name, 10)
    assert len(server.asked) < 50
    server.close()


async def test_each_server_refuses_once():
    refusing = [Server({b"a": 2}) for _ in range(2)]
    with pytest.raises(NotResolved, match="Server failure"):
        await Resolver([server.address for server in refusing], kinds=[V4]).resolve("a", 10)
    assert [server.asked for server in refusing] == [[b"a"], [b"a"]]
    for server in refusing:
        server.close()


def test_names_of_aliases():
    asked = question(1, "a.example", V4)
    compressed = parse(answer(asked, (5, b"\x01b\xc0\x0e")), asked, V4)
    assert compressed == Answer((), 60, 0, False, "b.example")
    endless = answer(asked, (5, b"\xc0" + bytes((12 + len(asked) - 12 + 12,))))
    assert parse(endless, asked, V4) is None


async def test_a_server_that_is_not_there_leaves_it_to_the_next():
    server = Server({b"a": ["127.0.0.1"]})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = unused.getsockname()
    resolver = Resolver([nobody, server.address], kinds=[V4])
    assert await resolver.resolve("a", 10) == ("127.0.0.1",)
    server.close()


async def test_no_answer_in_time():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(NotResolved) as caught:
            await Resolver([silent.getsockname()], kinds=[V4]).resolve("a", 0.01)
    assert str(caught.value) == "a could not be resolved (110: Operation timed out)"
