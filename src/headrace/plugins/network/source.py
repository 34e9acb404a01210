"""The base of sources that get messages by a socket: what they share of parameters, start and end.

A source of messages overrides `convert`. Streams are patient: while the router has no room, the connection is not
read, and TCP holds its sender back. Datagrams cannot wait: what finds no room is dropped and counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, string, time
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.pipeline.throttle import Throttle
from headrace.plugins.network.clients import Names
from headrace.plugins.network.datagrams import DatagramServer
from headrace.plugins.network.streams import StreamServer
from headrace.plugins.patience import Emitter
from headrace.plugins.transport import Transport

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.plugins.network.clients import AllowList
    from headrace.plugins.network.frames import Frames
    from headrace.plugins.patience import Groups

SHOWN: Final = 256
"""Bytes of a message that a log line shows."""


class StreamTransport(Transport):
    """<transport tcp> and <transport tls> of sources whose connections are long."""

    send_keepalive_packet = boolean(default=None, doc="Let the system probe silent connections (SO_KEEPALIVE)")


class NetworkSource(Source):
    """What tcp, udp and syslog have in common."""

    multi_workers_ready = True

    bind = string(default="0.0.0.0", doc="Address to listen on")
    source_hostname_key = string(default=None, doc="Field that gets the name of the sender's machine")
    source_address_key = string(default=None, doc="Field that gets the sender's address")
    blocking_timeout = time(
        default=0.5, deprecated="it has no effect: nothing here waits in intervals", doc="No effect"
    )

    port: Any
    """Declared by each plugin, for each has a default of its own."""

    @property
    def kind_of_socket(self) -> str:
        """Tcp or udp."""
        return "tcp"

    def validate(self, problems: Problems) -> None:
        """Check the port."""
        super().validate(problems)
        if not 0 <= self.port < 65536:
            problems.error(f"port {self.port} is out of range", self.place_of("port"))

    @property
    def address(self) -> str:
        """The listening address."""
        host = self.bind
        return f"[{host}]:{self.port}" if ":" in host and not host.startswith("[") else f"{host}:{self.port}"

    @property
    def listen(self) -> ListenSpec:
        """The one socket."""
        return ListenSpec(self.address, kind=self.kind_of_socket, place=self.place_of("port"))

    def listeners(self) -> list[ListenSpec]:
        """One socket, which all workers share."""
        return [self.listen]

    async def start(self) -> None:
        """Prepare the figures; a plugin opens its server after it."""
        context = self.context
        self.messages = self.unmatched = self.too_long = self.denied = 0
        self.emitter = Emitter(self)
        self._server: StreamServer | DatagramServer | None = None
        self._names = Names(context.loop, context.clock) if self.source_hostname_key is not None else None
        self._lines = {name: Throttle() for name in ("unmatched", "too_long", "denied")}

    def serve_streams(self, transport: Transport, frames: Any, *, keepalive: bool, allowed: AllowList | None) -> None:
        """Take messages by TCP or TLS. frames: makes the `Frames` of a connection."""
        self._server = StreamServer(self, transport, frames, keepalive=keepalive, allowed=allowed)
        self._server.start()

    def serve_datagrams(self, limit: int, receive_buffer: int | None) -> None:
        """Take messages by UDP. limit: bytes of a message; what is longer is cut."""
        self._server = DatagramServer(self, limit, receive_buffer)
        self._server.start()

    def convert(self, message: bytes, extra: Record | None, groups: Groups) -> None:
        """Put the events of a message into `groups`, `extra` added to their records. Must not raise."""
        raise NotImplementedError

    # What the servers ask for.

    @property
    def wants_peer(self) -> bool:
        """Whether records show who sent them."""
        return self.source_address_key is not None or self.source_hostname_key is not None

    def extra_now(self, address: str) -> Record | None:
        """The fields that say who sent a message; None when the name must be looked up first."""
        extra: Record = {}
        if self.source_address_key is not None:
            extra[self.source_address_key] = address
        if self._names is not None:
            name = self._names.get(address)
            if name is None:
                return None
            extra[self.source_hostname_key] = name
        return extra

    async def extra_of(self, address: str) -> Record:
        """As `extra_now`, after looking the name up."""
        extra: Record = {}
        if self.source_address_key is not None:
            extra[self.source_address_key] = address
        if self._names is not None:
            extra[self.source_hostname_key] = await self._names.find(address)
        return extra

    def tell(self, what: str, level: int, message: str, *args: object) -> None:
        """Write a line at a bounded rate."""
        self._lines[what].log(self.log, level, message, *args)

    def not_matched(self, message: bytes, why: object = "") -> None:
        """Count a message that the parser does not take."""
        self.unmatched += 1
        reason = f" ({why})" if why else ""
        self.tell("unmatched", logging.WARNING, "pattern not matched%s: %r", reason, message[:SHOWN])

    def was_too_long(self, count: int, frames: Frames | None = None) -> None:
        """Count messages that were longer than is allowed."""
        self.too_long += count
        what = "cut" if frames is None else "dropped"
        self.tell("too_long", logging.WARNING, "a message is longer than message_length_limit and was %s", what)

    def deny(self, address: str) -> None:
        """Count a client that may not send."""
        self.denied += 1
        self.tell("denied", logging.WARNING, "anonymous client '%s' denied", address)

    # The end.

    async def quiesce(self) -> None:
        """Take nothing new, finish what came."""
        if getattr(self, "_server", None) is not None:
            assert self._server is not None
            await self._server.quiesce()

    async def stop(self) -> None:
        """Cut what is still open."""
        if getattr(self, "_server", None) is not None:
            assert self._server is not None
            self._server.stop()

    def stats(self) -> dict[str, Any]:
        """Messages and events; messages that were not matched, too long, refused by outputs; and of the sockets."""
        if not hasattr(self, "messages"):
            return {}
        figures = {
            "messages": self.messages,
            "events": self.emitter.events,
            "unmatched": self.unmatched,
            "too_long": self.too_long,
            "refused": self.emitter.refused,
            "held": self.emitter.held,
        }
        return figures | (self._server.stats() if self._server is not None else {})
