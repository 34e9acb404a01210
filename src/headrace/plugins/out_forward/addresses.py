"""The addresses of a node's name, as dns_round_robin and expire_dns_cache want them."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from headrace.core.names import Names

if TYPE_CHECKING:
    from headrace.core.names import Addresses


class NodeNames(Names):
    """What the resolver said of one node. seconds: how long that counts, None for ever, 0 not at all.

    shuffled: another order each time, so that connections spread over all addresses. A name has several addresses
    as a rule: the others are tried when the first does not answer.
    """

    def __init__(self, seconds: float | None = None, *, shuffled: bool = False) -> None:
        super().__init__(math.inf if seconds is None else seconds)
        self._shuffled = shuffled

    def find(self, host: str, port: int, now: float) -> Addresses | None:
        """See `Names.find`."""
        found = super().find(host, port, now)
        return self._mixed(found) if found is not None and self._shuffled else found

    def keep(self, host: str, port: int, addresses: Addresses, now: float) -> None:
        """See `Names.keep`; the list itself is put into the order in which it is to be tried now."""
        if self._shuffled:
            addresses[:] = self._mixed(addresses)
        super().keep(host, port, addresses, now)

    @staticmethod
    def _mixed(addresses: Addresses) -> Addresses:
        return random.sample(addresses, len(addresses))

    def forget(self) -> None:
        """Ask again the next time."""
        self._found.clear()
