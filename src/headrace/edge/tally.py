"""The figures of stub_status over all workers: each tells its own in memory that they share.

A worker writes its counters into a place of its own, twice a second while they change and whenever somebody asks it;
so the connections' own path pays nothing, and what a page shows of other workers is at most that old. What workers
that are gone have counted stays in the sums, over a reload too.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from headrace.core.shared import Mutex, zone

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping

    from headrace.core.clock import Clock
    from headrace.core.http1.settings import ServerStats
    from headrace.core.owner import Address
    from headrace.edge.gateway import Gateway
    from headrace.edge.listen import ListenSpec

SECONDS: Final = 0.5
_PLACES: Final = 200
_BASE_AT: Final = Mutex.SIZE
_BASE: Final = struct.Struct("<qq")
_PLACE: Final = struct.Struct("<qqqqq")
_FIRST: Final = _BASE_AT + _BASE.size
_SIZE: Final = _FIRST + _PLACES * _PLACE.size


class Figures:
    """accepted, requests: ever. connections, busy: now, and requests that are being answered."""

    __slots__ = ("accepted", "busy", "connections", "requests")

    def __init__(self, accepted: int, connections: int, requests: int, busy: int) -> None:
        self.accepted = accepted
        self.connections = connections
        self.requests = requests
        self.busy = busy


class Tally:
    """See the module; a service of the gateway without listeners."""

    listens: list[ListenSpec] = []  # noqa: RUF012 - none, for all

    def __init__(self) -> None:
        self._zone = zone("stub_status", _SIZE)
        self._mutex = Mutex(self._zone, 0)
        self._memory = self._zone.memory
        self._stats: ServerStats | None = None
        self._told: tuple[int, ...] = ()
        self._place = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self,
        gateway: Gateway,
        loop: asyncio.AbstractEventLoop,
        _clock: Clock,
        _sockets: Mapping[Address, socket.socket],
    ) -> None:
        """Take a place and begin to tell."""
        self._loop = loop
        self._stats = gateway.counters
        with self._mutex:
            self._forget_dead()
            places = range(_FIRST, _FIRST + _PLACES * _PLACE.size, _PLACE.size)
            self._place = next((at for at in places if not self._read(at)[0]), 0)
            self._write()
        self._turn()

    def _turn(self) -> None:
        assert self._loop is not None
        self.tell()
        self._timer = self._loop.call_later(SECONDS, self._turn)

    async def stop(self, _deadline: float | None) -> None:
        """The gateway has let go of its connections, or is about to."""
        if self._timer is not None:
            self._timer.cancel()
        with self._mutex:
            self._write()
            self._retire(self._place)
        self._place = 0

    def tell(self) -> None:
        """Write what is counted here where the others see it."""
        stats = self._stats
        if stats is not None and self._place:
            now = (stats.accepted, stats.connections, stats.requests, stats.answered)
            if now != self._told:
                self._told = now
                self._write()

    def _write(self) -> None:
        stats = self._stats
        if stats is not None and self._place:
            counted = stats.accepted, stats.connections, stats.requests, stats.answered
            _PLACE.pack_into(self._memory, self._place, os.getpid(), *counted)

    def _read(self, at: int) -> tuple[int, ...]:
        return _PLACE.unpack_from(self._memory, at)

    def _retire(self, at: int) -> None:
        """What a worker that is gone has counted goes into the sums."""
        pid, accepted, _connections, requests, _answered = self._read(at) if at else (0, 0, 0, 0, 0)
        if pid:
            before = _BASE.unpack_from(self._memory, _BASE_AT)
            _BASE.pack_into(self._memory, _BASE_AT, before[0] + accepted, before[1] + requests)
            _PLACE.pack_into(self._memory, at, 0, 0, 0, 0, 0)

    def _forget_dead(self) -> None:
        for at in range(_FIRST, _FIRST + _PLACES * _PLACE.size, _PLACE.size):
            pid = self._read(at)[0]
            if pid and not _lives(pid):
                self._retire(at)

    def total(self) -> Figures:
        """The sums over all workers."""
        self.tell()
        with self._mutex:
            self._forget_dead()
            accepted, requests = _BASE.unpack_from(self._memory, _BASE_AT)
            connections = answered = begun = 0
            for at in range(_FIRST, _FIRST + _PLACES * _PLACE.size, _PLACE.size):
                pid, *counted = self._read(at)
                if pid:
                    accepted += counted[0]
                    connections += counted[1]
                    begun += counted[2]
                    answered += counted[3]
        return Figures(accepted, connections, requests + begun, begun - answered)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
