"""Connected streams in memory: the real `Stream` over sockets that a test scripts.

Nothing here touches the network or real time, so codecs, servers and pools can be led through partial
writes, full buffers, delays, half-closes and resets in the order a test wants. With a running loop the
streams move by themselves; without one, `MemoryLoop.run()` moves them until nothing is left to do.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from headrace.core.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.core.clock import Clock
    from headrace.core.stream import Owner

    Event = tuple[Callable[..., object], tuple[Any, ...]]

_numbers = itertools.count(-10, -1)  # no real descriptor is negative, so none can be hit by mistake


class MemoryLoop:
    """The part of an event loop that a stream uses. failures: contexts given to the exception handler."""

    def __init__(self) -> None:
        try:
            self._real: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._real = None
        self._readers: dict[int, Event] = {}
        self._writers: dict[int, Event] = {}
        self._sockets: dict[int, MemorySocket] = {}
        self._soon: deque[Event] = deque()
        self._poked = False
        self.failures: list[dict[str, Any]] = []

    def register(self, sock: MemorySocket) -> None:
        """Make a socket known."""
        self._sockets[sock.fileno()] = sock

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        """As of a loop."""
        self._readers[fd] = callback, args
        self._sockets[fd].calls["add_reader"] += 1
        self.poke()

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        """As of a loop."""
        self._writers[fd] = callback, args
        self._sockets[fd].calls["add_writer"] += 1
        self.poke()

    def remove_reader(self, fd: int) -> bool:
        """As of a loop."""
        self._sockets[fd].calls["remove_reader"] += 1
        return self._readers.pop(fd, None) is not None

    def remove_writer(self, fd: int) -> bool:
        """As of a loop."""
        self._sockets[fd].calls["remove_writer"] += 1
        return self._writers.pop(fd, None) is not None

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """As of a loop."""
        if self._real is not None:
            self._real.call_soon(callback, *args)
        else:
            self._soon.append((callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        """As of a loop; only where one is running."""
        assert self._real is not None, "a wait needs a running loop"
        return self._real.create_future()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the context in `failures`."""
        self.failures.append(context)

    def poke(self) -> None:
        """Something may be ready."""
        if self._real is not None and not self._poked:
            self._poked = True
            self._real.call_soon(self._turn)

    def _turn(self) -> None:
        self._poked = False
        if self.step():
            self.poke()

    def step(self) -> bool:
        """One turn of the loop; False when there was nothing to do."""
        ready: list[Event] = list(self._soon)
        self._soon.clear()
        for fd, event in list(self._readers.items()):
            if self._sockets[fd].readable:
                ready.append(event)
        for fd, event in list(self._writers.items()):
            if self._sockets[fd].writable:
                ready.append(event)
        for callback, args in ready:
            callback(*args)
        return bool(ready)

    def run(self, turns: int = 100_000) -> None:
        """Turn until there is nothing to do."""
        for _ in range(turns):
            if not self.step():
                return
        raise AssertionError(f"still busy after {turns} turns")


class MemorySocket:
    """One end of a pair, and its script.

    max_send: bytes that one call takes at most. capacity: bytes the peer's end holds before we must wait.
    blocked: every send says EAGAIN. held: what is sent stays on the way until it is set to False.
    latency: seconds that bytes are on the way, by `clock`. send_error, recv_error: raised by the next call.
    calls: how often each system call was made. was_reset: we closed with a reset.
    """

    family = socket.AF_INET

    def __init__(self, loop: MemoryLoop, clock: Clock | None, name: tuple[str, int], capacity: int) -> None:
        self._loop = loop
        self._clock = clock
        self._fd = next(_numbers)
        self._name = name
        self._linger_reset = False
        self._held = False
        self._blocked = False
        self._on_the_way: deque[bytes | None] = deque()
        self.peer: MemorySocket
        self.inbox = bytearray()
        self.ended = False  # the peer's end of stream has arrived
        self.closed = False
        self.was_reset = False
        self.capacity = capacity
        self.max_send: int | None = None
        self.latency = 0.0
        self.send_error: OSError | None = None
        self.recv_error: OSError | None = None
        self.calls: Counter[str] = Counter()
        loop.register(self)

    @property
    def blocked(self) -> bool:
        """Whether every send says EAGAIN."""
        return self._blocked

    @blocked.setter
    def blocked(self, value: bool) -> None:
        self._blocked = value
        self._loop.poke()

    @property
    def held(self) -> bool:
        """Whether what is sent stays on the way."""
        return self._held

    @held.setter
    def held(self, value: bool) -> None:
        self._held = value
        while not value and self._on_the_way:
            self._arrive(self._on_the_way.popleft())

    @property
    def readable(self) -> bool:
        """As poll would say."""
        return bool(self.inbox) or self.ended or self.recv_error is not None

    @property
    def writable(self) -> bool:
        """As poll would say."""
        return self.send_error is not None or self.peer.closed or (not self._blocked and self._room() > 0)

    def _room(self) -> int:
        on_the_way = sum(len(piece) for piece in self._on_the_way if piece)
        return self.capacity - len(self.peer.inbox) - on_the_way

    def gettimeout(self) -> float:
        """As socket.gettimeout: memory never blocks."""
        return 0.0

    def setblocking(self, _flag: bool, /) -> None:
        """Always non-blocking."""

    def fileno(self) -> int:
        """A number that is no real descriptor."""
        return -1 if self.closed else self._fd

    def getsockname(self) -> tuple[str, int]:
        """Our name."""
        return self._name

    def getpeername(self) -> tuple[str, int]:
        """The peer's name."""
        return self.peer.getsockname()

    def setsockopt(self, _level: int, option: int, value: int | bytes) -> None:
        """SO_LINGER 0 is understood, the rest is accepted."""
        self._linger_reset = option == socket.SO_LINGER and value == struct.pack("ii", 1, 0)

    def recv(self, limit: int, flags: int = 0, /) -> bytes:
        """As socket.recv, with MSG_PEEK."""
        self.calls["recv"] += 1
        if self.recv_error is not None:
            error, self.recv_error = self.recv_error, None
            raise error
        if self.inbox:
            data = bytes(self.inbox[:limit])
            if not flags & socket.MSG_PEEK:
                del self.inbox[:limit]
                self._loop.poke()
            return data
        if self.ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: bytes | memoryview, _flags: int = 0, /) -> int:
        """As socket.send."""
        self.calls["send"] += 1
        return self._take(data)

    def sendmsg(self, buffers: Iterable[Any], _ancdata: Iterable[Any] = (), _flags: int = 0, /) -> int:
        """As socket.sendmsg."""
        self.calls["sendmsg"] += 1
        return self._take(b"".join(buffers))

    def _take(self, data: bytes | memoryview) -> int:
        if self.send_error is not None:
            error, self.send_error = self.send_error, None
            raise error
        if self.peer.closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = 0 if self._blocked else min(len(data), self._room())
        if self.max_send is not None:
            room = min(room, self.max_send)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._dispatch(bytes(data[:room]))
        return room

    def _dispatch(self, piece: bytes | None) -> None:
        if self._held:
            self._on_the_way.append(piece)
        elif self.latency and self._clock is not None:
            self._on_the_way.append(piece)
            self._clock.deadline(self.latency, self._next_arrives)
        else:
            self._arrive(piece)

    def _next_arrives(self) -> None:
        if self._on_the_way:
            self._arrive(self._on_the_way.popleft())

    def _arrive(self, piece: bytes | None) -> None:
        if piece is None:
            self.peer.ended = True
        else:
            self.peer.inbox += piece
        self._loop.poke()

    def shutdown(self, how: int) -> None:
        """SHUT_WR sends the end of the stream."""
        self.calls["shutdown"] += 1
        if how in {socket.SHUT_WR, socket.SHUT_RDWR}:
            self._dispatch(None)

    def close(self) -> None:
        """Closing with unread bytes, or with SO_LINGER 0, resets the connection, as tcp does."""
        if self.closed:
            return
        self.calls["close"] += 1
        self.closed = True
        self.was_reset = self._linger_reset or bool(self.inbox)
        if self.was_reset:
            self.peer.inbox.clear()
            self.peer.recv_error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self.peer.ended = True
            self._loop.poke()
        else:
            self._dispatch(None)


class Recorder:
    """An owner that keeps what it hears. data: all bytes; pieces: as they came; lost: each loss."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.eof = False
        self.lost: list[Exception | None] = []

    @property
    def data(self) -> bytes:
        """All bytes so far."""
        return b"".join(self.pieces)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes."""
        self.pieces.append(data)

    def eof_received(self) -> None:
        """Note the end."""
        self.eof = True

    def connection_lost(self, error: Exception | None) -> None:
        """Keep the error."""
        self.lost.append(error)


@dataclass
class MemoryPair:
    """Two streams that are connected: `near` (ours, "127.0.0.1") and `far` (the peer's), and their sockets."""

    near: Stream
    far: Stream
    near_socket: MemorySocket
    far_socket: MemorySocket
    loop: MemoryLoop = field(repr=False)


def stream_pair(
    clock: Clock,
    near_owner: Owner | None = None,
    far_owner: Owner | None = None,
    *,
    capacity: int = 1 << 20,
    loop: MemoryLoop | None = None,
) -> MemoryPair:
    """Connect two streams in memory. Nobody reads yet (start_reading, or read)."""
    loop = loop or MemoryLoop()
    one = MemorySocket(loop, clock, ("127.0.0.1", 40_000), capacity)
    two = MemorySocket(loop, clock, ("127.0.0.2", 80), capacity)
    one.peer, two.peer = two, one
    as_loop = cast("asyncio.AbstractEventLoop", loop)
    near = Stream(cast("socket.socket", one), as_loop, clock, near_owner)
    far = Stream(cast("socket.socket", two), as_loop, clock, far_owner)
    return MemoryPair(near, far, one, two, loop)
