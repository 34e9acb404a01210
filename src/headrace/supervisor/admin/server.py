"""The worker's side of the admin socket: HTTP/1.0, `GET /stats`, one answer, close.

So `curl --unix-socket ...` works too. It is no data path: few clients at once, each with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from typing import Any, Final

CLIENTS: Final = 8
"""At most so many clients at once; others are turned away."""

DEADLINE: Final = 2.0
"""Seconds one client may take."""

_REQUEST_MAX: Final = 4096


class AdminServer:
    """Serves what `stats()` returns."""

    def __init__(self, stats: Callable[[], dict[str, Any]]) -> None:
        self._stats = stats
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
        for task in self._clients:
            task.cancel()
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
                writer.write(self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response(405, "Method Not Allowed", {"error": "only GET"})
        if path not in {b"/stats", b"/"}:
            return _response(404, "Not Found", {"error": "there is /stats"})
        try:
            return _response(200, "OK", self._stats())
        except Exception as error:  # noqa: BLE001 - a fault in one room's figures must not end the worker
            return _response(500, "Internal Server Error", {"error": f"{type(error).__name__}: {error}"})


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
