"""A listener for monitoring: whichever worker takes the connection asks the others and answers for all.

    GET /metrics             Prometheus, or OpenMetrics where the client asks for it
    GET /_headrace/pools     pools of connections of all workers, JSON
    GET /_headrace/stats     all figures of all workers, JSON

One request a connection, few at once, each with a deadline. It tells figures and names, never a record.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from headrace.supervisor.admin.exposition import OPEN, PLAIN, current, pools_of, render

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

CLIENTS: Final = 16
DEADLINE: Final = 5.0
"""Seconds of one request and its answer."""
PATIENCE: Final = 1.0
"""Seconds that another worker may take."""
_REQUEST_MAX: Final = 8192
_FIGURES_MAX: Final = 1 << 26
_JSON: Final = b"application/json"


class Web:
    """Answers for the worker whose figures `stats()` returns and for those whose sockets are in `folder`."""

    def __init__(self, sock: socket.socket, folder: Path | None, own: str, stats: Callable[[], dict[str, Any]]) -> None:
        self._sock = sock
        self._folder = folder
        self._own = own
        self._stats = stats
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.start_server(self._accept, sock=self._sock.dup(), limit=_REQUEST_MAX)

    async def stop(self) -> None:
        """Accept none any more; what is being answered is answered."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._clients:
            await asyncio.wait(list(self._clients), timeout=PATIENCE)
        for task in self._clients:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _page(405, b"Method Not Allowed", b"text/plain", b"only GET\n")
        if path == b"/metrics":
            wants = b"application/openmetrics-text" in head.lower()
            body = render(await self._everybody(), openmetrics=wants)
            kind = OPEN if wants else PLAIN
        elif path in {b"/_headrace/pools", b"/_headrace/stats"}:
            workers = await self._everybody()
            told: Any = workers
            if path == b"/_headrace/pools":
                told = [{"worker": one["worker"], **pool} for one in current(workers) for pool in pools_of(one)]
            body = json.dumps(told, indent=1, default=str).encode("utf-8", "replace") + b"\n"
            kind = _JSON
        else:
            text = b"there are /metrics, /_headrace/pools and /_headrace/stats\n"
            return _page(404, b"Not Found", b"text/plain", text)
        page = _page(200, b"OK", kind, body)
        return page if method == b"GET" else page[: -len(body)]

    async def _everybody(self) -> list[dict[str, Any]]:
        """The figures of all workers; of one that does not answer, its number."""
        paths = sorted(self._folder.glob("worker-*.sock")) if self._folder is not None else []
        others = [path for path in paths if path.name != self._own]
        return [self._stats(), *await asyncio.gather(*map(_ask, others))]


async def _ask(path: Path) -> dict[str, Any]:
    _, index, pid = path.stem.split("-")
    with contextlib.suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_FIGURES_MAX)
            try:
                writer.write(b"GET /stats HTTP/1.0\r\n\r\n")
                _head, _, body = (await reader.read(_FIGURES_MAX)).partition(b"\r\n\r\n")
                while piece := await reader.read(_FIGURES_MAX):
                    body += piece
                figures = json.loads(body)
                if isinstance(figures, dict) and "worker" in figures:
                    return figures
            finally:
                writer.transport.abort()
    return {"worker": int(index), "pid": int(pid), "state": "does not answer"}


def _page(status: int, reason: bytes, kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, reason, kind, len(body)) + body
