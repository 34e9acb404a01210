"""Upstreams of a test: what answers at an address. Each is a coroutine that owns its end of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""One connection, until it returns."""

LIMIT = 1 << 26
"""Bytes of a head, or of a chunk's size line, that are read at most."""


@dataclass
class Message:
    """A request or an answer. start: the parts of its first line. headers: in their order."""

    start: tuple[str, ...]
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first value of a header field."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Reply:
    """What an HTTP upstream answers. close: it ends the connection then."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str = b""
    close: bool = False


def talking(answer: Callable[[bytes], bytes | str | None]) -> Peer:
    """A peer that answers each piece of data as it comes; None ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            said = answer(data)
            if said is None:
                return
            writer.write(_bytes(said))

    return serve


def http(answer: Callable[[Message], Reply]) -> Peer:
    """An HTTP/1.1 server; the message's start is (method, target, version)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_message(reader)) is not None:
            reply = answer(request)
            body = _bytes(reply.body)
            fields = {"Content-Length": str(len(body)), **reply.headers}
            if reply.close:
                fields["Connection"] = "close"
            lines = [f"HTTP/1.1 {reply.status} Said", *(f"{name}: {value}" for name, value in fields.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            if reply.close:
                return

    return serve


async def read_message(reader: asyncio.StreamReader, *, to: str | None = None) -> Message | None:
    """One message; None at the end of the connection. to: the method of the request that an answer is to."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    pairs = [line.partition(":") for line in lines]
    message = Message(tuple(first.split(" ", 2)), [(name, value.strip()) for name, _, value in pairs])
    message.body = await _body(reader, message, to)
    return message


async def _body(reader: asyncio.StreamReader, message: Message, to: str | None) -> bytes:
    if to == "HEAD" or (to is not None and message.start[1] in {"204", "304"}):
        return b""
    if "chunked" in (message.header("Transfer-Encoding") or ""):
        data = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            data += (await reader.readexactly(size + 2))[:-2]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return data
    length = message.header("Content-Length")
    if length is not None:
        return await reader.readexactly(int(length))
    return await reader.read() if to is not None else b""


def _bytes(data: bytes | str) -> bytes:
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
