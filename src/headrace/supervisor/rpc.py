"""The calls of <system> rpc_endpoint, answered by the master (https://docs.fluentd.org/deployment/rpc).

Each is a signal by another way: the master sends it to itself, so that one place decides what a signal means.
No loop, no thread: the listening socket and its few connections are descriptors of the master's own wait. The
socket is one of the program's listeners, so it survives reloads and restarts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.core.http1.events import RequestHead
from headrace.core.http1.frame import REASONS
from headrace.core.http1.parse import RequestParser

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from headrace.supervisor.events import Events, Timer
    from headrace.supervisor.log import EngineLog

_MOST: Final = 16
"""Connections at a time; more wait to be accepted."""
_PATIENCE: Final = 10.0
"""Seconds that a client has for its request."""
_LARGEST: Final = 1 << 16
"""Bytes of a request."""

_CALLS: Final[Mapping[str, tuple[int, ...]]] = {
    "/api/processes.interruptWorkers": (signal.SIGINT,),
    "/api/processes.killWorkers": (signal.SIGTERM,),
    "/api/processes.flushBuffersAndKillWorkers": (signal.SIGUSR1, signal.SIGTERM),
    "/api/processes.zeroDowntimeRestart": (signal.SIGUSR2,),
    "/api/plugins.flushBuffers": (signal.SIGUSR1,),
    "/api/config.reload": (signal.SIGHUP,),
    "/api/config.gracefulReload": (signal.SIGHUP,),
}
"""Path -> the signals. Both reloads are the same here: new workers take over, and no event is lost."""
DUMP: Final = "/api/config.dump"
GET_DUMP: Final = "/api/config.getDump"


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """key: of the listener. conf: the configuration as text, without secrets. shows: whether getDump is allowed."""

    key: str
    conf: str
    shows: bool = False


class RpcServer:
    """Answers while the master lives. send: how a signal is sent to the master."""

    def __init__(
        self,
        events: Events,
        log: EngineLog,
        send: Callable[[int], object] = lambda number: os.kill(os.getpid(), number),
    ) -> None:
        self.log = log
        self._events = events
        self._send = send
        self._settings: RpcSettings | None = None
        self._sock: socket.socket | None = None
        self._watching = False
        self._clients: set[_Client] = set()

    def serve(self, settings: RpcSettings | None, sockets: Mapping[str, socket.socket]) -> None:
        """Answer on the socket of a program from now on, and on that of the last one no more."""
        self._settings = settings
        sock = sockets.get(settings.key) if settings is not None else None
        if sock is not self._sock:
            self._pause()
            self._sock = sock
        self._resume()

    def close(self) -> None:
        """Answer nothing more; the listener is its owner's to close."""
        self._pause()
        self._sock = None
        for client in list(self._clients):
            client.close()

    def leave(self) -> None:
        """In a fresh worker, where nothing is watched: close what is the master's own."""
        for client in self._clients:
            client.sock.close()

    def _pause(self) -> None:
        if self._watching and self._sock is not None:
            self._watching = False
            self._events.unwatch(self._sock.fileno())

    def _resume(self) -> None:
        if not self._watching and self._sock is not None and len(self._clients) < _MOST:
            self._watching = True
            self._events.watch(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._sock is not None
        try:
            sock, _peer = self._sock.accept()
        except OSError:  # gone already, or no descriptors: the next wait tells again
            return
        sock.setblocking(False)
        self._clients.add(_Client(self, sock, self._events))
        if len(self._clients) >= _MOST:
            self._pause()

    def forget(self, client: _Client) -> None:
        """A connection is over."""
        self._clients.discard(client)
        self._resume()

    def answer(self, path: str) -> tuple[int, bytes, tuple[int, ...]]:
        """Status, body, and the signals that follow the answer."""
        settings = self._settings
        assert settings is not None
        self.log.write("debug", f"RPC got {path} request")
        if path in _CALLS:
            return 200, b'{"ok":true}', _CALLS[path]
        if path == DUMP:
            self.log.write("info", f"dump in-memory config\n{settings.conf}")
            return 200, b'{"ok":true}', ()
        if path == GET_DUMP and settings.shows:
            return 200, json.dumps({"conf": settings.conf, "ok": True}, ensure_ascii=True).encode(), ()
        return 404, b'{"message":"Not found","ok":false}', ()

    def signal(self, numbers: tuple[int, ...]) -> None:
        """Send signals to the master."""
        for number in numbers:
            self._send(number)


class _Client:
    """One request and its answer; the connection is closed after it."""

    def __init__(self, server: RpcServer, sock: socket.socket, events: Events) -> None:
        self.sock = sock
        self._server = server
        self._events = events
        self._parser = RequestParser()
        self._received = 0
        self._timer: Timer = events.later(_PATIENCE, self.close)
        events.watch(sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += len(data)
        if not data:
            self.close()
            return
        heads = [event for event in self._parser.feed(data) if isinstance(event, RequestHead)]
        if heads:
            path = heads[0].target.partition(b"?")[0].decode("latin-1")
            status, body, signals = self._server.answer(path)
            self._respond(status, body)
            self._server.signal(signals)
        elif self._parser.error is not None or self._received > _LARGEST:
            self._respond(self._parser.error.status if self._parser.error else 413, b'{"ok":false}')

    def _respond(self, status: int, body: bytes) -> None:
        reason = REASONS.get(status, b"Error")
        head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        # A fresh connection has room for it, unless the configuration is huge: then its end is waited for, a little.
        with contextlib.suppress(OSError):
            self.sock.settimeout(1.0)
            self.sock.sendall(head % (status, reason, len(body)) + body)
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self.sock.fileno() >= 0:
            self._timer.cancel()
            self._events.unwatch(self.sock.fileno())
            self.sock.close()
            self._server.forget(self)
