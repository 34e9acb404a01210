"""geo: variables by the client's address.

https://nginx.org/en/docs/http/ngx_http_geo_module.html
"""

from __future__ import annotations

import bisect
import ipaddress
from typing import TYPE_CHECKING, Final

from headrace.edge.connection import client_text
from headrace.edge.families.common import BaseFamily, block, table
from headrace.edge.families.maps import variable_name
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Networks:
    """Values by network; the longest prefix decides."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, bytes]] = {}
        self._lengths: dict[int, list[int]] = {4: [], 6: []}

    def add(self, network: Network, value: bytes) -> bytes | None:
        """Add one; returns the value that it replaces."""
        key = (network.version, network.prefixlen)
        if key not in self._tables:
            self._tables[key] = {}
            self._lengths[network.version] = sorted([*self._lengths[network.version], network.prefixlen], reverse=True)
        found = self._tables[key].get(int(network.network_address))
        self._tables[key][int(network.network_address)] = value
        return found

    def remove(self, network: Network) -> bool:
        """Remove one; whether it was there."""
        found = self._tables.get((network.version, network.prefixlen), {})
        return found.pop(int(network.network_address), None) is not None

    def find(self, address: Address) -> bytes | None:
        """The value of the smallest network that holds an address."""
        number, bits = int(address), address.max_prefixlen
        for length in self._lengths[address.version]:
            value = self._tables[address.version, length].get(number >> (bits - length) << (bits - length))
            if value is not None:
                return value
        return None


class Ranges:
    """Values by ranges of IPv4 addresses; a later range covers an earlier one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[bytes] = []

    def remove(self, first: int, last: int) -> bool:
        """Remove a range that is there in just these bounds; whether it was."""
        at = bisect.bisect_left(self._ends, first)
        if at >= len(self._starts) or (self._starts[at], self._ends[at]) != (first, last):
            return False
        for part in (self._starts, self._ends, self._values):
            del part[at]
        return True

    def _cut(self, first: int, last: int) -> None:
        """Make a hole."""
        at = bisect.bisect_left(self._ends, first)
        while at < len(self._starts) and self._starts[at] <= last:
            start, end, value = self._starts[at], self._ends[at], self._values[at]
            for part in (self._starts, self._ends, self._values):
                del part[at]
            if end > last:
                self._insert(at, last + 1, end, value)
            if start < first:
                self._insert(at, start, first - 1, value)
                at += 1

    def _insert(self, at: int, first: int, last: int, value: bytes) -> None:
        self._starts.insert(at, first)
        self._ends.insert(at, last)
        self._values.insert(at, value)

    def add(self, first: int, last: int, value: bytes) -> None:
        """Add a range, over what is there."""
        self._cut(first, last)
        self._insert(bisect.bisect_left(self._starts, first), first, last, value)

    def find(self, address: Address) -> bytes | None:
        """The value of the range that holds an address."""
        number = int(address)
        at = bisect.bisect_left(self._ends, number)
        if address.version == 4 and at < len(self._starts) and self._starts[at] <= number:
            return self._values[at]
        return None


class Geo:
    """One geo block."""

    def __init__(self, directive: Directive, source: Value | None, places: list[tuple[Directive, str]]) -> None:
        self.source = source
        self.default = b""
        self.proxies: list[Network] = []
        self.recursive = False
        self.networks = Networks()
        self.ranges: Ranges | None = None
        self._warn = places
        for index, entry in enumerate(directive.block or ()):
            self._read(entry, first=index == 0)

    def _read(self, entry: Directive, *, first: bool) -> None:
        words = [entry.name, *entry.args]
        if words == ["ranges"]:
            if not first:
                raise ConfError('the "ranges" directive must be the first directive inside "geo" block', entry.place)
            self.ranges = Ranges()
        elif words == ["proxy_recursive"]:
            self.recursive = True
        elif len(words) != 2 or entry.block is not None:
            raise ConfError("invalid number of the geo parameters", entry.place)
        elif words[0] == "proxy":
            self.proxies.append(_network(words[1], entry))
        elif words[0] == "default":
            self.default = to_bytes(words[1])
        elif self.ranges is not None:
            self._range(self.ranges, entry, words)
        elif words[0] == "delete":
            if not self.networks.remove(_network(words[1], entry)):
                self._warn.append((entry, f'no network "{words[1]}" to delete'))
        else:
            network = _network(words[0], entry)
            replaced = self.networks.add(network, to_bytes(words[1]))
            if replaced is not None:
                was = replaced.decode("utf-8", "replace")
                message = f'duplicate network "{words[0]}", value: "{words[1]}", old value: "{was}"'
                self._warn.append((entry, message))

    def _range(self, ranges: Ranges, entry: Directive, words: list[str]) -> None:
        delete = words[0] == "delete"
        text = words[1] if delete else words[0]
        low, dash, high = text.partition("-")
        try:
            first, last = int(ipaddress.IPv4Address(low)), int(ipaddress.IPv4Address(high if dash else low))
        except ValueError:
            raise ConfError(f'invalid range "{text}"', entry.place) from None
        if first > last or not dash:
            raise ConfError(f'invalid range "{text}"', entry.place)
        if delete:
            if not ranges.remove(first, last):
                self._warn.append((entry, f'no address range "{text}" to delete'))
        else:
            ranges.add(first, last, to_bytes(words[1]))

    def get(self, request: Request) -> bytes:
        """The value for a request."""
        address = self._address(request)
        if address is None:
            address = NOWHERE
        found = (self.ranges or self.networks).find(address)
        return self.default if found is None else found

    def _address(self, request: Request) -> Address | None:
        if self.source is not None:
            return parse_address(evaluate(self.source, request))
        address = parse_address(client_text(request))
        if not self.proxies or address is None:
            return address
        values = [value for name, value in request.headers_in() if name.lower() == b"x-forwarded-for"]
        return forwarded(address, values, self.proxies, recursive=self.recursive)


NOWHERE: Final = ipaddress.IPv4Address("255.255.255.255")
"""What stands for a client without an address: a unix socket, a text that is none."""


class GeoFamily(BaseFamily):
    """geo."""

    specs = table(block("geo", ("http",), 1, 2, data=True))

    @staticmethod
    def _do_geo(scope: Scope, directive: Directive) -> None:
        name = variable_name(directive, directive.args[-1])
        variables = scope.build.variables
        source = compile_value(directive.args[0], variables, directive.place) if len(directive.args) == 2 else None
        warnings: list[tuple[Directive, str]] = []
        made = Geo(directive, source, warnings)
        for entry, message in warnings:
            scope.build.problems.warn(message, entry.place)
        get: Callable[[Request], bytes] = made.get
        variables.define(name, get)


def _network(text: str, entry: Directive) -> Network:
    if text == "default":
        return ipaddress.ip_network("0.0.0.0/0")
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfError(f'invalid network "{text}"', entry.place) from None


def parse_address(text: bytes) -> Address | None:
    """An address, a mapped one as IPv4; None for anything else."""
    try:
        address = ipaddress.ip_address(text.decode("latin-1").strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def forwarded(address: Address, values: Iterable[bytes], trusted: list[Network], *, recursive: bool) -> Address:
    """The client behind trusted proxies, by X-Forwarded-For values in the order of the header.

    recursive: the last address that is not trusted; else the last of the list.
    """
    texts = [text for value in values for text in value.split(b",")]
    while texts and any(address.version == network.version and address in network for network in trusted):
        found = parse_address(texts.pop())
        if found is None:
            break
        address = found
        if not recursive:
            break
    return address
