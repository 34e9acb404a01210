"""Names and addresses: literals at once, and a short, bounded memory of what the resolver said.

Each question to the resolver costs a thread, and a dialler without kept connections asks before every
request. A `Names` belongs to one dialler; what it remembers is at most `seconds` old.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import Any, Final

Addresses = list[tuple[int, Any]]
"""(family, address as sockets take it), in the order to try."""

KEPT_SECONDS: Final = 1.0
KEPT_NAMES: Final = 64


@lru_cache(maxsize=256)
def _family(host: str) -> int | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


def literal(host: str, port: int) -> Addresses | None:
    """The address that `host` already is; None for a name."""
    family = _family(host)
    if family is None:
        return None
    return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]


class Names:
    """The addresses of a few names for a moment. seconds: how long; limit: how many names."""

    def __init__(self, seconds: float = KEPT_SECONDS, limit: int = KEPT_NAMES) -> None:
        self._seconds = seconds
        self._limit = limit
        self._found: dict[tuple[str, int], tuple[float, Addresses]] = {}

    def find(self, host: str, port: int, now: float) -> Addresses | None:
        """What is remembered and not too old at `now` (seconds, any clock)."""
        entry = self._found.get((host, port))
        return entry[1] if entry is not None and now - entry[0] < self._seconds else None

    def keep(self, host: str, port: int, addresses: Addresses, now: float) -> None:
        """Remember an answer that came at `now`."""
        if len(self._found) >= self._limit:
            self._found.clear()
        self._found[host, port] = (now, addresses)

    def prefer(self, host: str, port: int, address: tuple[int, Any]) -> None:
        """Try this address first as long as the answer is kept: those before it did not work."""
        entry = self._found.get((host, port))
        if entry is not None and address in entry[1]:
            rest = [one for one in entry[1] if one != address]
            self._found[host, port] = (entry[0], [address, *rest])
