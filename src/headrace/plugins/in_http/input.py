"""The source `http`: parameters, the listener, start and end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import array, boolean, integer, raw_section, reserved, section, size, string, time
from headrace.core.http1.prompt import PromptConnection
from headrace.core.http1.server import ServerSettings
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.plugins.http_listener import HttpListener
from headrace.plugins.in_http import answers
from headrace.plugins.in_http.body import bad
from headrace.plugins.in_http.cors import Cors
from headrace.plugins.in_http.handler import RequestHandler
from headrace.plugins.in_http.parse import DefaultParse
from headrace.plugins.in_http.plan import Options, Planner
from headrace.plugins.in_http.room import Room
from headrace.plugins.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.plugin import Parser

EVICTED = 32
"""Idle connections that are closed when descriptors run out."""
UNFINISHED = 256 << 20
"""Bytes of bodies that are held over all connections by default."""
OWN_PARSER = "in_http"
"""The `@type` of a <parse> section that means: the Content-Type decides."""


class HttpInput(Source):
    """Takes events by HTTP requests; the path is the tag."""

    multi_workers_ready = True
    old_style: ClassVar[Mapping[str, str]] = {"parse": OWN_PARSER}

    port = integer(default=9880, doc="Port to listen on")
    bind = string(default="0.0.0.0", doc="Address to listen on")
    body_size_limit = size(default=32 << 20, doc="Largest body, in bytes; a larger one gets 413")
    decompression_size_limit = size(
        default=256 << 20, doc="Largest body after gzip, zstd or deflate is undone; a larger one gets 413"
    )
    unfinished_size_limit = size(
        default=None,
        doc="Bytes of bodies that have come in part, or whose events wait for a buffer, over all connections; past "
        "them requests get 503 with Retry-After, and nothing of them is kept. Absent: 256m, or body_size_limit if that "
        "is more. 0: any",
    )
    keepalive_timeout = time(default=10.0, doc="Seconds after which an idle connection is closed")
    backlog = integer(default=1024, doc="Connections that may wait to be accepted")
    add_http_headers = boolean(default=False, doc="Add the request's header fields to each record, as HTTP_NAME")
    add_remote_addr = boolean(
        default=False, doc="Add the client's address as REMOTE_ADDR; the first of X-Forwarded-For where there is one"
    )
    add_query_params = boolean(default=False, doc="Add the parameters of the query to each record, as QUERY_NAME")
    add_tag_prefix = string(default=None, doc="Put before each tag, with a dot between")
    use_204_response = boolean(default=False, doc="Answer 204 in place of 200")
    respond_with_empty_img = boolean(default=False, doc="Answer with a GIF image of one pixel")
    cors_allow_origins = array(
        default=None, doc="Origins from which a page may send: exact, with one *, or * alone; absent: no CORS"
    )
    cors_allow_credentials = boolean(default=False, doc="Allow credentials in requests of those origins")
    dump_error_log = boolean(default=True, doc="Log refused requests (at a bounded rate)")
    deduplicate = boolean(
        default=True,
        doc="Leave out a body whose name (X-Headrace-Chunk, sent by headrace's http output) and tag each output of the "
        "way has in its buffer already, or had among the last 65,536, and answer as if it were new. With `@type file` "
        "buffers also across a restart",
    )
    blocking_timeout = time(
        default=0.5, deprecated="it has no effect: nothing here waits in intervals", doc="No effect"
    )
    transport = section(Transport, name="transport", argument="protocol", doc="Plain TCP or TLS")
    parse_section = raw_section(name="parse", doc="The parser of bodies; absent: the Content-Type decides")

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        origins = self.cors_allow_origins
        if self.cors_allow_credentials and (origins is None or "*" in origins):
            problems.error(
                "cors_allow_credentials needs cors_allow_origins with specific origins",
                self.place_of("cors_allow_credentials"),
            )
        if self.add_tag_prefix == "":
            problems.error("'add_tag_prefix' parameter must not be empty", self.place_of("add_tag_prefix"))
        if 0 < (self.unfinished_size_limit or 0) < self.body_size_limit:
            problems.error(
                f"unfinished_size_limit must not be less than body_size_limit ({self.body_size_limit} bytes)",
                self.place_of("unfinished_size_limit"),
            )
        for name in ("body_size_limit", "decompression_size_limit", "backlog"):
            if getattr(self, name) < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))
        if not 0 <= self.port < 65536:
            problems.error(f"port {self.port} is out of range", self.place_of("port"))

    def provision(self, context: Context) -> None:
        """Make the parser."""
        self._parser: Parser | None = None
        self._default = DefaultParse()
        self._handler: RequestHandler | None = None
        self._listener: HttpListener | None = None
        if self.parse_section is None:
            return
        if reserved(self.parse_section, "@type") in {None, OWN_PARSER}:
            self._default.configure(self.parse_section, context.problems)
        else:
            self._parser = context.make("parser", self.parse_section)

    @property
    def address(self) -> str:
        """The listening address."""
        host = self.bind
        return f"[{host}]:{self.port}" if ":" in host and not host.startswith("[") else f"{host}:{self.port}"

    def listeners(self) -> list[ListenSpec]:
        """One TCP socket, which all workers share."""
        return [ListenSpec(self.address, backlog=self.backlog, place=self.place_of("port"))]

    async def start(self) -> None:
        """Accept connections from now on."""
        context = self.context
        self.transport.open()
        origins = self.cors_allow_origins
        answer = (200, answers.TEXT, b"")
        if self.respond_with_empty_img:
            answer = (200, answers.GIF, answers.EMPTY_GIF)
        elif self.use_204_response:
            answer = (204, b"", b"")
        options = Options(
            tag_prefix=self.add_tag_prefix or "",
            add_http_headers=self.add_http_headers,
            add_query_params=self.add_query_params,
            remote_addr=self.add_remote_addr,
            cors=None if origins is None else Cors(origins, credentials=self.cors_allow_credentials),
            parsed=self._parser is not None,
            deduplicates=self.deduplicate,
            answer=answer,
        )
        default = self._default
        self._handler = RequestHandler(
            Planner(options),
            self.router.emit,
            context.clock,
            parse=None if self._parser is None else self._parse,
            time_key=default.time_key,
            keep_time_key=default.keep_time_key,
            convert=default.converter(context.clock.wall_ns),
            expanded_limit=self.decompression_size_limit,
            room=Room(self._unfinished()),
            log=self.log if self.dump_error_log else None,
        )
        self._settings = ServerSettings(
            keepalive_timeout=self.keepalive_timeout,
            keepalive_requests=1 << 62,
            keepalive_time=math.inf,
            max_body=self.body_size_limit,
            underscores_in_headers=True,
        )
        sock = context.sockets[self.address]
        self._listener = HttpListener(
            context,
            sock,
            self.transport,
            self._handler,
            self._settings,
            log=self.log,
            evicted=EVICTED,
            serve=PromptConnection,
        )
        self._listener.start()

    def _unfinished(self) -> float:
        """Bytes of bodies that may be held."""
        limit = self.unfinished_size_limit
        return max(UNFINISHED, self.body_size_limit) if limit is None else limit or math.inf

    def rerouted(self) -> None:
        """Events go to another router from now on."""
        if self._handler is not None:
            self._handler.emit = self.router.emit

    def _parse(self, body: bytes) -> list[tuple[int | None, Record]]:
        assert self._parser is not None
        events: list[tuple[int | None, Record]] = []
        try:
            for moment, record in self._parser.parse(body):
                if record is None:
                    raise bad("the body does not match the <parse> section")
                events.append((moment, record))
        except ValueError as error:
            raise bad(str(error)) from error
        return events

    async def quiesce(self) -> None:
        """Accept nothing new; idle connections close, busy ones after their answer."""
        if self._listener is not None:
            await self._listener.quiesce()

    async def stop(self) -> None:
        """Cut what is still open: nothing of it was acknowledged."""
        if self._listener is not None:
            self._listener.stop()

    async def close(self) -> None:
        """Remove a certificate that was made at start."""
        self.transport.close()

    def stats(self) -> dict[str, Any]:
        """Requests, events, answers that refused (by status), connections now and ever, bytes of bodies held now."""
        if self._handler is None:
            return {}
        handler = self._handler
        server = self._settings.stats
        return {
            "requests": handler.requests,
            "events": handler.events,
            "refused": {str(status): count for status, count in sorted(handler.refused.items())},
            "connections": server.connections,
            "accepted": server.accepted,
            "body_bytes": handler.room.used,
        }
