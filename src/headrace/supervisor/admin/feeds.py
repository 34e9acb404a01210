"""The other side of a feed: the feeds of all workers of a master, put together as they come. No loop.

Workers that a reload or a restart brings are joined; a worker that ends leaves the others going.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from headrace.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LOOK: Final = 0.5
"""Seconds between two looks for workers that are new."""
PATIENCE: Final = 2.0
"""Seconds that a worker may take to accept."""
_PIECE: Final = 1 << 18


class _Worker:
    """One worker's feed. head: what came before the feed itself, until it is complete."""

    def __init__(self, path: Path, request: bytes) -> None:
        self.name = path.name
        self.index = int(path.stem.split("-")[1])
        self.head: bytes | None = b""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(PATIENCE)
            self.sock.connect(str(path))
            self.sock.sendall(request)
            self.sock.setblocking(False)
        except OSError:
            self.sock.close()
            raise


class Feeds:
    """The feeds of the workers below a master's run folder."""

    def __init__(self, folder: Path, query: Mapping[str, str]) -> None:
        self._folder = folder
        text = urlencode({key: value for key, value in query.items() if value}, errors="surrogateescape")
        self._request = f"GET /tap?{text} HTTP/1.0\r\n\r\n".encode()
        self._selector = selectors.DefaultSelector()
        self._known: set[str] = set()
        self._looked = 0.0
        self._refusals: dict[str, str] = {}

    @property
    def workers(self) -> int:
        """Workers that are connected."""
        return len(self._selector.get_map())

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK and self._known:
            return
        self._looked = now
        found = {path.name: path for path in self._folder.glob("worker-*.sock")}
        self._known &= found.keys()
        for name in sorted(found.keys() - self._known):
            try:
                worker = _Worker(found[name], self._request)
            except OSError as error:
                self._refusals[name] = str(error)
                continue
            self._known.add(name)
            self._selector.register(worker.sock, selectors.EVENT_READ, worker)

    def read(self, timeout: float) -> Iterator[tuple[str, int, bytes]]:
        """Yield (worker's socket, worker's number, bytes) of what has come; waits `timeout` seconds at the most.

        Raises Error when every worker refuses, or no worker is left.
        """
        self._look()
        if not self.workers:
            if not self._folder.exists():
                raise Error("headrace has ended", kind="not_running")
            if self._refusals:
                raise Error(next(iter(self._refusals.values())), kind="refused")
        if not self.workers:
            time.sleep(min(timeout, LOOK))
            return
        for key, _events in self._selector.select(timeout):
            worker: _Worker = key.data
            try:
                data = worker.sock.recv(_PIECE)
            except OSError:
                data = b""
            if not data:
                self._leave(worker)
                continue
            if worker.head is not None:
                data = self._begin(worker, data)
            if data:
                yield worker.name, worker.index, data

    def _begin(self, worker: _Worker, data: bytes) -> bytes:
        """Take the head of an answer off; what is left is the feed's."""
        worker.head = (worker.head or b"") + data
        head, end, rest = worker.head.partition(b"\r\n\r\n")
        if not end:
            return b""
        if head.split(b" ", 2)[1:2] == [b"200"]:
            worker.head = None
            self._refusals.pop(worker.name, None)
            return rest
        try:
            facts = json.loads(rest)
        except ValueError:
            return b""  # the rest is on its way
        self._refusals[worker.name] = str(facts.get("error", "refused"))
        if facts.get("kind") == "not_running":  # it is starting: asked again at the next look
            self._known.discard(worker.name)
            self._refusals.pop(worker.name)
        self._leave(worker)
        return b""

    def _leave(self, worker: _Worker) -> None:
        self._selector.unregister(worker.sock)
        worker.sock.close()

    def close(self) -> None:
        """Go away from all workers."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr] # they are sockets
        self._selector.close()
