"""Pool: idle connections, by everything that makes two of them differ.

While a connection is idle the pool owns it: an end, a byte nobody asked for, a loss or its idle timeout
closes it at once. What to hand out and what to close is decided synchronously, and costs the same whatever
the pool holds. The connection used last is handed out first, the one unused longest is evicted first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.core.clock import NEVER, Timed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.core.clock import Clock
    from headrace.core.connect import Proxy
    from headrace.core.stream import Address, Owner, Stream
    from headrace.core.tls import TlsConfig

    class Borrower(Owner, Protocol):
        """Who has a connection for one exchange, and gets its bytes pushed meanwhile."""

        def expired(self) -> None:
            """The deadline of `Lent.limit` has come."""


@dataclass(frozen=True)
class Key:
    """The identity of a connection: what must be equal for one to stand in for another.

    address: (host, port), or the path of a unix socket. tls: its settings, None for plain; the trusted CAs,
    the client certificate and the verification are part of them. sni: the name asked for. client_cert: an
    identity the settings do not tell (a certificate chosen per request). name: a pool the user named.
    """

    address: Address
    tls: TlsConfig | None = None
    sni: str | None = None
    client_cert: str | None = None
    proxy: Proxy | None = None
    name: str | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parts = (self.address, self.tls, self.sni, self.client_cert, self.proxy, self.name)
        object.__setattr__(self, "_hash", hash(parts))  # a key is hashed for every request, and made once

    def __hash__(self) -> int:
        return self._hash


@dataclass(slots=True)
class PoolStats:
    """Counters since the start.

    opened: connections counted by `Pool.opened`; reused: taken out again; discarded_stale: found dead, or
    with unasked-for bytes; evicted: closed for room; timed_out: idle too long; worn_out: at their limit of
    requests.
    """

    opened: int = 0
    reused: int = 0
    discarded_stale: int = 0
    evicted: int = 0
    timed_out: int = 0
    worn_out: int = 0


class Lent(Timed):
    """One connection of a pool: its owner while it is idle. While it is lent the borrower is."""

    __slots__ = ("borrower", "key", "pool", "stream")

    def __init__(self, pool: Pool, key: Hashable, stream: Stream) -> None:
        self.due = NEVER
        self.tick = 0
        self.pool = pool
        self.key = key
        self.stream = stream
        self.borrower: Borrower | None = None

    def data_received(self, _data: bytes) -> None:
        """It said something that nobody asked for."""
        self.pool.drop_stale(self)

    def eof_received(self) -> None:
        """It has ended."""
        self.pool.drop_stale(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """It is lost."""
        self.pool.drop_stale(self)

    def expired(self) -> None:
        """Idle for too long, or the deadline of the exchange."""
        if self.borrower is not None:
            self.borrower.expired()
        else:
            self.pool.drop_expired(self)

    def release(self) -> Stream:
        """The connection is the borrower's for good: no owner is set, not reading, no deadline."""
        stream = self.stream
        self.borrower = None
        self.pool.clock.cancel(self)
        stream.pause_reading()
        stream.set_owner(None)
        return stream


class Pool:
    """Idle connections of one owner (an upstream, a plugin, a worker).

    max_idle_per_key, max_idle: how many are kept, by key and together; 0: none is kept.
    """

    def __init__(self, clock: Clock, *, max_idle_per_key: int = 30, max_idle: int = 1024) -> None:
        self.max_idle_per_key = max_idle_per_key
        self.max_idle = max_idle
        self.stats = PoolStats()
        self.clock = clock
        self._by_key: dict[Hashable, OrderedDict[Lent, None]] = {}
        self._all: OrderedDict[Lent, None] = OrderedDict()  # the one unused longest is first
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def idle(self, key: Hashable) -> int:
        """How many connections are idle under a key."""
        return len(self._by_key.get(key, ()))

    def opened(self) -> None:
        """Count a connection that was dialled because `take` had none."""
        self.stats.opened += 1

    def take(self, key: Hashable) -> Stream | None:
        """The connection used last that is still alive; the caller owns it now (no owner is set, not reading)."""
        bucket = self._by_key.get(key)
        while bucket:
            entry = next(reversed(bucket))
            stream = entry.stream
            if stream.probe() != "idle":
                self._discard(entry)
                self.stats.discarded_stale += 1
                continue
            self._remove(entry)
            stream.pause_reading()
            stream.set_owner(None)
            self.stats.reused += 1
            return stream
        return None

    def borrow(self, key: Hashable, borrower: Borrower, *, sure: bool = False) -> Lent | None:
        """As take, for one exchange that ends in `give_back`: the borrower is the stream's owner, which reads on.

        sure: ask the kernel whether it is alive; else what the loop has seen counts.
        """
        bucket = self._by_key.get(key)
        while bucket:
            entry = next(reversed(bucket))
            stream = entry.stream
            if not stream.quiet or (sure and stream.probe() != "idle"):
                self._discard(entry)
                self.stats.discarded_stale += 1
                continue
            del self._all[entry]
            del bucket[entry]
            if not bucket:
                del self._by_key[key]
            entry.borrower = stream.owner = borrower
            self.stats.reused += 1
            return entry
        return None

    def give_back(self, entry: Lent, *, idle_timeout: float | None = 60.0, max_requests: int = 0) -> bool:
        """The exchange of a borrowed connection is over; see put."""
        entry.borrower = None
        stream = entry.stream
        if not stream.quiet:
            self.clock.cancel(entry)
            return self.put(entry.key, stream, idle_timeout=idle_timeout, max_requests=max_requests)
        stream.uses += 1
        if self._closed or (max_requests and stream.uses >= max_requests):
            self.stats.worn_out += not self._closed
            self.clock.cancel(entry)
            _close(stream)
            return False
        stream.owner = entry
        self._keep(entry, self.max_idle_per_key, idle_timeout)
        return True

    def _keep(self, entry: Lent, limit: int, idle_timeout: float | None) -> None:
        bucket = self._by_key.get(entry.key)
        if bucket is None:
            bucket = self._by_key[entry.key] = OrderedDict()
        bucket[entry] = None
        self._all[entry] = None
        if len(bucket) > limit:
            self._evict(next(iter(bucket)))
        elif len(self._all) > self.max_idle:
            self._evict(next(iter(self._all)))
        if idle_timeout is None:
            self.clock.suspend(entry)
        else:
            self.clock.schedule(entry, idle_timeout)

    def put(
        self,
        key: Hashable,
        stream: Stream,
        *,
        idle_timeout: float | None = 60.0,
        max_requests: int = 0,
        max_idle: int | None = None,
    ) -> bool:
        """Take over a connection that is done with its exchange. False: it was closed instead.

        idle_timeout: seconds; None: no limit. max_requests: uses after which it is closed (0: no limit).
        max_idle: the limit of this key, instead of the pool's.
        """
        stream.uses += 1
        limit = self.max_idle_per_key if max_idle is None else max_idle
        if self._closed or limit < 1 or self.max_idle < 1:
            _close(stream)
            return False
        if max_requests and stream.uses >= max_requests:
            self.stats.worn_out += 1
            _close(stream)
            return False
        if stream.chain.length or stream.probe() != "idle":
            self.stats.discarded_stale += 1
            _close(stream)
            return False
        entry = Lent(self, key, stream)
        stream.set_owner(entry)
        stream.start_reading()
        self._keep(entry, limit, idle_timeout)
        return True

    def discard(self, key: Hashable) -> int:
        """Close the idle connections of a key (its endpoint changed); how many there were."""
        bucket = self._by_key.get(key)
        if not bucket:
            return 0
        entries = list(bucket)
        for entry in entries:
            self._discard(entry)
        return len(entries)

    def close_all(self) -> None:
        """Close every idle connection, and from now on every one that is put."""
        self._closed = True
        for entry in list(self._all):
            self._discard(entry)

    def drop_stale(self, entry: Lent) -> None:
        """An idle connection has ended or has said something: it is of no use."""
        if entry in self._all:
            self.stats.discarded_stale += 1
            self._discard(entry)

    def drop_expired(self, entry: Lent) -> None:
        """An idle connection has been idle for too long."""
        if entry in self._all:
            self.stats.timed_out += 1
            self._discard(entry)

    def _evict(self, entry: Lent) -> None:
        self.stats.evicted += 1
        self._discard(entry)

    def _discard(self, entry: Lent) -> None:
        self._remove(entry)
        _close(entry.stream)

    def _remove(self, entry: Lent) -> None:
        self.clock.cancel(entry)
        del self._all[entry]
        bucket = self._by_key[entry.key]
        del bucket[entry]
        if not bucket:
            del self._by_key[entry.key]


def _close(stream: Stream) -> None:
    """Nobody is left to be told, and nothing to be sent but TLS's goodbye."""
    stream.set_owner(None)
    if stream.chain.length:
        stream.abort()
    else:
        stream.close()
