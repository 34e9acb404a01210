"""`<service_discovery> @type static`: the nodes that the configuration lists.

https://docs.fluentd.org/service_discovery/static
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, boolean, integer, section, string
from headrace.pipeline.discovery import DEFAULT_PORT, DEFAULT_WEIGHT, Service, ServiceDiscovery

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context


class ServerSection(Configurable):
    """One node: <server> of the forward output, <service> or <server> of `static`."""

    host = string(doc="Its address or host name")
    name = string(
        default=None, doc="Its name: for logs, and for the certificate where host is an address; default: HOST:PORT"
    )
    port = integer(default=DEFAULT_PORT, doc="Its TCP port; heartbeats by UDP go to the same number")
    shared_key = string(default=None, secret=True, doc="The key shared with this node, instead of that of <security>")
    username = string(default="", doc="User, for nodes that ask for one")
    password = string(default="", secret=True, doc="Password of that user")
    standby = boolean(default=False, doc="Only used while others are down")
    weight = integer(default=DEFAULT_WEIGHT, doc="Its part of the load, beside the others'; 0: none")

    def validate(self, problems: Problems) -> None:
        """Check the ranges."""
        for message in wrong(self.service()):
            problems.error(message, self.place)

    def service(self) -> Service:
        """The node."""
        return Service(
            self.host, self.port, self.name, self.weight, self.standby, self.username, self.password, self.shared_key
        )


def wrong(service: Service) -> list[str]:
    """What no node can have, in sentences."""
    messages = []
    if not service.host:
        messages.append("host is empty")
    if not 0 < service.port < 65536:
        messages.append(f"port {service.port} is out of range")
    if service.weight < 0:
        messages.append("weight cannot be negative")
    return messages


class StaticDiscovery(ServiceDiscovery):
    """Nodes that never change."""

    service = section(ServerSection, multi=True, doc="A node")
    server = section(ServerSection, multi=True, doc="The same")

    def provision(self, context: Context) -> None:
        """Take the list."""
        self.found([one.service() for one in (*self.service, *self.server)])
