"""A scripted HTTP origin for tests: raw sockets by asyncio streams, none of headrace's own code.

    async with Origin([ok(), ok(b"x", close=True), Reply(b"", reset=True)]) as origin:
        ...                            # talk to origin.port
        assert origin.accepts == 1

A script is a list of replies, of which the last one repeats, or a function of the request. What came
in is kept in `requests`; `accepts`, `open` and `peak_open` count connections, `writers` are those open.
TLS with an ssl context.
`tunnel=True` makes it a proxy that answers CONNECT and relays bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from types import TracebackType


@dataclass
class Received:
    """One request as it came in. connection: counts from 1 in order of accepting."""

    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The first value of a header field."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Reply:
    """What is written for one request, verbatim.

    delay: seconds before it is written. close: close after it. close_after: close so many seconds
    later unless another request comes first. reset: close with RST. hold: write nothing more and keep
    the connection open.
    """

    data: bytes
    delay: float = 0.0
    close: bool = False
    close_after: float | None = None
    reset: bool = False
    hold: bool = False


def ok(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    headers: Sequence[str] = (),
    chunked: bool = False,
    close: bool = False,
    close_after: float | None = None,
) -> Reply:
    """A well-formed reply."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        pieces = [body[at : at + 5] for at in range(0, len(body), 5)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX-Sum: 1\r\n\r\n"
    elif not status.startswith(("204", "304")):
        lines.append(f"Content-Length: {len(body)}")
    if close:
        lines.append("Connection: close")
    return Reply("\r\n".join([*lines, "", ""]).encode() + body, close=close, close_after=close_after)


Script = Sequence[Reply] | Callable[[Received], Reply]


@dataclass
class Origin:
    """One listening origin; an asynchronous context manager."""

    script: Script = field(default_factory=lambda: [ok()])
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    tunnel: bool = False
    requests: list[Received] = field(default_factory=list)
    accepts: int = 0
    open: int = 0
    peak_open: int = 0
    port: int = 0
    on_request: Callable[[Received], Any] | None = None

    async def __aenter__(self) -> Origin:
        self._answered = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = asyncio.Event()
        self.writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._connection, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def all_closed(self) -> None:
        """Wait until no connection is open. Raises TimeoutError after ten seconds."""
        async with asyncio.timeout(10.0):
            while self.open:
                self._closed.clear()
                await self._closed.wait()

    def url(self, path: str = "") -> str:
        """The URL of a path of this origin."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}{path}"

    def _next(self, request: Received) -> Reply:
        if callable(self.script):
            return self.script(request)
        reply = self.script[min(self._answered, len(self.script) - 1)]
        self._answered += 1
        return reply

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepts += 1
        number = self.accepts
        self.open += 1
        self.peak_open = max(self.peak_open, self.open)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer, number)
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()
            self.writers.discard(writer)
            self.open -= 1
            self._closed.set()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        idle: float | None = None
        while True:
            try:
                async with asyncio.timeout(idle):
                    request = await _read_request(reader, writer, number)
            except TimeoutError:
                return
            if request is None:
                return
            self.requests.append(request)
            if self.on_request is not None:
                self.on_request(request)
            if self.tunnel and request.method == "CONNECT":
                await _relay(request.target, reader, writer)
                return
            reply = self._next(request)
            if reply.delay:
                await asyncio.sleep(reply.delay)
            writer.write(reply.data)
            await writer.drain()
            if reply.hold:
                await reader.read()
                return
            if reply.reset:
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            if reply.close:
                return
            idle = reply.close_after


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    line, *fields = head[:-4].decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in fields)]
    request = Received(method, target, version, headers, b"", connection)
    if (request.header("expect") or "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if (request.header("transfer-encoding") or "").lower() == "chunked":
        pieces = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        while (await reader.readline()).strip():
            pass
        request.body = b"".join(pieces)
    else:
        request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


async def _relay(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = target.rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    try:
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
    finally:
        far_writer.close()
