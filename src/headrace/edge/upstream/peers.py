"""Peers of an upstream and smooth weighted round robin. No I/O; `now` is seconds of a monotonic clock.

A `Group` is what the configuration says; a `Chooser` accompanies one request: it remembers whom it has tried.
Each turn, every peer that may be asked gains its weight; the one with the most is chosen and gives back the sum. A
failure lowers the effective weight, and each later turn gives back one.
https://nginx.org/en/docs/http/ngx_http_upstream_module.html#server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.core.connect import Target
    from headrace.core.pool import Pool
    from headrace.edge.request import Request


class Keep(NamedTuple):
    """How a connection is kept when its exchange is over. idle: how many; times in seconds, requests: 0, no limit."""

    idle: int
    timeout: float | None
    requests: int
    lifetime: float | None


class Peer:
    """One address of an upstream.

    name: as logs and $upstream_addr write it. server: the text of the configuration it stems from. weight, max_fails
    (0: it is never taken for dead), fail_timeout and slow_start (seconds), max_conns (0: no limit), down: parameters of
    `server`. risen: when it was found alive again.
    conns: requests it has now. fails: failures within fail_timeout.
    """

    __slots__ = (
        "accessed", "checked", "conns", "current", "down", "effective", "fail_timeout", "fails", "max_conns",
        "max_fails", "name", "risen", "server", "slow_start", "target", "weight",
    )  # fmt: skip

    def __init__(
        self,
        name: bytes,
        target: Target,
        *,
        server: str = "",
        weight: int = 1,
        max_fails: int = 1,
        fail_timeout: float = 10.0,
        max_conns: int = 0,
        down: bool = False,
        slow_start: float = 0.0,
    ) -> None:
        self.name = name
        self.target = target
        self.server = server
        self.weight = weight
        self.max_fails = max_fails
        self.fail_timeout = fail_timeout
        self.max_conns = max_conns
        self.down = down
        self.slow_start = slow_start
        self.risen = -1e9
        self.conns = 0
        self.fails = 0
        self.current = 0.0
        self.effective = weight
        self.accessed = self.checked = -1e9

    def usable(self, now: float) -> bool:
        """It is not down, not resting after failures, and has room."""
        if self.down:
            return False
        if self.max_fails and self.fails >= self.max_fails and now - self.checked <= self.fail_timeout:
            return False
        return not (self.max_conns and self.conns >= self.max_conns)

    def share(self, now: float) -> float:
        """The part of its weight that it has: it comes back slowly after the peer was dead (slow_start)."""
        up = now - self.risen
        return 1.0 if up >= self.slow_start else max(up / self.slow_start, 0.01)

    def __repr__(self) -> str:
        return f"<Peer {self.name.decode('latin-1')} weight={self.weight} conns={self.conns} fails={self.fails}>"


class Peers:
    """Peers that one round of balancing chooses from: the primary servers, or the backup ones."""

    def __init__(self, peers: Iterable[Peer] = ()) -> None:
        self.peers: tuple[Peer, ...] = tuple(peers)
        self.total_weight = sum(peer.weight for peer in self.peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.peers)

    def __len__(self) -> int:
        return len(self.peers)


class Chooser(Protocol):
    """Whom one request asks, one after the other.

    tries: how many peers may still be asked. sticky: the peer stays even if it failed.
    """

    tries: int

    def choose(self, now: float) -> Peer | None:
        """The next peer; None when nobody is left."""
        ...

    def free(self, peer: Peer, now: float, *, failed: bool) -> bool:
        """The request is done with a peer. True when the peer is taken for dead from now on."""
        ...


class Group:
    """An upstream: its peers, and how they are balanced.

    name: of the `upstream` block, or the host of a proxy_pass. make: a chooser for a request (round robin when
    None). keepalive: idle connections kept, 0 for none; keepalive_timeout and _time in seconds, _requests a count.
    pool: idle connections, made by the worker that needs it. opened, reused, stale: connections counted.
    """

    def __init__(self, name: str, primary: Iterable[Peer], backup: Iterable[Peer] = ()) -> None:
        self.name = name.encode("utf-8", "surrogateescape")
        self.fill(primary, backup)
        self.make: Callable[[Group, Request], Chooser] | None = None
        self.keepalive = 0
        self.keepalive_timeout = 60.0
        self.keepalive_requests = 1000
        self.keepalive_time = 3600.0
        self._keep: Keep | None = None
        self.pool: Pool | None = None
        self.births: dict[int, float] = {}
        """When the connection with a descriptor was opened (clock seconds)."""
        self.sessions: dict[int, Any] = {}
        """What a protocol knows of the connection with a descriptor, from its opening on (grpc)."""
        self.opened = 0
        self.retried = 0
        """Kept connections that broke when they were used again."""

    def fill(self, primary: Iterable[Peer], backup: Iterable[Peer]) -> None:
        """Set the peers, before the first request."""
        self.primary = Peers(primary)
        self.backup = Peers(backup)
        self.single = len(self.primary) == 1 and not len(self.backup)
        self.alive = sum(not peer.down for peers in (self.primary, self.backup) for peer in peers)
        """Peers that are not marked `down`: so many may be tried."""

    def chooser(self, request: Request) -> Chooser:
        """A chooser for a request."""
        return RoundRobin(self) if self.make is None else self.make(self, request)

    @property
    def keep(self) -> Keep | None:
        """How connections are kept, None: they are not."""
        if self._keep is None and self.keepalive:
            self._keep = Keep(self.keepalive, self.keepalive_timeout, self.keepalive_requests, self.keepalive_time)
        return self._keep

    def close(self) -> None:
        """Close what is idle: the worker ends."""
        if self.pool is not None:
            self.pool.close_all()

    def stats(self) -> dict[str, Any]:
        """Counters, and the state of each peer."""
        pool = self.pool
        return {
            "opened": self.opened,
            "reused": pool.stats.reused if pool else 0,
            "stale": (pool.stats.discarded_stale if pool else 0) + self.retried,
            "idle": len(pool) if pool else 0,
            "peers": {
                peer.name.decode("latin-1"): {"conns": peer.conns, "fails": peer.fails}
                for peers in (self.primary, self.backup)
                for peer in peers
            },
        }


class RoundRobin:
    """Smooth weighted round robin over the primary peers, then over the backup ones."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.peers = group.primary
        self.tried: set[Peer] = set()
        self.tries = group.alive

    def choose(self, now: float) -> Peer | None:
        """See Chooser."""
        if self.group.single:
            peer = self.peers.peers[0]
            if peer.down or (peer.max_conns and peer.conns >= peer.max_conns):
                return None
            peer.conns += 1
            return peer
        best = self.pick(now)
        if best is None:
            return self.next_peers(now)
        return self.take(best, now)

    def pick(self, now: float) -> Peer | None:
        """The best of the peers that may be asked, by weight; the others gain theirs."""
        return weigh((peer for peer in self.peers if self.open_to(peer, now)), now)

    def open_to(self, peer: Peer, now: float) -> bool:
        """A peer that this request has not tried and that may be asked now."""
        return peer not in self.tried and peer.usable(now)

    def next_peers(self, now: float) -> Peer | None:
        """Nobody is left: go on with the backup peers."""
        if self.peers is self.group.backup or not len(self.group.backup):
            return None
        self.peers = self.group.backup
        self.tried.clear()
        return self.choose(now)

    def take(self, peer: Peer, now: float) -> Peer:
        """The request goes to this peer."""
        peer.conns += 1
        self.tried.add(peer)
        if now - peer.checked > peer.fail_timeout:
            peer.checked = now
        return peer

    def free(self, peer: Peer, now: float, *, failed: bool) -> bool:
        """See Chooser."""
        peer.conns -= 1
        if self.group.single:
            self.tries = 0
            peer.fails = 0
            return False
        dead = False
        if failed:
            peer.fails += 1
            peer.accessed = peer.checked = now
            if peer.max_fails:
                peer.effective = max(peer.effective - peer.weight // peer.max_fails, 0)
                dead = peer.fails >= peer.max_fails
        elif peer.accessed < peer.checked:
            if peer.slow_start and peer.max_fails and peer.fails >= peer.max_fails:
                peer.risen = now
            peer.fails = 0
        if self.tries:
            self.tries -= 1
        return dead


def weigh(peers: Iterable[Peer], now: float) -> Peer | None:
    """One turn of smooth weighted round robin among these peers."""
    best: Peer | None = None
    total = 0.0
    for peer in peers:
        gain = peer.effective if not peer.slow_start else peer.effective * peer.share(now)
        peer.current += gain
        total += gain
        if peer.effective < peer.weight:
            peer.effective += 1
        if best is None or peer.current > best.current:
            best = peer
    if best is not None:
        best.current -= total
    return best
