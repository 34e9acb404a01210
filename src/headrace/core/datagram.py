"""Datagrams of one socket sorted by who sent them, and answered from the address they were sent to.

A `DatagramListener` owns the socket. The first datagram of a client makes a `DatagramPeer`, which looks like a Stream
to its owner: it is read and written, one datagram a call, and ends by its owner's word only. What comes before the
owner reads waits in a bounded queue; past the bound it is dropped, as the kernel would.

On a wildcard address the kernel tells for each datagram to which of our addresses it was sent (IP_PKTINFO, ip(7);
IPV6_PKTINFO, RFC 3542 6.1), and answers say that they come from there.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headrace import errors
from headrace.core.clock import Waiter
from headrace.core.failure import closed
from headrace.core.listener import failed, numeric

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.core.owner import Address

SIZE: Final = 65_535
QUEUE: Final = 64
"""Datagrams of one client that wait for its owner, and of one socket that wait for room in the kernel."""
_BATCH: Final = 32  # datagrams of one readiness, so that other descriptors have their turn
_IP_PKTINFO: Final = getattr(socket, "IP_PKTINFO", 8 if sys.platform == "linux" else 0)
_V4: Final = struct.Struct("=i4s4s")  # in_pktinfo: interface, our address, the destination of the header
_V6: Final = struct.Struct("=16sI")  # in6_pktinfo


def open_datagrams(address: tuple[str, int], *, reuseport: bool = False, ipv6only: bool = True) -> socket.socket:
    """Bind a UDP socket. address: (host, port). Raises errors.Error as open_listener does."""
    family, where = numeric("0.0.0.0" if address[0] in {"", "*"} else address[0], address[1], socket.SOCK_DGRAM)
    name = f"[{where[0]}]:{where[1]}" if family == socket.AF_INET6 else f"{where[0]}:{where[1]}"
    sock = socket.socket(family, socket.SOCK_DGRAM)
    call = "setsockopt"
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(ipv6only))
        if reuseport:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if _is_wildcard(where) and _IP_PKTINFO:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        call = "bind"
        sock.bind(where)
    except OSError as error:
        sock.close()
        raise failed(call, name, error) from error
    sock.setblocking(False)
    return sock


def _is_wildcard(address: tuple[Any, ...]) -> bool:
    return address[0] in ("0.0.0.0", "::")


class DatagramPeer:
    """One client of a listener. peer: its address. local: ours, to which it sent.

    sink: gets its datagrams instead of the queue, once the owner has set it.
    """

    __slots__ = (
        "_clock", "_control", "_key", "_left", "_listener", "_queue", "_waiter", "closed", "local", "peer", "sink",
    )  # fmt: skip

    def __init__(
        self, listener: DatagramListener, key: Any, peer: tuple[Any, ...], local: tuple[Any, ...], control: Any
    ) -> None:
        self.peer = peer
        self.local = local
        self.closed = False
        self.sink: Callable[[bytes], None] | None = None
        self._listener = listener
        self._clock = listener.clock
        self._key = key
        self._control = control
        self._queue: deque[bytes] = deque(maxlen=QUEUE)
        self._waiter: Waiter | None = None
        self._left = 0

    def keep_for(self, datagrams: int) -> None:
        """After so many more datagrams the next one of this client makes another peer; this one can still send."""
        self._left = datagrams
        if not datagrams:
            self._unbind()

    def received(self, data: bytes) -> None:
        """A datagram of the client; called by the listener."""
        if self._left:
            self.keep_for(self._left - 1)
        if self.sink is not None:
            self.sink(data)
        elif len(self._queue) < QUEUE:
            self._queue.append(data)
            if self._waiter is not None:
                self._waiter.wake()

    def take(self) -> bytes | None:
        """The next datagram that waits, None when there is none."""
        return self._queue.popleft() if self._queue else None

    async def read(self, limit: int = SIZE, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - on the wheel
        """The next datagram, cut to `limit` bytes. Raises Timeout, ConnectionFailed when closed."""
        while not self._queue:
            if self.closed:
                raise closed()
            self._waiter = Waiter(self._listener.loop, "recv()")
            if timeout is not None:
                self._clock.schedule(self._waiter, timeout)
            try:
                await self._waiter.future
            finally:
                self._clock.cancel(self._waiter)
                self._waiter = None
        return self._queue.popleft()[:limit]

    def write(self, data: bytes) -> None:
        """Send one datagram. Raises ConnectionFailed when the system refuses it."""
        if self.closed:
            raise closed()
        self._listener.send(data, self.peer, self._control)

    async def drained(self, _timeout: float | None = None) -> None:
        """Nothing to wait for: datagrams are in the kernel, or dropped."""

    def _unbind(self) -> None:
        self._listener.forget(self._key, self)

    def close(self) -> None:
        """Let go of the client."""
        if not self.closed:
            self.closed = True
            self._unbind()
            self._listener.released()
            if self._waiter is not None:
                self._waiter.wake()

    abort = close


class DatagramLink:
    """A socket of our own towards one address, which it is connected to: only that address is heard.

    sink: called with each datagram. broken: called with the OSError of a read (ICMP said that nobody listens).
    Raises OSError when there is no way to the address.
    """

    __slots__ = ("_loop", "_sink", "broken", "sock")

    def __init__(
        self, family: int, address: Any, loop: asyncio.AbstractEventLoop, local: tuple[str, int] | None = None
    ) -> None:
        self._loop = loop
        self._sink: Callable[[bytes], None] | None = None
        self.broken: Callable[[OSError], None] = lambda _error: None
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self.sock.setblocking(False)
            if local is not None and family != socket.AF_UNIX:
                self.sock.bind(local)
            self.sock.connect(address)
        except BaseException:
            self.sock.close()
            raise

    def start(self, sink: Callable[[bytes], None], broken: Callable[[OSError], None]) -> None:
        """Receive from now on."""
        self._sink, self.broken = sink, broken
        self._loop.add_reader(self.sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_BATCH):
            if self._sink is None:
                return
            try:
                data = self.sock.recv(SIZE)
            except BlockingIOError:
                return
            except OSError as error:
                self.broken(error)
                return
            self._sink(data)

    def write(self, data: bytes) -> None:
        """Send one datagram; without room in the kernel it is dropped. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            self.sock.send(data)

    def close(self) -> None:
        """Close the socket."""
        if self._sink is not None:
            self._sink = None
            self._loop.remove_reader(self.sock.fileno())
        self.sock.close()


class DatagramListener:
    """See the module. accept: called with a new peer and its first datagram.

    max_peers: peers at one time; datagrams of others are dropped then, and `crowded` is called.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        accept: Callable[[DatagramPeer, bytes], None],
        *,
        max_peers: int = 0,
        crowded: Callable[[], object] | None = None,
    ) -> None:
        self.sock = sock
        self.loop = loop
        self.clock = clock
        self.address: tuple[Any, ...] = sock.getsockname()
        self.peers: dict[Any, DatagramPeer] = {}
        self.max_peers = max_peers
        self.open = 0
        self.accepted = 0
        self.dropped = 0
        self._accept = accept
        self._crowded = crowded
        self._wildcard = _is_wildcard(self.address) and bool(_IP_PKTINFO)
        self._unsent: deque[tuple[bytes, Address, Any]] = deque()
        self._reading = False
        self._closing = False

    def start(self) -> None:
        """Receive from now on."""
        self._reading = True
        self.loop.add_reader(self.sock.fileno(), self._readable)

    def close(self) -> None:
        """Receive nothing any more; the socket closes when the last peer is let go."""
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self.sock.fileno())
        self._closing = True
        self._close_when_idle()

    def released(self) -> None:
        """A peer was let go."""
        self.open -= 1
        if self._closing:
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if not self.open and self.sock.fileno() >= 0:
            if self._unsent:
                self._unsent.clear()
                self.loop.remove_writer(self.sock.fileno())
            self.sock.close()

    def forget(self, key: Any, peer: DatagramPeer) -> None:
        """See DatagramPeer.keep_for."""
        if self.peers.get(key) is peer:
            del self.peers[key]

    def _readable(self) -> None:
        for _ in range(_BATCH):
            if not self._reading:
                return
            local, control = self.address, None
            try:
                if self._wildcard:
                    data, control, _, sender = self.sock.recvmsg(SIZE, 256)
                    local, control = self._destination(control)
                else:
                    data, sender = self.sock.recvfrom(SIZE)
            except BlockingIOError:
                return
            except OSError:
                continue  # the answer of another client could not be delivered (ICMP): not this one's matter
            self._take(data, sender, local, control)

    def _take(self, data: bytes, sender: tuple[Any, ...], local: tuple[Any, ...], control: Any) -> None:
        key = (sender, local[0]) if self._wildcard else sender
        known = self.peers.get(key)
        if known is not None:
            known.received(data)
            return
        if 0 < self.max_peers <= self.open:
            self.dropped += 1
            if self._crowded is not None:
                self._crowded()
            return
        made = self.peers[key] = DatagramPeer(self, key, sender, local, control)
        self.open += 1
        self.accepted += 1
        try:
            self._accept(made, data)
        except Exception as error:  # noqa: BLE001 - reported; the next client must be served
            made.close()
            self.loop.call_exception_handler({"message": "a new client of datagrams failed", "exception": error})

    def _destination(self, control: list[tuple[int, int, bytes]]) -> tuple[tuple[Any, ...], Any]:
        """To which of our addresses a datagram was sent, and what makes an answer come from there."""
        for level, kind, value in control:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(value) >= _V4.size:
                _, own, _ = _V4.unpack_from(value)
                local = (socket.inet_ntop(socket.AF_INET, own), self.address[1])
                return local, [(level, kind, _V4.pack(0, own, bytes(4)))]
            if (level, kind) == (socket.IPPROTO_IPV6, getattr(socket, "IPV6_PKTINFO", 50)) and len(value) >= _V6.size:
                own, _ = _V6.unpack_from(value)
                local = (socket.inet_ntop(socket.AF_INET6, own), *self.address[1:])
                return local, [(level, kind, _V6.pack(own, 0))]
        return self.address, None

    def send(self, data: bytes, peer: Address, control: Any) -> None:
        """One datagram to a client. Raises ConnectionFailed when the system refuses it."""
        if not self._unsent:
            try:
                self._send(data, peer, control)
            except BlockingIOError:
                self.loop.add_writer(self.sock.fileno(), self._writable)
            except OSError as error:
                raise errors.ConnectionFailed(f"sendmsg() failed ({error.errno}: {error.strerror})") from error
            else:
                return
        if len(self._unsent) < QUEUE:
            self._unsent.append((data, peer, control))
        else:
            self.dropped += 1

    def _send(self, data: bytes, peer: Address, control: Any) -> None:
        if control is None:
            self.sock.sendto(data, peer)
        else:
            self.sock.sendmsg((data,), control, 0, peer)

    def _writable(self) -> None:
        while self._unsent:
            try:
                self._send(*self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self.dropped += 1
            self._unsent.popleft()
        self.loop.remove_writer(self.sock.fileno())
