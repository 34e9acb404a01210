"""Messages by UDP.

BURST datagrams are read for each readiness, so that neighbours have their turn, and become one batch for each tag.
While a batch waits for its place the socket is not read: the kernel keeps what its buffer holds and drops the rest,
which `kernel_drops` shows. All workers read the same socket; each datagram goes to one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.plugins.network.source import NetworkSource
    from headrace.plugins.patience import Groups

    Datagram = tuple[bytes, str]
    """Data and the sender's address, "" where nobody asks."""

BURST: Final = 64
"""Datagrams that are read for each readiness."""
LAST: Final = 10_000
"""Datagrams that are read at the end, at the most."""


class DatagramServer:
    """The socket of a source. limit: bytes of a datagram; the rest of a longer one is cut off."""

    def __init__(self, source: NetworkSource, limit: int, receive_buffer: int | None) -> None:
        self.source = source
        self.context = source.context
        self._sock = self.context.sockets[source.listen.key]
        self._limit = limit
        # A byte more than a datagram may have shows that it was longer; no datagram has more than 64 KiB.
        self._buffer = bytearray(min(limit, 1 << 16) + 1)
        self._view = memoryview(self._buffer)
        self._receive_buffer = receive_buffer
        self._reading = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read from now on."""
        if self._receive_buffer is not None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        self._resume()

    def _resume(self) -> None:
        if not self._reading:
            self._reading = True
            self.context.loop.add_reader(self._sock.fileno(), self._readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.context.loop.remove_reader(self._sock.fileno())

    def _readable(self) -> None:
        datagrams = self._receive(BURST)
        pending = self._take(datagrams)
        if pending is not None:
            self._pause()
            self._task = self.context.loop.create_task(self._wait(pending), name=self.source.plugin_id)

    async def _wait(self, pending: Awaitable[None]) -> None:
        await pending
        self._task = None
        self._resume()

    def _receive(self, most: int) -> list[Datagram]:
        found: list[Datagram] = []
        receive, buffer, view, limit = self._sock.recvfrom_into, self._buffer, self._view, self._limit
        wants_peer = self.source.wants_peer
        for _ in range(most):
            try:
                size, peer = receive(buffer)
            except BlockingIOError:
                break
            except OSError as error:
                self.source.log.debug("recvfrom() failed: %s", error)
                break
            if size > limit:
                size = limit
                self.source.was_too_long(1)
            found.append((bytes(view[:size]), str(peer[0]) if wants_peer else ""))
        return found

    def _take(self, datagrams: list[Datagram]) -> Awaitable[None] | None:
        source = self.source
        source.messages += len(datagrams)
        groups: Groups = {}
        convert = source.convert
        if not source.wants_peer:
            for data, _ in datagrams:
                convert(data, None, groups)
            return source.emitter.at_once(groups) if groups else None
        extras = {address: source.extra_now(address) for address in {address for _, address in datagrams}}
        if any(extra is None for extra in extras.values()):
            return self._take_named(datagrams)
        for data, address in datagrams:
            convert(data, extras[address], groups)
        return source.emitter.at_once(groups) if groups else None

    async def _take_named(self, datagrams: list[Datagram]) -> None:
        source = self.source
        addresses = sorted({address for _, address in datagrams})
        found = await asyncio.gather(*[source.extra_of(address) for address in addresses])
        extras = dict(zip(addresses, found, strict=True))
        groups: Groups = {}
        for data, address in datagrams:
            source.convert(data, extras[address], groups)
        pending = source.emitter.at_once(groups)
        if pending is not None:
            await pending

    async def quiesce(self) -> None:
        """Take what is here already, then nothing more."""
        if self._sock.fileno() < 0:
            return
        self._pause()
        if self._task is not None:
            await self._task
            self._pause()
        for _ in range(LAST // BURST):
            datagrams = self._receive(BURST)
            if not datagrams:
                break
            pending = self._take(datagrams)
            if pending is not None:
                await pending
            await asyncio.sleep(0)
        self._drops = self.kernel_drops()
        self._sock.close()

    def stop(self) -> None:
        """Close our descriptor of the socket."""
        if self._task is not None:
            self._task.cancel()
        if self._sock.fileno() >= 0:
            self._pause()
            self._sock.close()

    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped because its buffer for this socket was full; 0 where it does not tell."""
        if self._sock.fileno() < 0:
            return getattr(self, "_drops", 0)
        name = "udp6" if self._sock.family == socket.AF_INET6 else "udp"
        inode = str(os.fstat(self._sock.fileno()).st_ino)
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/self/net/{name}", "rb") as table:
            for line in table:
                fields = line.split()
                if fields[9] == inode.encode():
                    return int(fields[12])
        return 0

    def stats(self) -> dict[str, Any]:
        """What the kernel dropped."""
        return {"kernel_drops": self.kernel_drops()}


def chomp(data: bytes) -> bytes:
    """Without one newline at the end, as Ruby's chomp."""
    if data.endswith(b"\r\n"):
        return data[:-2]
    return data[:-1] if data[-1:] in {b"\n", b"\r"} else data
