"""Who may send (the <security> section), and the names of addresses."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, section, string
from headrace.errors import Timeout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from headrace.conf.params import Problems
    from headrace.core.clock import Clock

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEPT: Final = 1024
"""Names that are remembered at the most."""
_KEPT_FOR: Final = 300.0
"""Seconds for which a name is remembered."""
_PATIENCE: Final = 2.0
"""Seconds that a name is waited for; then the address stands in for it."""


class Client(Configurable):
    """One client, or a network of them."""

    host = string(default=None, doc="Address or name of a client")
    network = string(default=None, doc="Network of clients, such as 10.0.0.0/8")

    def validate(self, problems: Problems) -> None:
        """Read the network; a name is looked up now, as in Fluentd."""
        self.networks: list[Network] = []
        if (self.host is None) == (self.network is None):
            problems.error("<client> needs host or network, one of them", self.place)
        elif self.host is not None:
            try:
                found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                problems.error(f'host "{self.host}" cannot be resolved', self.place_of("host"))
                return
            self.networks = [ipaddress.ip_network(str(entry[4][0]).partition("%")[0]) for entry in found]
        else:
            try:
                self.networks = [ipaddress.ip_network(self.network or "", strict=False)]
            except ValueError:
                problems.error(f'network "{self.network}" is no network', self.place_of("network"), hint="10.0.0.0/8")


class Security(Configurable):
    """Who may send."""

    clients = section(Client, name="client", multi=True, required=True, doc="A client that may send")

    def allows(self) -> AllowList:
        """The list for the whole section."""
        return AllowList(network for client in self.clients for network in client.networks)


class AllowList:
    """Tells whether an address is in one of some networks."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = list(networks)

    def __contains__(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)


class Names:
    """Names of addresses, looked up in the background and remembered for a while; bounded."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}

    def get(self, address: str) -> str | None:
        """The name of an address, if it is remembered."""
        found = self._known.get(address)
        return found[1] if found is not None and self._clock.now() < found[0] else None

    async def find(self, address: str) -> str:
        """The name of an address, or the address when it has none."""
        known = self.get(address)
        if known is not None:
            return known
        try:
            async with self._clock.timeout(_PATIENCE):
                name, _service = await self._loop.getnameinfo((address, 0), 0)
        except (OSError, UnicodeError, Timeout):
            name = address
        if len(self._known) >= _KEPT:
            del self._known[next(iter(self._known))]
        self._known[address] = (self._clock.now() + _KEPT_FOR, name)
        return name
