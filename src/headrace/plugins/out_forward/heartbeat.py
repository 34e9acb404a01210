"""The loops that tell whether nodes live; whatever goes wrong in one beat, the next one comes.

`transport` connects as chunks do (TLS and the shared key included), sends nothing and closes. `udp` sends one byte
to the node's port, which in_forward answers. Each node has a loop of its own, so that one that is silent holds up
no other; one loop more asks the failure detectors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final

from headrace.core.names import literal
from headrace.errors import Error
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from headrace.core.clock import Clock
    from headrace.plugins.out_forward.node import Node

BEAT: Final = b"\0"


class Heartbeats:
    """The heartbeats of all nodes of an output. interval: seconds.

    beat(node): sends one; returns whether it was answered already, False when that is told later. Raises Error.
    """

    def __init__(
        self, interval: float, beat: Callable[[Node], Awaitable[bool]], clock: Clock, log: logging.Logger
    ) -> None:
        self._interval = interval
        self._beat = beat
        self._clock = clock
        self._log = log
        self._loops: dict[Node, asyncio.Task[None]] = {}
        self._judge: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self._bugs = Throttle()

    def watch(self, nodes: Iterable[Node]) -> None:
        """Beat for these nodes, and for no others."""
        wanted = dict.fromkeys(nodes)
        for node in [node for node in self._loops if node not in wanted]:
            task = self._loops.pop(node)
            task.cancel()
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)
        for node in wanted:
            if node not in self._loops:
                self._loops[node] = self._task(self._run(node), f"heartbeat of {node.title}")
        if self._judge is None:
            self._judge = self._task(self._judge_all(), "failure detectors")

    def _task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def _run(self, node: Node) -> None:
        while True:
            await self._clock.sleep(self._interval)
            node.counters.heartbeats += 1
            try:
                answered = await self._beat(node)
            except Error as error:
                node.counters.heartbeats_failed += 1
                node.failed(self._clock.now())
                self._log.debug("heartbeat of %s failed: %s", node.title, error.message)
            except Exception as error:  # noqa: BLE001 - the next beat comes, whatever became of this one
                node.counters.heartbeats_failed += 1
                self._bugs.log(self._log, logging.ERROR, "heartbeat of %s: unexpected error %r", node.title, error)
            else:
                if answered:
                    self.answered(node)

    def answered(self, node: Node) -> None:
        """A heartbeat was answered."""
        if node.heartbeat(self._clock.now()):
            self._log.warning("recovered forwarding server '%s'", node.title)

    async def _judge_all(self) -> None:
        while True:
            await self._clock.sleep(self._interval)
            for node in list(self._loops):
                try:
                    reason = node.tick(self._clock.now())
                except Exception as error:  # noqa: BLE001 - as above
                    self._bugs.log(self._log, logging.ERROR, "detector of %s: unexpected error %r", node.title, error)
                    continue
                if reason:
                    self._log.warning("detached forwarding server '%s': %s", node.title, reason)

    async def stop(self) -> None:
        """End all loops."""
        tasks = [*self._loops.values(), *self._ended]
        if self._judge is not None:
            tasks.append(self._judge)
        self._loops.clear()
        self._judge = None
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


class UdpBeats:
    """Heartbeats by UDP: one socket for each family of addresses. answered(node): an answer came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, answered: Callable[[Node], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._answered = answered
        self._sockets: dict[int, socket.socket] = {}
        self._nodes: dict[tuple[str, int], Node] = {}

    async def beat(self, node: Node) -> bool:
        """Send one; the answer is told later. Raises Error when the name has no address."""
        family, address = await self._address(node)
        self._nodes[address[0], address[1]] = node
        with contextlib.suppress(OSError):  # a full buffer, a port without a listener: there is no answer then
            self._socket(family).sendto(BEAT, address)
        return False

    async def _address(self, node: Node) -> tuple[int, tuple[str, int]]:
        host, port = node.service.host, node.service.port
        addresses = literal(host, port) or node.names.find(host, port, self._clock.now())
        if addresses is None:
            try:
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise Error(f"{host} could not be resolved ({reason})", kind="dns", retryable=True) from error
            addresses = [(entry[0], entry[4]) for entry in found]
            node.names.keep(host, port, addresses, self._clock.now())
        return addresses[0]

    def _socket(self, family: int) -> socket.socket:
        sock = self._sockets.get(family)
        if sock is None:
            sock = self._sockets[family] = socket.socket(family, socket.SOCK_DGRAM)
            sock.setblocking(False)
            self._loop.add_reader(sock.fileno(), self._readable, sock)
        return sock

    def _readable(self, sock: socket.socket) -> None:
        try:
            _data, address = sock.recvfrom(64)
        except OSError:
            return  # an ICMP error of an earlier beat
        node = self._nodes.get((address[0], address[1]))
        if node is not None and not node.gone:
            self._answered(node)

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets.values():
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
