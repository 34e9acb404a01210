"""Heartbeats by UDP: a datagram comes, one goes back (out_forward's `heartbeat_type udp`)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    import socket

_ANSWER: Final = b"\0"
_BURST: Final = 64
_SIZE: Final = 128


class Heartbeats:
    """Answers on one socket. `count`: heartbeats that came."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._sock = sock
        self._loop = loop

    def start(self) -> None:
        """Answer from now on."""
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_BURST):
            try:
                _data, peer = self._sock.recvfrom(_SIZE)
            except OSError:  # nothing there, or an ICMP error of an earlier answer
                return
            self.count += 1
            with contextlib.suppress(OSError):  # as a datagram that is lost
                self._sock.sendto(_ANSWER, peer)

    def close(self) -> None:
        """Answer no more; close our descriptor of the socket."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
