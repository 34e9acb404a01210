"""ngx.balancer: what a script says about the try that begins. It runs within the chooser and cannot wait.

https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/balancer.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.core.names import literal

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.edge.upstream.steer import Steered


def _host(text: str) -> str:
    """The host of `host`, `host:port` or `[host]:port`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0]


class BalancerApi:
    """requests: live requests by handle. steered: the chooser that asks at this moment."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.steered: Steered | None = None

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = ("peer", "more_tries", "last_failure", "timeouts", "keepalive", "recreate", "tls", "local")
        found = {f"balancer_{name}": getattr(self, f"balancer_{name}") for name in names}
        return {"has_upstream": self.has_upstream, **found}

    def has_upstream(self, request_id: int) -> int:
        """1 when the request has visited, or visits, an upstream."""
        return 1 if self.requests[request_id].upstream is not None else 0

    def _now(self) -> Steered:
        assert self.steered is not None
        return self.steered

    def balancer_peer(self, host: bytes, port: int, name: bytes | None) -> bytes | None:
        """Ask this address. Returns why that cannot be."""
        why = self._now().set_peer(host.decode("latin-1"), int(port), name)
        return why.encode() if why is not None else None

    def balancer_more_tries(self, count: int) -> bytes | None:
        """Returns a warning when there are fewer."""
        warning = self._now().set_more_tries(int(count))
        return warning.encode() if warning is not None else None

    def balancer_last_failure(self) -> tuple[bytes, int] | None:
        """How the last try ended."""
        found = self._now().last_failure()
        return (found[0].encode(), found[1]) if found is not None else None

    def balancer_timeouts(self, connect: float, send: float, read: float) -> None:
        """Seconds; 0: as configured."""
        self._now().set_timeouts(connect, send, read)

    def balancer_keepalive(self, timeout: float, requests: int) -> None:
        """Keep the connection of this try."""
        self._now().keep_alive(timeout, int(requests))

    def balancer_recreate(self) -> None:
        """Make the request anew."""
        self._now().renew()

    def balancer_tls(self, on: int) -> bytes | None:
        """TLS for this try, or none. Returns why that cannot be."""
        now = self._now()
        assert now.visit is not None
        if on and now.visit.settings.tls is None:
            return b"no upstream ssl settings found"
        now.tls = bool(on)
        return None

    def balancer_local(self, text: bytes) -> bytes | None:
        """The address to connect from, with or without a port. Returns why that cannot be."""
        address = text.decode("latin-1")
        if literal(_host(address), 0) is None:
            return b"invalid address"
        self._now().local = address
        return None
