"""Visits that a script steers: for each try it may say whom to ask, how long to wait, and which connection to keep.

The script is called where a chooser chooses, and must not wait. What it leaves unsaid is round robin over the servers
of the group, and the settings of the location. No I/O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.core.names import literal
from headrace.edge.upstream.address import addresses, parse_url
from headrace.edge.upstream.peers import Group, Keep, Peer, RoundRobin
from headrace.edge.upstream.state import state_of
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.edge.request import Request
    from headrace.edge.upstream.visit import Visit

    Script = Callable[[Request, "Steered"], int]

NOBODY: Final = frozenset((-3, -5))
"""Codes of a script that has no peer: the next try, or none (NGX_BUSY, NGX_DECLINED)."""
KEPT: Final = 30
"""Idle connections kept for a peer when the group says nothing."""
_STAGE: Final = b"connecting to upstream"


class Refused(Exception):
    """The script ended the request with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Steered(RoundRobin):
    """The chooser of a request whose group has a script.

    The script sets, for the try that begins: peer, more (tries beside those there are), keep, tls_name, tls (on or off,
    None: as configured), local (the address to connect from). failure: "next" or "failed" after a try that failed.
    """

    visit: Visit | None = None

    def __init__(self, group: Group, request: Request, script: Script) -> None:
        super().__init__(group)
        self.tries = self.tries or 1
        self.request = request
        self.script = script
        self.peer: Peer | None = None
        self.more = 0
        self.begun = 0
        self.failure: str | None = None
        self._fresh()

    def _fresh(self) -> None:
        self.peer = None
        self.more = 0
        self.keep: Keep | None = None
        self.tls_name: bytes | None = None
        self.tls: bool | None = None
        self.local: str | None = None

    def choose(self, now: float) -> Peer | None:
        """See Chooser. Raises Refused."""
        self._fresh()
        self.begun += 1
        code = self.ask()
        if code in NOBODY:
            return None
        if code:
            raise Refused(code if code >= 300 else 500)
        if self.peer is None:
            return super().choose(now)
        self.tries += self.more
        self.peer.conns += 1
        return self.peer

    def ask(self) -> int:
        """Run the script; its code."""
        state = state_of(self.request)
        state.stage = _STAGE
        try:
            return self.script(self.request, self)
        finally:
            state.stage = b""

    @property
    def most(self) -> int:
        """proxy_next_upstream_tries, 0: no limit."""
        assert self.visit is not None
        return self.visit.settings.next_tries

    def free(self, peer: Peer, now: float, *, failed: bool) -> bool:
        """See Chooser."""
        self.failure = "failed" if failed else "next"
        if peer is not self.peer:
            return super().free(peer, now, failed=failed)
        peer.conns -= 1
        if self.tries:
            self.tries -= 1
        return False

    # what the script says

    def set_peer(self, host: str, port: int, name: bytes | None) -> str | None:
        """Ask this address; name: for TLS. Returns why that cannot be."""
        try:
            url = parse_url(host, port, "upstream")
        except ConfError as error:
            return error.message.partition(" in upstream")[0]
        if url.unix is None and literal(url.host, url.port) is None:
            return "no host allowed"
        shown, target = addresses(url, "upstream")[0]
        self.peer = Peer(shown, target, max_fails=0)
        self.tls_name = name
        return None

    def set_more_tries(self, count: int) -> str | None:
        """Allow more tries after the one that begins, within proxy_next_upstream_tries. Returns a warning."""
        most = self.most
        total = self.begun + self.tries - 1
        if most and total + count > most:
            self.more = most - total
            return "reduced tries due to limit"
        self.more = count
        return None

    def set_timeouts(self, connect: float, send: float, read: float) -> None:
        """Seconds for this try and those after it; 0: as they are."""
        assert self.visit is not None
        now = self.visit.settings
        self.visit.settings = replace(
            now,
            connect_timeout=connect or now.connect_timeout,
            send_timeout=send or now.send_timeout,
            read_timeout=read or now.read_timeout,
        )

    def keep_alive(self, timeout: float, requests: int) -> None:
        """Keep the connection for `timeout` seconds and `requests` requests; 0: no limit."""
        self.keep = Keep(self.group.keepalive or KEPT, timeout or None, requests, None)

    def last_failure(self) -> tuple[str, int] | None:
        """How the try before this one ended, and its status; None before the first."""
        if self.failure is None:
            return None
        tries = state_of(self.request).tries
        before = tries[-2] if len(tries) > 1 else None
        return self.failure, before.status if before is not None else 0

    def renew(self) -> None:
        """Make the request anew: fields of its head may depend on what the script has set."""
        visit = self.visit
        assert visit is not None
        visit.ask = visit.service.ask(self.request, visit.route, stream=visit.ask.stream)
        visit.state.uri = visit.ask.uri
