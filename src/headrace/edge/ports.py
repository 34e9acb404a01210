"""Which servers share which socket: `listen` directives of all servers brought together.

A wildcard socket takes the connections of single addresses with the same port too, as in nginx (unless `bind` or
another option asks for a socket of its own).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.edge.listen import Address, ListenSpec
from headrace.edge.server import Hosts, Port, Server
from headrace.edge.servernames import ServerName
from headrace.edge.tlshttp import TlsPort, VerifyingPort
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.conf.params import Problems
    from headrace.edge.families.http import ServerDraft
    from headrace.edge.gateway import Gateway
    from headrace.errors import Place


_PROTOCOLS: Final = ("tls", "proxy_protocol", "http2")
"""What connections of an address speak, when any of its `listen` says so."""


class _Address:
    """What all servers say about one address."""

    def __init__(self, spec: ListenSpec) -> None:
        self.spec = spec
        self.default: Server | None = None
        self.servers: list[Server] = []

    def add(self, spec: ListenSpec, server: Server, place: Place) -> None:
        mine = self.spec
        if self.servers:
            if spec.explicit and mine.explicit and _options(spec) != _options(mine):
                raise ConfError(f"duplicate listen options for {spec.text}", place)
            if spec.explicit:
                mine = replace(spec, **{name: getattr(mine, name) for name in _PROTOCOLS})
            self.spec = replace(mine, **{name: getattr(spec, name) or getattr(mine, name) for name in _PROTOCOLS})
        if spec.default_server:
            if self.default is not None:
                raise ConfError(f"a duplicate default server for {spec.text}", place)
            self.default = server
        self.servers.append(server)

    def hosts(self, problems: Problems) -> Hosts:
        hosts = Hosts(self.default or self.servers[0])
        for server in self.servers:
            for name in server.names or [ServerName("exact", "")]:
                if name.kind == "none" and len(self.servers) > 1:
                    raise ConfError(f'invalid server name or wildcard "{name.text}" on {self.spec.text}')
                if not hosts.table.add(name, server):
                    problems.warn(f'conflicting server name "{name.shown.decode()}" on {self.spec.text}, ignored')
        hosts.seal()
        hosts.servers = tuple(self.servers)
        self._check_certificates(hosts.default)
        return hosts

    def _check_certificates(self, default: Server) -> None:
        """A client must be answered by some certificate, or be rejected. Raises ConfError."""
        tls = default.tls
        if not self.spec.tls or tls is None:  # None: it is reported already why
            return
        for server in self.servers if tls.reject else (default,):
            one = server.tls
            if one is not None and not one.certified and not one.reject:
                text = 'no "ssl_certificate" is defined for the "listen ... ssl" directive'
                raise ConfError(text, server.location.scope.place)


def _options(spec: ListenSpec) -> tuple[object, ...]:
    return (spec.backlog, spec.reuseport, spec.ipv6only, spec.options)


def make_ports(drafts: Sequence[tuple[ServerDraft, Server]], gateway: Gateway, problems: Problems) -> list[Port]:
    """The ports of all servers. Raises ConfError for listens that contradict each other."""
    addresses: dict[Address, _Address] = {}
    for draft, server in drafts:
        place = draft.scope.place
        assert place is not None
        for spec, where in draft.listens or [(_implicit(), place)]:
            known = addresses.setdefault(spec.address, _Address(spec))
            known.add(spec, server, where)
    verify = any(server.tls is not None and server.tls.checks for _, server in drafts)
    secure = VerifyingPort if verify else TlsPort
    wildcards = {key[1]: found for key, found in addresses.items() if found.spec.wildcard and _is_v4(key)}
    ports: dict[Address, Port] = {}
    for key, found in addresses.items():
        if not _shares(key, found, wildcards):
            kind = secure if found.spec.tls else Port
            ports[key] = kind(found.spec, found.hosts(problems), gateway)
    for key, found in addresses.items():
        if _shares(key, found, wildcards):
            ports[wildcards[key[1]].spec.address].local[str(key[0])] = found.hosts(problems)
    return list(ports.values())


def _implicit() -> ListenSpec:
    """A server without `listen`: port 80, or 8000 for a user who may not have it."""
    return ListenSpec(("0.0.0.0", 80 if os.geteuid() == 0 else 8000))


def _is_v4(key: Address) -> bool:
    return not isinstance(key, str) and ":" not in key[0]


def _shares(key: Address, found: _Address, wildcards: dict[int | str, _Address]) -> bool:
    if isinstance(key, str) or not _is_v4(key) or found.spec.wildcard or found.spec.explicit:
        return False
    wildcard = wildcards.get(key[1])
    return wildcard is not None and all(getattr(wildcard.spec, n) == getattr(found.spec, n) for n in _PROTOCOLS)
