"""The other ways to balance: least_conn, hash (plain and consistent), ip_hash, random. No I/O.

Each falls back to round robin when it has found nobody after twenty tries, as nginx documents for hash and random.
The hashes are those of nginx (and of Cache::Memcached and Cache::Memcached::Fast), so that caches stay warm.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from headrace.edge.upstream.peers import Group, Peer, RoundRobin, weigh

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TRIES: Final = 20
POINTS: Final = 160
"""Points on the ring of a consistent hash for each unit of weight."""


class LeastConn(RoundRobin):
    """The peer with the fewest requests for its weight; among equals, round robin."""

    def pick(self, now: float) -> Peer | None:
        """See RoundRobin."""
        best: Peer | None = None
        usable = [peer for peer in self.peers if self.open_to(peer, now)]
        for peer in usable:
            if best is None or peer.conns * best.weight < best.conns * peer.weight:
                best = peer
        if best is None:
            return None
        equal = [peer for peer in usable if peer.conns * best.weight == best.conns * peer.weight]
        return weigh(equal, now) if len(equal) > 1 else best


class _Seeker(RoundRobin):
    """A chooser that seeks peers in an order of its own, and falls back to round robin."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.misses = 0

    def choose(self, now: float) -> Peer | None:
        """See Chooser."""
        if self.group.single or self.misses > MAX_TRIES or self.peers is self.group.backup:
            return super().choose(now)
        found = self.seek(now)
        return super().choose(now) if found is None else self.take(found, now)

    def seek(self, now: float) -> Peer | None:
        """The peer that comes next in that order; None after MAX_TRIES misses."""
        raise NotImplementedError

    def missed(self) -> bool:
        """Count a peer that may not be asked; True when there were too many."""
        self.misses += 1
        return self.misses > MAX_TRIES

    def at_weight(self, weight: int) -> Peer:
        """The peer that owns a point on the line of all weights."""
        for peer in self.peers:
            if weight < peer.weight:
                return peer
            weight -= peer.weight
        raise AssertionError("a weight beyond the sum of all")


class Hash(_Seeker):
    """By the hash of a key over the sum of the weights."""

    def __init__(self, group: Group, key: bytes) -> None:
        super().__init__(group)
        self.key = key
        self.sum = 0
        self.rehash = 0
        if not key:
            self.misses = MAX_TRIES + 1

    def seek(self, now: float) -> Peer | None:
        """See _Seeker."""
        while True:
            salt = str(self.rehash).encode() if self.rehash else b""
            self.sum += (zlib.crc32(salt + self.key) >> 16) & 0x7FFF
            self.rehash += 1
            peer = self.at_weight(self.sum % self.peers.total_weight)
            if self.open_to(peer, now):
                return peer
            if self.missed():
                return None


class Ring:
    """The points of a consistent hash (ketama), each of a server of the configuration."""

    def __init__(self, group: Group) -> None:
        points: dict[int, str] = {}
        found: list[tuple[int, str]] = []
        for peer in group.primary:
            host, port = _host_port(peer.server)
            base = zlib.crc32(port, zlib.crc32(b"\0", zlib.crc32(host)))
            previous = 0
            for _ in range(POINTS * peer.weight):
                previous = zlib.crc32(previous.to_bytes(4, "little"), base)
                found.append((previous, peer.server))
        for number, server in sorted(found, key=lambda point: point[0]):
            points.setdefault(number, server)
        self.numbers = list(points)
        self.servers = list(points.values())

    def find(self, number: int) -> int:
        """The index of the first point that is not before a hash."""
        return bisect_left(self.numbers, number)


def _host_port(server: str) -> tuple[bytes, bytes]:
    text = server.encode("utf-8", "surrogateescape")
    if text[:5].lower() == b"unix:":
        return text[5:], b""
    host, colon, port = text.rpartition(b":")
    return (host, port) if colon and port.isdigit() else (text, b"")


class ConsistentHash(_Seeker):
    """By the ring: a server that goes or comes moves its own share of the keys only."""

    def __init__(self, group: Group, ring: Ring, key: bytes) -> None:
        super().__init__(group)
        self.ring = ring
        self.at = ring.find(zlib.crc32(key))

    def seek(self, now: float) -> Peer | None:
        """See _Seeker."""
        ring = self.ring
        while True:
            server = ring.servers[self.at % len(ring.servers)]
            found = weigh((peer for peer in self.peers if peer.server == server and self.open_to(peer, now)), now)
            if found is not None:
                return found
            self.at += 1
            if self.missed():
                return None


class IpHash(_Seeker):
    """By the client's address: the first three octets of IPv4, all of IPv6."""

    def __init__(self, group: Group, address: bytes) -> None:
        super().__init__(group)
        self.address = address[:3] if len(address) == 4 else address or b"\0\0\0"
        self.hash = 89

    def seek(self, now: float) -> Peer | None:
        """See _Seeker."""
        while True:
            for octet in self.address:
                self.hash = (self.hash * 113 + octet) % 6271
            peer = self.at_weight(self.hash % self.peers.total_weight)
            if self.open_to(peer, now):
                return peer
            if self.missed():
                return None


class Random(_Seeker):
    """A random peer by weight; two: the less busy of two random ones. draw: a number below its argument."""

    def __init__(self, group: Group, *, two: bool, draw: Callable[[int], int] = random.randrange) -> None:
        super().__init__(group)
        self.two = two
        self.draw = draw

    def seek(self, now: float) -> Peer | None:
        """See _Seeker."""
        first: Peer | None = None
        while True:
            peer = self.at_weight(self.draw(self.peers.total_weight))
            if peer is not first and self.open_to(peer, now):
                if not self.two:
                    return peer
                if first is not None:
                    return first if peer.conns * first.weight > first.conns * peer.weight else peer
                first = peer
            elif self.missed():
                return None
