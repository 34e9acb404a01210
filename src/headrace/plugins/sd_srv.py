"""`<service_discovery> @type srv`: the nodes that SRV records of the DNS name (RFC 2782).

`_SERVICE._PROTO.HOSTNAME` is asked at the start and then every `interval` seconds. An answer that does not come,
or names nobody, changes nothing: the nodes known before stay, and one line tells. While no node is known at all
the question is repeated more often, and the output keeps its events.

As in Fluentd, nodes of every priority are used, those of a lower number first in the list; the weight is the
record's. A weight of 0 means no load, except where all records have it, which is how the RFC writes "all alike".

https://docs.fluentd.org/service_discovery/srv
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, integer, string
from headrace.core.names import literal
from headrace.pipeline.discovery import DEFAULT_WEIGHT, Service, ServiceDiscovery
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

    from headrace.conf.params import Problems

LIFETIME: Final = 10.0
"""Seconds for one question, all servers and repetitions together."""
RETRY: Final = 5.0
"""Seconds until the next question while no node is known."""


class SrvDiscovery(ServiceDiscovery):
    """Nodes from the DNS."""

    service = string(doc="The service, without its underscore: _SERVICE._PROTO.HOSTNAME is looked up")
    proto = string(default="tcp", doc="The protocol, without its underscore")
    hostname = string(doc="The domain in which the service is looked up")
    dns_server_host = string(
        default=None, doc="The name server to ask, HOST or HOST:PORT; absent: those of /etc/resolv.conf"
    )
    interval = integer(default=60, doc="Seconds between two questions")
    dns_lookup = boolean(default=True, doc="Send to the address of each target, rather than to its name")
    shared_key = string(default=None, secret=True, doc="The key shared with these nodes, instead of that of <security>")
    username = string(default="", doc="User, for nodes that ask for one")
    password = string(default="", secret=True, doc="Password of that user")

    def validate(self, problems: Problems) -> None:
        """Check the interval and the server."""
        if self.interval < 1:
            problems.error('parameter "interval" must be at least 1', self.place_of("interval"))
        if self.dns_server_host is not None:
            try:
                _host_port(self.dns_server_host)
            except ValueError as error:
                problems.error(str(error), self.place_of("dns_server_host"))

    @property
    def target(self) -> str:
        """The name of the records."""
        return f"_{self.service}._{self.proto}.{self.hostname}"

    async def start(self) -> None:
        """Ask once, and go on asking."""
        self._failures = Throttle(burst=1)
        await self._ask()
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(
            self._watch(), name=f"srv {self.target}"
        )

    async def _watch(self) -> None:
        while True:
            await self.context.clock.sleep(self.interval if self.services else min(RETRY, self.interval))
            await self._ask()

    async def _ask(self) -> None:
        try:
            services = await self._lookup()
        except Exception as error:  # noqa: BLE001 - the next question may be answered, whatever became of this one
            services, reason = [], str(error) or type(error).__name__
        else:
            reason = "no records"
        if services:
            self.found(services)
        else:
            message = "%s cannot be looked up: %s; %d nodes are known"
            self._failures.log(self.log, logging.WARNING, message, self.target, reason, len(self.services))

    async def _lookup(self) -> list[Service]:
        resolver = await self._resolver()
        answer = await resolver.resolve(self.target, "SRV", lifetime=LIFETIME)
        # Name servers turn records round: the list must be another only when the nodes are.
        records = sorted(answer, key=_order)
        alike = all(record.weight == 0 for record in records)
        used = {(service.name, service.port): service.host for service in self.services}
        services = []
        for record in records:
            name = record.target.to_text(omit_final_dot=True)
            host: str | None = name
            if self.dns_lookup:
                host = await self._address(resolver, name, used.get((name, record.port)))
            if host is None:
                continue
            weight = DEFAULT_WEIGHT if alike else record.weight
            services.append(
                Service(host, record.port, name, weight, False, self.username, self.password, self.shared_key)
            )
        return services

    async def _address(self, resolver: Resolver, name: str, used: str | None) -> str | None:
        """An address of a target: the one in use, while the name has it or cannot be asked for; None: there is none."""
        from dns.exception import DNSException  # noqa: PLC0415 - as in _resolver

        try:
            addresses = list((await resolver.resolve_name(name, lifetime=LIFETIME)).addresses())
        except DNSException as error:
            message = "the target %s of %s cannot be looked up: %s"
            self._failures.log(self.log, logging.WARNING, message, name, self.target, error)
            return used
        return used if used in addresses else addresses[0]

    async def _resolver(self) -> Resolver:
        from dns.asyncresolver import Resolver  # noqa: PLC0415 - only this plugin needs it

        if self.dns_server_host is None:
            return Resolver()
        host, port = _host_port(self.dns_server_host)
        if literal(host, port) is None:  # the resolver takes addresses only
            found = await self.context.loop.getaddrinfo(host, port)
            host = str(found[0][4][0])
        resolver = Resolver(configure=False)
        resolver.nameservers = [host]
        resolver.port = port
        return resolver

    async def stop(self) -> None:
        """Ask no more."""
        task, self._task = getattr(self, "_task", None), None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _order(record: Any) -> tuple[int, Any, int]:
    return record.priority, record.target, record.port


def _host_port(text: str) -> tuple[str, int]:
    """HOST, HOST:PORT, or an address of IPv6 with or without brackets."""
    host, port = text, "53"
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or "53"
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f'dns_server_host "{text}" is no HOST or HOST:PORT')
    return host, int(port)
