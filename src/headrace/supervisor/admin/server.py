"""The worker's side of the admin socket: HTTP/1.0, one GET, one answer, close.

    GET /stats                      figures, JSON
    GET /tap?glob=G&side=S          a feed of live events, until the client goes away

So `curl --unix-socket ...` works too. It is no data path: few clients at once, each with a deadline. The client of a
feed that takes nothing for STALLED seconds is cut; until then the feed itself decides what it leaves out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from headrace.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.supervisor.program import Feed

    Open = Callable[[Mapping[str, str]], Feed]

CLIENTS: Final = 16
"""At most so many clients at once; others are turned away."""

DEADLINE: Final = 2.0
"""Seconds a client may take for one request and its answer."""

STALLED: Final = 60.0
"""Seconds after which the client of a feed that reads nothing is cut."""

_REQUEST_MAX: Final = 4096
_WAITING: Final = 1 << 16  # bytes of a feed that the transport keeps before we wait for the client


class AdminServer:
    """Serves what `stats()` returns, and the feeds that `tap` opens."""

    def __init__(self, stats: Callable[[], dict[str, Any]], tap: Open | None = None) -> None:
        self._stats = stats
        self._tap = tap
        self._server: asyncio.Server | None = None
        self._path: str | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen on `path`; OSError when that is not possible."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._server = await asyncio.start_unix_server(self._accept, path, limit=_REQUEST_MAX, backlog=16)
        os.chmod(path, 0o600)
        self._path = path

    async def stop(self) -> None:
        """Close, and remove the socket."""
        if self._server is not None:
            self._server.close()
        clients = list(self._clients)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                head = await reader.readuntil(b"\r\n\r\n")
                answer = self._answer(head)
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
                    return
            try:
                await _feed(answer, reader, writer)
            finally:
                answer.close()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    def _answer(self, head: bytes) -> bytes | Feed:
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if method != b"GET":
            return _response(405, "Method Not Allowed", {"error": "only GET"})
        try:
            if path == b"/tap" and self._tap is not None:
                return self._tap(dict(parse_qsl(query.decode("utf-8", "surrogateescape"))))
            if path not in {b"/stats", b"/"}:
                return _response(404, "Not Found", {"error": "there are /stats and /tap"})
            return _response(200, "OK", self._stats())
        except Error as error:
            return _response(404, "Not Found", {"error": error.message, "kind": error.kind})
        except Exception as error:  # noqa: BLE001 - a fault in one room's figures must not end the worker
            return _response(500, "Internal Server Error", {"error": f"{type(error).__name__}: {error}"})


async def _feed(feed: Feed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a feed until its client closes, or reads nothing any more."""
    writer.transport.set_write_buffer_limits(high=_WAITING)
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/x-msgpack\r\n\r\n")
    gone = asyncio.ensure_future(_end(reader))
    try:
        while not gone.done():
            piece = asyncio.ensure_future(feed.next())
            await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                piece.cancel()
                break
            writer.write(piece.result())
            async with asyncio.timeout(STALLED):
                await writer.drain()
    finally:
        gone.cancel()
        writer.transport.abort()


async def _end(reader: asyncio.StreamReader) -> None:
    """Wait until a client closes its side."""
    with contextlib.suppress(OSError):
        while await reader.read(_REQUEST_MAX):
            pass


def _response(status: int, reason: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body, default=_plain).encode() + b"\n"
    head = f"HTTP/1.0 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
