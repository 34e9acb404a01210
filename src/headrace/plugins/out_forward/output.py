"""The output `forward`: the way of a chunk to one of the nodes.

Without require_ack_response a chunk is delivered when the kernel has all of it: at most once, as in Fluentd.

With it a chunk is delivered when a node has acknowledged its id, and the lane does not wait for that: it sends the
next chunk, up to ack_window of them, and each is committed when its acknowledgement comes. A chunk whose connection
ends before is sent to the same node once more, on a new connection, then to the next one; one that is not acknowledged
in time goes back to the queue, and its node is given up. The id stays the same however often the chunk is sent, after
a restart too, so that a node that knows ids (headrace) keeps the events once.

The option "chunk" is sent only where an acknowledgement is read: in_forward answers it, and an answer that nobody
reads turns the close of a connection into a reset, which can destroy what the node has not read yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.core.connect import Target, dial
from headrace.errors import ConfError, ConnectionFailed, Error, Side, Timeout
from headrace.pipeline.plugin import Output, overrides
from headrace.plugins.out_forward.addresses import NodeNames
from headrace.plugins.out_forward.balancer import Balancer
from headrace.plugins.out_forward.heartbeat import Heartbeats, UdpBeats
from headrace.plugins.out_forward.link import Identity, Link, NoAck, greet
from headrace.plugins.out_forward.links import Links
from headrace.plugins.out_forward.message import message
from headrace.plugins.out_forward.node import Detection, Node
from headrace.plugins.out_forward.parameters import ForwardParameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.core.stream import Stream
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.discovery import Service, ServiceDiscovery
    from headrace.pipeline.lanes import Lane

BEAT_TIMEOUT: Final = 5.0
"""Seconds for which a heartbeat waits for its connection at the most."""
_OWN_DEADLINES: Final = 10 * 365 * 86400.0
"""delayed_commit_timeout: every delivery here ends by deadlines of its own."""


class _Way:
    """One delivery of a chunk. sent: whoever waits until it is on its way. begun: some of it was written, to any node.

    here: to the node that is tried now.
    """

    __slots__ = ("begun", "chunk", "here", "links", "sent")

    def __init__(self, chunk: Chunk, links: Links, sent: asyncio.Future[None] | None) -> None:
        self.chunk = chunk
        self.links = links
        self.sent = sent
        self.begun = False
        self.here = False


class ForwardOutput(ForwardParameters):
    """Sends chunks to other nodes, Fluentd's or headrace's, by the Forward Protocol."""

    old_style: ClassVar[Mapping[str, str]] = {"buffer": "tag"}
    default_chunk_keys: ClassVar[tuple[str, ...]] = ("tag",)

    def buffer_parameters(self) -> Mapping[str, str]:
        """Chunks are compressed in the buffer as they are sent."""
        return {} if self.compress == "text" else {"compress": self.compress}

    def provision(self, context: Context) -> None:
        """Make what finds nodes; check the buffer, which is the primary's for a <secondary>."""
        self._discoveries: list[ServiceDiscovery] = []
        for directive in self.service_discovery:
            made = context.make("sd", directive, router=self.router)
            if made is not None:
                made.watch(self._refresh)
                self._discoveries.append(made)
        self._balancer = Balancer()
        self._nodes: dict[Service, Node] = {}
        self._lanes: dict[tuple[int, bool], Links] = {}
        self._heartbeats: Heartbeats | None = None
        self._udp: UdpBeats | None = None
        # Fluentd prefers the delayed commit exactly with acknowledgements.
        self.__dict__["prefers_delayed_commit"] = self.require_ack_response
        runner = self.runner
        if runner is None:
            return
        if not runner.keys.tag:
            place = self.buffer_section.place if self.buffer_section is not None else self.place
            context.problems.error("the forward output needs tag among the chunk keys", place, hint="<buffer tag, ...>")
        if runner.output is not self:
            primary = runner.output
            if overrides(primary, Output, "format") and not primary.formatted_to_msgpack:
                context.problems.error(
                    f'"{primary.type_}" formats its chunks as no forward node can read them', self.place
                )
            return
        section = runner.section
        if self.require_ack_response:
            section.delayed_commit_timeout = _OWN_DEADLINES
        if section.compress not in ("text", self.compress):
            if self.compress != "text":
                message = f"the buffer compresses by {section.compress}, the forward output by {self.compress}"
                raise ConfError(message, self.place_of("compress"), hint="both must be the same")
            self.log.info("the buffer is compressed; compress %s sends it so", section.compress)

    async def start(self) -> None:
        """Find the nodes; connections are opened when the first chunk is sent. Raises Error as the parameters say."""
        kind = "transport" if self.heartbeat_type == "tcp" else self.heartbeat_type
        context = self.context
        self._detection = Detection(
            heartbeats=kind != "none",
            interval=self.heartbeat_interval,
            recover_wait=self.recover_wait,
            hard_timeout=self.hard_timeout,
            phi=self.phi_failure_detector,
            phi_threshold=self.phi_threshold,
        )
        self._connect_seconds = self.hard_timeout if self.connect_timeout is None else self.connect_timeout
        if kind == "udp":
            self._udp = UdpBeats(context.loop, context.clock, self._answered)
        if kind != "none":
            beat = self._beat if self._udp is None else self._udp.beat
            self._heartbeats = Heartbeats(self.heartbeat_interval, beat, context.clock, self.log)
        self._started = True
        self._refresh()
        if kind != "none":
            await self._resolve_all()
        if self.verify_connection_at_startup:
            await self._verify_all()

    # Nodes that come and go.

    _started = False

    def _refresh(self) -> None:
        """Take the list of nodes as it is now."""
        if not self._started:
            return
        services = [server.service() for server in self.server]
        for discovery in self._discoveries:
            services += discovery.services
        wanted = dict.fromkeys(services)
        before, self._nodes = self._nodes, {}
        for service in wanted:
            self._nodes[service] = before.pop(service) if service in before else self._node(service)
        for node in before.values():
            node.gone = True
            for links in self._lanes.values():
                links.leave(node)
        self._balancer.set_nodes(list(self._nodes.values()))
        if self._heartbeats is not None:
            self._heartbeats.watch(self._nodes.values())

    def _node(self, service: Service) -> Node:
        node = Node(
            service,
            self._detection,
            now=self.context.clock.now(),
            changed=self._balancer.changed,
            names=NodeNames(self.expire_dns_cache, shuffled=self.dns_round_robin),
            tls=self._tls_of(service),
        )
        self.log.info("adding forwarding server '%s', weight %d", node.title, service.weight)
        return node

    async def _resolve_all(self) -> None:
        """Find the addresses of all nodes; one that has none stops the start, or is not used yet."""
        loop = self.context.loop
        for node in self._nodes.values():
            service = node.service
            try:
                await loop.getaddrinfo(service.host, service.port)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                message = f"the name of node {node.title}, {service.host}, could not be resolved ({reason})"
                if not self.ignore_network_errors_at_startup:
                    hint = "ignore_network_errors_at_startup true starts all the same"
                    raise Error(f"{self.plugin_id}: {message} ({hint})", kind="dns", side=Side.SERVER) from error
                self.log.warning("%s", message)
                node.detach()

    async def _verify_all(self) -> None:
        for node in self._nodes.values():
            try:
                link = await self._dial(node)
            except (ConnectionFailed, ConfError) as error:
                message = f"{self.plugin_id}: node {node.title} cannot be used (verify_connection_at_startup)"
                raise Error(f"{message}: {error.message}", kind="verify", side=Side.SERVER) from error
            link.close()

    # Heartbeats.

    async def _beat(self, node: Node) -> bool:
        stream, _keepalive = await self._connect(node, min(self._connect_seconds, BEAT_TIMEOUT))
        stream.close()
        return True

    def _answered(self, node: Node) -> None:
        if self._heartbeats is not None:
            self._heartbeats.answered(node)

    # Connections.

    async def _connect(self, node: Node, seconds: float) -> tuple[Stream, bool]:
        """Open a connection and shake hands; with it, whether the node lets it be kept. Raises ConnectionFailed."""
        context, service = self.context, node.service
        try:
            stream = await dial(
                Target(service.host, service.port),
                loop=context.loop,
                clock=context.clock,
                timeout=seconds,
                tls=node.tls,
                tls_timeout=min(seconds, self.hard_timeout),
                names=node.names,
                keepalive=self.send_keepalive_packet,
            )
        except ConfError as error:  # certificates that cannot be read now: no reason to give chunks up
            raise ConnectionFailed(f"{node.title}: {error}", kind="tls", side=Side.US) from error
        stream.send_timeout = self.send_timeout
        keepalive = True
        if self.security.present:
            security = self.security
            key = service.shared_key if service.shared_key is not None else security.shared_key
            identity = Identity(security.self_hostname, key, service.username, service.password)
            try:
                keepalive = await greet(stream, identity, node.title, context.clock, self.hard_timeout)
            except BaseException:
                stream.abort()
                raise
        return stream, keepalive

    async def _dial(self, node: Node) -> Link:
        stream, keepalive = await self._connect(node, self._connect_seconds)
        return Link(stream, node.title, keepalive=keepalive)

    def _links(self, lane: Lane) -> Links:
        # A secondary has a lane of its own beside the primary's, of the same number.
        key = lane.index, lane.spare is None
        links = self._lanes.get(key)
        if links is None:
            links = Links(self._dial, self.context.clock, keepalive=self.keepalive, idle=self.keepalive_timeout)
            lane.state = self._lanes[key] = links
        return links

    # Chunks.

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Deliver a chunk to one of the nodes, acknowledged if so configured. Raises ConnectionFailed, Error."""
        await self._deliver(chunk, self._links(lane), None)

    async def try_write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk; ends when it is sent, and commits it when it is acknowledged."""
        links = self._links(lane)
        loop = self.context.loop
        while len(links.tasks) >= self.ack_window:
            links.room = loop.create_future()
            await links.room
        sent: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(self._finish(chunk, links, sent))
        links.tasks.add(task)
        await sent

    async def _finish(self, chunk: Chunk, links: Links, sent: asyncio.Future[None]) -> None:
        """See a chunk through to its acknowledgement, and tell the buffer."""
        try:
            await self._deliver(chunk, links, sent)
        except Exception as error:  # noqa: BLE001 - the outcome of a delivery, whatever it was
            self.rollback(chunk.id, error)
        else:
            self.commit(chunk.id)
        finally:
            task = asyncio.current_task()
            assert task is not None
            links.tasks.discard(task)
            for waiter in (sent, links.room):
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)

    async def _deliver(self, chunk: Chunk, links: Links, sent: asyncio.Future[None] | None) -> None:
        """Try the nodes in turn. sent: ends when the chunk is on its way for the first time."""
        now = self.context.clock.now
        way = _Way(chunk, links, sent)
        last: Error | None = None
        for node in self._balancer.order(now()):
            asked = not self.require_ack_response
            while True:
                way.here = False
                node.begin(now())
                try:
                    await self._send(node, way)
                except NoAck as error:
                    node.counters.ack_timeouts += 1
                    node.failed(now(), error)
                    node.detach()
                    raise
                except ConnectionFailed as error:
                    node.failed(now(), error)
                    last = error
                else:
                    node.succeeded(now())
                    return
                if asked or not way.here:
                    break
                asked = True  # it may have the chunk: only there a repetition can be known as one
        if last is not None:
            raise last
        raise Error("no nodes are available", kind="no_nodes", side=Side.SERVER, retryable=True)

    async def _send(self, node: Node, way: _Way) -> None:
        chunk, links, counters = way.chunk, way.links, node.counters
        pieces = await self._message(chunk)
        link = await links.take(node)
        acked = link.expect(chunk.id) if self.require_ack_response else None
        counters.resent += way.begun
        way.begun = way.here = True
        try:
            await link.send(pieces)
            counters.sent += 1
            counters.sent_events += chunk.count
            counters.sent_bytes += len(pieces[1])
            del pieces  # megabytes, which nobody needs while the node thinks
            if way.sent is not None and not way.sent.done():
                way.sent.set_result(None)
            if acked is not None:
                await self._acknowledged(acked, link, node)
                counters.acks += 1
        except ConnectionFailed:
            counters.failed += 1
            raise
        finally:
            if acked is not None:
                link.forget(chunk.id)
            links.give_back(node, link)

    async def _acknowledged(self, acked: asyncio.Future[None], link: Link, node: Node) -> None:
        try:
            async with self.context.clock.timeout(self.ack_response_timeout):
                await acked
        except Timeout as error:
            if link.broken is not None:
                raise
            message = f"{node.title} did not acknowledge the chunk within {self.ack_response_timeout:g} s"
            raise NoAck(message, kind="ack_timeout") from error

    async def _message(self, chunk: Chunk) -> tuple[bytes, bytes, bytes]:
        how = None if self.compress == "text" else self.compress
        named = self.require_ack_response
        return await message(chunk, self.context.loop, how=how, integers=self.time_as_integer, named=named)

    # The end.

    async def stop(self) -> None:
        """End heartbeats and connections. The buffer has taken back what was not acknowledged."""
        self._started = False
        heartbeats, self._heartbeats = getattr(self, "_heartbeats", None), None
        if heartbeats is not None:
            await heartbeats.stop()
        if self._udp is not None:
            self._udp.close()
            self._udp = None
        tasks = [task for links in self._lanes.values() for task in links.tasks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for links in self._lanes.values():
            links.close()

    def stats(self) -> dict[str, Any]:
        """Figures of each node by its name, and the connections that are open."""
        nodes = list(self._nodes.values())
        return {
            "nodes": {node.title: node.stats() for node in nodes},
            "healthy_nodes_count": sum(node.available for node in nodes),
            "registered_nodes_count": len(nodes),
            "connections": sum(links.count for links in self._lanes.values()),
            "unacknowledged": sum(len(links.tasks) for links in self._lanes.values()),
        }
