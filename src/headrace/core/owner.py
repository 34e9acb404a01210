"""Who owns a connection, and what it hears of it."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Final, Protocol

Address = tuple[Any, ...] | str  # (host, port, ...) or the path of a unix socket
_RESET: Final = struct.pack("ii", 1, 0)


class Owner(Protocol):
    """The one who owns a connection: a request, a cosocket, a lane, a pool while it is idle."""

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer, never empty."""

    def eof_received(self) -> None:
        """The peer has shut down its writing side; ours still works (half-close)."""

    def connection_lost(self, error: Exception | None) -> None:
        """The stream is closed: None when we closed it. Exactly once."""


class Stats:
    """Streams of this process, for the metrics."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    @property
    def open(self) -> int:
        """Streams open now."""
        return self.opened - self.closed


def peer_of(sock: socket.socket) -> Address:
    """The address at the other end, "" when it is gone already."""
    try:
        address: Address = sock.getpeername()
    except OSError:
        return ""
    return address


def reset_on_close(sock: socket.socket) -> None:
    """From now on closing the socket resets the connection, unless the peer was faster."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
