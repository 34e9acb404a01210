"""The upstream of a location, in whatever protocol: where a request goes, what is sent, who reads the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.stream import Stream
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import Ask
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.settings import Settings
    from headrace.edge.upstream.visit import Visit


@dataclass(slots=True)
class Route:
    """Where a request goes. scheme: for logs; host: for the Host field and for TLS; uri: what replaces the location."""

    group: Group
    scheme: bytes
    host: bytes
    port: bytes
    uri: bytes = b""
    literal: bool = False
    """The URI is sent as it is (it came from variables)."""
    tls: bool = False


class Unroutable(Exception):
    """A request that leads nowhere: what to log, and the status to answer."""

    def __init__(self, message: bytes, status: int = 502) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Pump(Protocol):
    """Sends the rest of a request. complete: all of it is on its way."""

    complete: bool

    @property
    def running(self) -> bool:
        """It waits for the client or for the upstream."""
        ...

    def stop(self) -> None:
        """The upstream wants no more."""
        ...


class Service(Protocol):
    """The upstream of one location, and the protocol it speaks."""

    settings: Settings

    def route(self, request: Request) -> Route | Awaitable[Route]:
        """Where the request goes. Raises Unroutable, in the call or in the awaitable (a name has to be asked for)."""
        ...

    def cache_key(self, request: Request, route: Route) -> bytes:
        """The key of an answer in a cache where none is configured."""
        ...

    def may_stream(self, request: Request) -> bool:
        """The protocol can carry the request body while it arrives."""
        ...

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """The request as the upstream gets it."""
        ...

    def talk(self, visit: Visit, stream: Stream) -> tuple[Pump | None, Reader]:
        """Send the request: what still goes on sending it, and what reads the answer."""
        ...
