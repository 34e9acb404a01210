"""The source `forward`: parameters, start and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import boolean, integer, section, size, string, time
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.pipeline.router import Router
from headrace.plugins.forward import entries
from headrace.plugins.in_forward.heartbeat import Heartbeats
from headrace.plugins.in_forward.intake import Terms
from headrace.plugins.in_forward.security import Security
from headrace.plugins.in_forward.server import ForwardServer
from headrace.plugins.network.source import StreamTransport

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context

BACKLOG = 1024


class ForwardInput(Source):
    """Takes events of Fluentd, Fluent Bit, fluent-logger and headrace; answers heartbeats by UDP."""

    multi_workers_ready = True

    port = integer(default=24224, doc="Port to listen on, for TCP and for heartbeats by UDP")
    bind = string(default="0.0.0.0", doc="Address to listen on")
    backlog = integer(default=None, doc="Connections that may wait to be accepted; default: 1024")
    tag = string(default=None, doc="The tag of all events, in place of theirs")
    add_tag_prefix = string(default=None, doc="Put before each tag, with a dot between")
    linger_timeout = integer(
        default=None, deprecated="write it in a <transport tcp> section", doc="See <transport>, linger_timeout"
    )
    blocking_timeout = time(
        default=0.5, deprecated="it has no effect: nothing here waits in intervals", doc="No effect"
    )
    resolve_hostname = boolean(
        default=None, doc="Look up the names of clients, for the log; on with source_hostname_key"
    )
    deny_keepalive = boolean(default=False, doc="Close each connection after its first message")
    send_keepalive_packet = boolean(default=False, doc="Let the system probe silent connections (SO_KEEPALIVE)")
    chunk_size_warn_limit = size(default=None, doc="Warn of messages with more bytes than this")
    chunk_size_limit = size(
        default=None,
        doc="Drop messages with more bytes than this, without an acknowledgement. Packed entries of more than 256 MiB, "
        "and other messages of more than 16 MiB, are never read",
    )
    unfinished_size_limit = size(
        default=256 << 20,
        doc="Bytes of messages that have not come whole, over all connections; past them a connection that holds a "
        "part of a message is not read until others have finished. 0: any",
    )
    decompression_size_limit = size(
        default=entries.EXPANDED_LIMIT, doc="Largest entries after gzip or zstd is undone; larger ones are refused"
    )
    decompression_ratio_limit = integer(
        default=entries.RATIO_LIMIT,
        doc="Compressed entries that grow past 16 MiB may grow to so many times their size; 0: to any",
    )
    skip_invalid_event = boolean(
        default=None,
        doc="true: look at each event as it arrives and leave out what is none. Otherwise a packed message is looked "
        "into only when its first event is unusual, and what is no event is left out by whoever decodes it first",
    )
    deduplicate = boolean(
        default=True,
        doc='Leave out a chunk whose id (option "chunk", at least 16 characters) and tag each output of the way has in '
        "its buffer already, or had among the last 65,536, and acknowledge it again. With `@type file` buffers also "
        "across a restart. Fluentd stores the repetition",
    )
    source_address_key = string(default=None, doc="Field that gets the sender's address")
    source_hostname_key = string(default=None, doc="Field that gets the name of the sender's machine")
    transport = section(StreamTransport, name="transport", argument="protocol", doc="Plain TCP or TLS")
    security = section(Security, name="security", doc="Who may send, and how they prove it")

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        if not 0 <= self.port < 65536:
            problems.error(f"port {self.port} is out of range", self.place_of("port"))
        for name in ("tag", "add_tag_prefix"):
            if getattr(self, name) == "":
                problems.error(f"'{name}' parameter must not be empty", self.place_of(name))
        if self.source_hostname_key is not None and self.resolve_hostname is False:
            problems.error("resolve_hostname must be true with source_hostname_key", self.place_of("resolve_hostname"))
        if self.send_keepalive_packet and self.deny_keepalive:
            problems.error(
                "both 'send_keepalive_packet' and 'deny_keepalive' cannot be set to true",
                self.place_of("send_keepalive_packet"),
            )
        for name in ("backlog", "chunk_size_limit", "decompression_size_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))

    def provision(self, context: Context) -> None:
        """Bring the older place of linger_timeout to the newer one."""
        self._server: ForwardServer | None = None
        self._heartbeats: Heartbeats | None = None
        if self.linger_timeout is not None and self.transport.linger_timeout is None:
            self.transport.linger_timeout = self.linger_timeout

    @property
    def address(self) -> str:
        """The listening address."""
        host = self.bind
        return f"[{host}]:{self.port}" if ":" in host and not host.startswith("[") else f"{host}:{self.port}"

    @property
    def listen(self) -> ListenSpec:
        """The socket of connections."""
        return ListenSpec(self.address, backlog=self.backlog or BACKLOG, place=self.place_of("port"))

    @property
    def listen_udp(self) -> ListenSpec:
        """The socket of heartbeats."""
        return ListenSpec(self.address, kind="udp", place=self.place_of("port"))

    @property
    def keeps_alive(self) -> bool:
        """Whether silent connections are probed."""
        section_says = self.transport.send_keepalive_packet
        return self.send_keepalive_packet if section_says is None else section_says

    def listeners(self) -> list[ListenSpec]:
        """Connections, and heartbeats; all workers share both sockets."""
        return [self.listen, self.listen_udp]

    async def start(self) -> None:
        """Accept connections from now on."""
        context = self.context
        terms = Terms(
            context.clock.wall_ns,
            tag=self.tag,
            tag_prefix=self.add_tag_prefix,
            expanded_limit=self.decompression_size_limit,
            ratio_limit=self.decompression_ratio_limit,
            looks=bool(self.skip_invalid_event),
            deduplicates=self.deduplicate,
            only_counts=self._only_counts,
            reads=self._reads,
        )
        self._server = ForwardServer(self, terms)
        self._server.start()
        self._heartbeats = Heartbeats(context.sockets[self.listen_udp.key], context.loop)
        self._heartbeats.start()

    def _only_counts(self, tag: str) -> bool:
        router = self.router
        return type(router) is Router and router.only_counts(tag)

    def _reads(self, tag: str) -> bool:
        router = self.router
        return type(router) is Router and router.looks_into(tag)

    def rerouted(self) -> None:
        """Events go to another router from now on."""
        if self._server is not None:
            self._server.emit = self.router.emit

    async def quiesce(self) -> None:
        """Accept nothing new, acknowledge what came."""
        if self._heartbeats is not None:
            self._heartbeats.close()
        if self._server is not None:
            await self._server.quiesce()

    async def stop(self) -> None:
        """Cut what is still open."""
        if self._heartbeats is not None:
            self._heartbeats.close()
        if self._server is not None:
            self._server.stop()

    async def close(self) -> None:
        """Remove a certificate that was made at start."""
        self.transport.close()

    def stats(self) -> dict[str, Any]:
        """Connections, messages, events, acknowledgements; what was refused; heartbeats."""
        if self._server is None or self._heartbeats is None:
            return {}
        return {**self._server.stats(), "heartbeats": self._heartbeats.count}
