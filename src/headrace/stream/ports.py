"""Which servers share which socket, and which of them a client means by the name that its TLS hello gives.

https://nginx.org/en/docs/stream/ngx_stream_core_module.html#server_name
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.edge.servernames import NameTable, ServerName
from headrace.edge.tlsport import PortTls
from headrace.errors import ConfError

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from headrace.conf.params import Problems
    from headrace.core.datagram import DatagramListener
    from headrace.core.listener import Listener
    from headrace.edge.listen import ListenSpec
    from headrace.errors import Place
    from headrace.stream.service import StreamServer


class StreamPort:
    """One listening socket of the block. server: that of clients who name none, or nobody's name."""

    def __init__(self, spec: ListenSpec, servers: Sequence[StreamServer], server: StreamServer) -> None:
        self.spec = spec
        self.servers = tuple(servers)
        self.server = server
        self.table: NameTable[StreamServer] = NameTable(server)
        self.single = len(self.servers) == 1
        self.listener: Listener | DatagramListener | None = None

    def find(self, name: bytes) -> tuple[StreamServer, re.Match[bytes] | None]:
        """The server of a name, and the match when a regular expression decided."""
        return self.table.find(name.lower().rstrip(b"."))

    def tls(self) -> PortTls | None:
        """What TLS connections use."""
        tls = self.server.tls
        if not self.spec.tls or tls is None or tls.context is None:
            return None
        choose = None if self.single else lambda name: self.find(name.encode("latin-1", "replace"))[0]
        made = PortTls(self, self.server, choose)
        made.use([one.tls for one in self.servers if one.tls is not None])
        return made


class _Draft:
    def __init__(self, spec: ListenSpec) -> None:
        self.spec = spec
        self.default: StreamServer | None = None
        self.servers: list[StreamServer] = []

    def add(self, spec: ListenSpec, server: StreamServer, place: Place) -> None:
        if any(one is server for one in self.servers):
            raise ConfError(f"a duplicate listen {spec.text}", place)
        tls, proxied = self.spec.tls or spec.tls, self.spec.proxy_protocol or spec.proxy_protocol
        if self.servers and spec.explicit:
            if self.spec.explicit and _options(spec) != _options(self.spec):
                raise ConfError(f"duplicate listen options for {spec.text}", place)
            self.spec = spec
        self.spec = replace(self.spec, tls=tls, proxy_protocol=proxied)
        if spec.default_server:
            if self.default is not None:
                raise ConfError(f"a duplicate default server for {spec.text}", place)
            self.default = server
        self.servers.append(server)

    def port(self, problems: Problems) -> StreamPort:
        made = StreamPort(self.spec, self.servers, self.default or self.servers[0])
        for server in self.servers:
            for name in server.names or [ServerName("exact", "")]:
                if not made.table.add(name, server):
                    problems.warn(f'conflicting server name "{name.shown.decode()}" on {self.spec.text}, ignored')
        tls = made.server.tls
        if self.spec.tls and not (tls is not None and (tls.certified or tls.reject)):
            raise ConfError('no "ssl_certificate" is defined for the "listen ... ssl" directive', made.server.place)
        return made


def _options(spec: ListenSpec) -> tuple[Any, ...]:
    return (spec.backlog, spec.reuseport, spec.ipv6only, spec.options)


class Ports:
    """The sockets of the block, while it is read."""

    def __init__(self) -> None:
        self._drafts: dict[Any, _Draft] = {}

    def add(self, spec: ListenSpec, server: StreamServer, place: Place) -> None:
        """A `listen` of a server. Raises ConfError for listens that contradict each other."""
        self._drafts.setdefault(spec.socket_key, _Draft(spec)).add(spec, server, place)

    def made(self, problems: Problems) -> list[StreamPort]:
        """All of them."""
        return [draft.port(problems) for draft in self._drafts.values()]
