"""Service discovery: which nodes an output may send to, and how it hears that they changed.

A discovery plugin (kind "sd", files sd_*.py) keeps a list of `Service`. It has its first list when its
`start` has ended, which comes before the start of the output that it belongs to; from then on it calls
`found` with each new list. The output reads `services` and gives `watch` a callback for changes.

https://docs.fluentd.org/service_discovery
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_PORT: Final = 24224
DEFAULT_WEIGHT: Final = 60


@dataclass(frozen=True, slots=True)
class Service:
    """One node. Two that differ in anything are two nodes.

    name: for logs, and for the certificate where host is an address. weight: its part of the load; 0: none.
    standby: only used while others are down. shared_key: None where the output has one for all.
    """

    host: str
    port: int = DEFAULT_PORT
    name: str | None = None
    weight: int = DEFAULT_WEIGHT
    standby: bool = False
    username: str = ""
    password: str = field(default="", repr=False)
    shared_key: str | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """What logs and figures call it."""
        return self.name or f"{self.host}:{self.port}"


class ServiceDiscovery(Plugin):
    """A plugin that knows where the nodes of an output are. It calls `found` when that changes."""

    kind = "sd"

    _services: tuple[Service, ...] = ()
    _changed: Callable[[], None] | None = None

    @property
    def services(self) -> tuple[Service, ...]:
        """The nodes of this moment, in their order."""
        return self._services

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `services` is another list than before."""
        self._changed = changed

    def found(self, services: Iterable[Service]) -> None:
        """Take a new list; a node that it names twice counts once."""
        fresh = tuple(dict.fromkeys(services))
        if fresh == self._services:
            return
        before, self._services = self._services, fresh
        if self._changed is None:
            return
        for service in fresh:
            if service not in before:
                self.log.info("service in: %s, %s:%d", service.title, service.host, service.port)
        for service in before:
            if service not in fresh:
                self.log.info("service out: %s, %s:%d", service.title, service.host, service.port)
        self._changed()

    def stats(self) -> dict[str, Any]:
        """How many nodes are known."""
        return {"services": len(self._services)}
