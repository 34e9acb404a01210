"""The connections of one lane: with keepalive one to each node, else one for each chunk.

Nobody else has them, so nothing here locks. A kept connection is looked at before it is written to: one that the
node has closed, or that was idle for keepalive_timeout, is left and another opened. Several chunks of the lane may
be on their way on it; it is theirs until the last is acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.core.clock import Clock, Deadline
    from headrace.plugins.out_forward.link import Link
    from headrace.plugins.out_forward.node import Node

    Dial = Callable[[Node], Awaitable[Link]]


class Links:
    """The connections of one lane. tasks: deliveries of this lane that wait for an acknowledgement.

    dial: opens a connection to a node. idle: seconds after which a kept connection that is not used is closed.
    """

    def __init__(self, dial: Dial, clock: Clock, *, keepalive: bool, idle: float | None) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.room: asyncio.Future[None] | None = None
        """Somebody waits for one of the tasks to end."""
        self._dial = dial
        self._clock = clock
        self._keepalive = keepalive
        self._idle = idle
        self._kept: dict[Node, Link] = {}
        self._dialling: dict[Node, asyncio.Future[None]] = {}
        self._open: set[Link] = set()
        self._timer: Deadline | None = None

    @property
    def count(self) -> int:
        """Open connections."""
        return len(self._open)

    async def take(self, node: Node) -> Link:
        """Return a connection to a node that may be written to. Raises ConnectionFailed."""
        while True:
            link = self._kept.get(node)
            if link is not None and (kept := self._usable(node, link)) is not None:
                return kept
            dialling = self._dialling.get(node)
            if dialling is None:
                return await self._new(node)
            await asyncio.shield(dialling)  # another chunk of this lane opens it; an error is the error of both

    def _usable(self, node: Node, link: Link) -> Link | None:
        """The kept connection, unless it is of no use any more."""
        if self._expired(link):
            self._drop(node, link)
        elif link.alive:
            node.counters.reused += 1
            link.idle_since = 0.0
            return link
        else:
            node.counters.stale += 1
            self._drop(node, link)
        return None

    async def _new(self, node: Node) -> Link:
        told: asyncio.Future[None] | None = None
        if self._keepalive:
            told = self._dialling[node] = asyncio.get_running_loop().create_future()
        try:
            link = await self._dial(node)
        except ConnectionFailed as error:
            node.counters.failed += 1
            if told is not None and not told.done():
                told.set_exception(error)
                told.exception()  # nobody may wait
            raise
        finally:
            if told is not None:
                del self._dialling[node]
                if not told.done():
                    told.set_result(None)
        node.counters.opened += 1
        self._open.add(link)
        if told is not None and link.keepalive:
            self._kept.setdefault(node, link)
        return link

    def give_back(self, node: Node, link: Link) -> None:
        """A chunk does not need its connection any more."""
        if self._kept.get(node) is link and link.broken is None and not node.gone:
            link.idle_since = self._clock.now()
            if self._idle is not None and self._timer is None:
                self._timer = self._clock.deadline(self._idle, self._purge)
        elif not link.waiting:
            self._drop(node, link)

    def _expired(self, link: Link) -> bool:
        if self._idle is None or link.waiting or not link.idle_since:
            return False
        return self._clock.now() - link.idle_since >= self._idle

    def _purge(self) -> None:
        """Close what nobody has used for the idle time."""
        self._timer = None
        for node, link in list(self._kept.items()):
            if self._expired(link):
                self._drop(node, link)
        if self._kept and self._idle is not None:
            self._timer = self._clock.deadline(self._idle, self._purge)

    def _drop(self, node: Node, link: Link) -> None:
        if self._kept.get(node) is link:
            del self._kept[node]
        self._open.discard(link)
        link.close()

    def leave(self, node: Node) -> None:
        """Close the connection to a node that is gone; chunks that are on their way there go on."""
        link = self._kept.get(node)
        if link is not None and not link.waiting:
            self._drop(node, link)

    def close(self) -> None:
        """Close everything; who waits for an acknowledgement hears that the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        links, self._open = self._open, set()
        self._kept.clear()
        for link in links:
            link.close()
