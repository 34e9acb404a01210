"""The output `http`: the way of a chunk through the parts beside it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import reserved
from headrace.core.connect import Target, dial
from headrace.core.names import Names
from headrace.errors import ConfError, Unrecoverable
from headrace.pipeline import codec
from headrace.plugins.formatter_json import JsonFormatter
from headrace.plugins.out_http.auth import AwsSigner, basic
from headrace.plugins.out_http.connection import Counters, LaneConnection
from headrace.plugins.out_http.endpoint import parse
from headrace.plugins.out_http.parameters import HttpParameters
from headrace.plugins.out_http.peers import Peers
from headrace.plugins.out_http.request import CONTENT_TYPES, build_head, gzip_member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.core.stream import Stream
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter
    from headrace.plugins.out_http.endpoint import Endpoint

KEPT_HEADS: Final = 1024
THREADED: Final = 128 << 10
"""Bytes from which a body is compressed in a thread: zlib lets the loop run meanwhile."""


class HttpOutput(HttpParameters):
    """Sends chunks as bodies of HTTP requests."""

    nested_types: ClassVar[Mapping[str, str]] = {"format": "json"}

    def provision(self, context: Context) -> None:
        """Make the formatter, and what follows from it."""
        section_ = self.format_section
        formatter_type = (section_ and reserved(section_, "@type")) or "json"
        if section_ is None:
            self._formatter: Formatter = context.make_default("formatter", "json", self, "format")
        else:
            self._formatter = context.make("formatter", section_, default_type="json")
        if self.json_array and formatter_type != "json":
            raise ConfError("json_array option could be used with json formatter only", self.place_of("json_array"))
        type_ = self.content_type or ("application/json" if self.json_array else CONTENT_TYPES.get(formatter_type))
        if type_ is None:
            raise ConfError(
                f"the Content-Type of formatter {formatter_type} is not known", self.place, hint="set content_type"
            )
        self._content_type = type_
        self._method = self.http_method.upper()
        self._as_formatted = self.compress == "text" and not self.json_array
        self._dynamic = "$" in self.endpoint or "%" in self.endpoint or bool(self.headers_from_placeholders)
        self._heads: dict[tuple[str, ...], tuple[Endpoint, bytes]] = {}
        self._lanes: dict[int, LaneConnection] = {}
        self._names = Names()
        self._peers = Peers(self.chunk_id_header)
        if not self.json_array:
            self.__dict__["format"] = self._formatter.format
            self.format_many = self._formatter.format_many
        elif isinstance(self._formatter, JsonFormatter) and self._formatter.end.endswith(b"\n"):
            self.format_many = self._elements
        self._signer: AwsSigner | None = None
        self._authorization: str | None = None
        if self.auth.present and self.auth.method == "basic":
            self._authorization = basic(self.auth.username or "", self.auth.password or "")

    async def start(self) -> None:
        """Prepare signing; connections are opened when the first chunk is sent."""
        auth = self.auth
        if auth.present and auth.method == "aws_sigv4":
            clock = self.context.clock
            self._signer = AwsSigner(
                auth.aws_service or "", auth.aws_region or "", auth.aws_role_arn, lambda: clock.wall_ns() / 1e9
            )

    def format(self, tag: str, time: int, record: Record) -> bytes | None:
        """One record as an element of the array; without json_array the formatter's own method stands here."""
        text = self._formatter.format(tag, time, record)
        return text.rstrip(b"\n") + b","

    def _elements(self, tag: str, times: Sequence[int], records: Sequence[Record]) -> bytes:
        """As `format` for many: there is no newline in JSON but the one behind each of them."""
        return self._formatter.format_many(tag, times, records).replace(b"\n", b",")

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk. Raises Error as the reply's status says, ConnectionFailed, Unrecoverable."""
        connection = self._lanes.get(lane.index) or self._lane(lane)
        endpoint, head = self._head(chunk)
        body = chunk.read() if self._as_formatted else await self._body(chunk)
        if self._signer is not None:
            signed = await self._signer.headers(self._method, endpoint, self._content_type, body)
            head = self._build(endpoint, [*self._fields(chunk), *signed])
        named = self._peers.line(endpoint, chunk.id)
        response = await connection.send(endpoint, b"%b%d\r\n%b\r\n" % (head, len(body), named), body)
        error = self._policy.judge(response.status, response.reason, response.body)
        if error is None:
            self._peers.learn(endpoint, response)
            return
        if error.retryable or isinstance(error, Unrecoverable):
            raise error
        self.log.log(
            logging.ERROR, "got error response from '%s %s' : %s", self._method.title(), endpoint, error.message
        )

    def _lane(self, lane: Lane) -> LaneConnection:
        made = LaneConnection(
            self._dial,
            self.context.clock.now,
            method=self._method.encode(),
            reuse=self.reuse_connections,
            read_timeout=self.read_timeout,
        )
        lane.state = self._lanes[lane.index] = made
        return made

    def _head(self, chunk: Chunk) -> tuple[Endpoint, bytes]:
        """Where the chunk goes, and the head of its request."""
        key: tuple[str, ...] = ()
        if self._dynamic:
            texts = (self.endpoint, *(self.headers_from_placeholders or {}).values())
            key = tuple(chunk.extract_placeholders(text) for text in texts)
        made = self._heads.get(key)
        if made is None:
            endpoint = parse(key[0] if key else self.endpoint)
            if endpoint.host != self._host and endpoint.host not in self.allowed_hosts:
                raise Unrecoverable(f"Not allowed host: {endpoint.host}", kind="endpoint")
            made = (endpoint, self._build(endpoint, self._fields(chunk)))
            if len(self._heads) >= KEPT_HEADS:
                self._heads.clear()
            self._heads[key] = made
        return made

    def _fields(self, chunk: Chunk) -> list[tuple[str, str]]:
        fields = list((self.headers or {}).items())
        for name, text in (self.headers_from_placeholders or {}).items():
            fields.append((name, chunk.extract_placeholders(text)))
        if self.compress == "gzip":
            fields.append(("Content-Encoding", "gzip"))
        fields.append(("Content-Type", self._content_type))
        return fields

    def _build(self, endpoint: Endpoint, fields: list[tuple[str, str]]) -> bytes:
        proxy = self._proxies(endpoint)
        forwarded = proxy is not None and endpoint.scheme == "http"
        return build_head(
            self._method,
            endpoint,
            fields,
            keep_alive=self.reuse_connections,
            forwarded=forwarded,
            authorization=self._authorization,
            proxy_authorization=proxy.authorization if proxy is not None and forwarded else None,
        )

    async def _body(self, chunk: Chunk) -> bytes:
        """The body: one gzip member at most, made once, whoever made it."""
        if self.compress == "gzip" and chunk.codec == codec.GZIP and not self.json_array:
            return chunk.read_compressed("gzip")
        body = chunk.read()
        if self.json_array:
            body = b"[" + body[:-1] + b"]"
        if self.compress == "text":
            return body
        if len(body) < THREADED:
            return gzip_member(body)
        return await asyncio.get_running_loop().run_in_executor(None, gzip_member, body)

    async def _dial(self, endpoint: Endpoint) -> Stream:
        context = self.context
        target = Target(endpoint.host, endpoint.port)
        tls = self._tls if endpoint.scheme == "https" else None
        proxy = self._proxies(endpoint)
        if proxy is not None and tls is None:
            # A proxy fetches http URLs itself: it is the one that is spoken to.
            target, tls, proxy = Target(proxy.host, proxy.port), proxy.tls, None
        return await dial(
            target,
            loop=context.loop,
            clock=context.clock,
            timeout=self.open_timeout,
            tls=tls,
            tls_timeout=self.ssl_timeout,
            proxy=proxy,
            keepalive=self.reuse_connections,
            names=self._names,
        )

    async def stop(self) -> None:
        """Close the connections of all lanes."""
        for connection in self._lanes.values():
            connection.close()

    def stats(self) -> dict[str, Any]:
        """Counters of connections: the sum, and by lane; `idle` is how many are kept for the next request now.

        endpoints_that_know_ids: those that keep a chunk once, however often it is sent.
        """
        names = Counters().as_dict()
        lanes = {index: connection.counters.as_dict() for index, connection in sorted(self._lanes.items())}
        total = {name: sum(figures[name] for figures in lanes.values()) for name in names}
        total["idle"] = sum(connection.stream is not None for connection in self._lanes.values())
        known = self._peers.knowing
        return {"connections": total, "connections_by_lane": lanes, "endpoints_that_know_ids": known}
