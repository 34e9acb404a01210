"""The way of a chunk into a cluster."""

from __future__ import annotations

import asyncio
import base64
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from headrace.errors import BufferOverflow, Error, Side
from headrace.pipeline.event import NS, Batch
from headrace.pipeline.throttle import Throttle
from headrace.plugins.elastic import templates
from headrace.plugins.elastic.answers import RECORD_ERRORS, judge
from headrace.plugins.elastic.cluster import KEPT, Cluster, parse_hosts, refused
from headrace.plugins.elastic.documents import Documents, Values
from headrace.plugins.elastic.parameters import LEVELS, ElasticParameters
from headrace.plugins.http_lane import HttpClient, gzip_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event, Record
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.elastic.cluster import Sign

SLICE: Final = 500
"""Records that are encoded before others get their turn on the loop."""
THREADED: Final = 128 << 10
"""Bytes from which a request is compressed in a thread."""
NDJSON: Final = "application/x-ndjson"


class Request:
    """Lines of one bulk request, and which events of the chunk they are."""

    __slots__ = ("index", "lines", "numbers", "size")

    def __init__(self, index: str) -> None:
        self.index = index
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self.size = 0

    def add(self, number: int, lines: bytes) -> None:
        """Append one item."""
        self.lines.append(lines)
        self.numbers.append(number)
        self.size += len(lines)


class ElasticOutput(ElasticParameters):
    """What both outputs do."""

    takes_label = True

    content_type: ClassVar[str] = NDJSON

    def provision(self, context: Context) -> None:
        """Prepare what makes documents."""
        self._clusters: dict[str, Cluster] = {}
        self._left: dict[bytes, list[int]] = {}
        self._rejections = Throttle()
        self._rejected = self._resent = self._dropped = 0
        self._client: HttpClient | None = None
        if self.include_tag_key and self.runner is not None and not self.runner.keys.tag:
            context.problems.error("include_tag_key needs tag as a chunk key", self.place_of("include_tag_key"))

    async def start(self) -> None:
        """Connections are opened when the first chunk is sent."""
        context = self.context
        self._documents = Documents(self, self._unreadable_time)
        self._client = HttpClient(
            context,
            tls=self._tls,
            open_timeout=self.request_timeout,
            read_timeout=self.request_timeout,
            proxies=self._proxies,
        )
        self._templates = templates.Templates(
            self.log,
            context.clock.now,
            legacy=self.use_legacy_template,
            overwrite=self.template_overwrite,
            give_up_after=None if self.fail_on_putting_template_retry_exceed else self.max_retry_putting_template,
            forget_after=self.truncate_caches_interval,
        )

    # What the two servers do not have in common.

    def _routing(self, version: int | None) -> str:
        """The name of the routing in the action's line."""
        return "_routing" if version is not None and version < 7 else "routing"

    def _type_name(self, version: int | None) -> str | None:
        """The _type of documents, None where the server has none."""
        raise NotImplementedError

    async def _version(self, cluster: Cluster, lane: Lane) -> int | None:
        """The server's major version. Raises Error, retryable."""
        raise NotImplementedError

    def _sign(self) -> Sign | None:
        return None

    def _record_errors(self) -> Collection[str]:
        return RECORD_ERRORS

    def _logs_rejected(self) -> bool:
        return False

    def _error_events(self) -> bool:
        return True

    # The way of a chunk.

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk; of one that failed in part before, what is left. Raises Error."""
        cluster = self._cluster(chunk)
        version = await self._version(cluster, lane)
        await self._prepare(cluster, chunk, lane)
        events = chunk.events()
        remaining = self._left.get(chunk.id) or range(len(events))
        settled: set[int] = set()
        values = Values(self, chunk, self._type_name(version))
        self._documents.routing = self._routing(version)
        why = ""
        try:
            async for request in self._requests(chunk, events, remaining, values, settled):
                again, reason = await self._send(cluster, request, lane, events, values)
                settled.update(request.numbers)
                settled.difference_update(again)
                why = why or reason
        except Error as error:
            self._keep(chunk, [number for number in remaining if number not in settled] if error.retryable else [])
            if self.reconnect_on_error:
                cluster.forget(lane.index)
            raise
        left = [number for number in remaining if number not in settled]
        if left and self.retry_tag is not None and await self._emit_again([events[number] for number in left]):
            left = []
        self._keep(chunk, left)
        if left:
            self._resent += len(left)
            raise Error(f"{len(left)} of {len(events)} records were not taken: {why}", kind="partial", retryable=True)

    def _keep(self, chunk: Chunk, left: list[int]) -> None:
        """Remember what of a chunk is to be sent when it is tried again; after a restart all of it is."""
        if not left:
            self._left.pop(chunk.id, None)
            return
        self._left[chunk.id] = left
        runner = self.runner
        if runner is not None and len(self._left) > len(runner.buffer.queued) + len(runner.buffer.in_flight):
            # What was given up or dropped is nobody's any more.
            live = runner.buffer.queued.keys() | runner.buffer.in_flight.keys() | {chunk.id}
            self._left = {key: value for key, value in self._left.items() if key in live}

    async def _emit_again(self, events: list[Event]) -> bool:
        """Emit records anew with retry_tag; False when there is no room for them."""
        assert self.retry_tag is not None
        try:
            waiting = self.router.emit(self.retry_tag, Batch.of(events))
            if waiting is not None:
                await waiting
        except BufferOverflow:
            return False
        return True

    async def _requests(
        self, chunk: Chunk, events: Sequence[Event], remaining: Iterable[int], values: Values, settled: set[int]
    ) -> AsyncIterator[Request]:
        """The bulk requests of a chunk. A record that cannot be sent is settled here: dropped, or an error event."""
        limit = self.bulk_message_request_threshold
        by_index = self.include_index_in_url
        with_type = values.type_name is not None
        requests: dict[str, Request] = {}
        make = self._documents.make
        for turn, number in enumerate(remaining, 1):
            if turn % SLICE == 0:
                await asyncio.sleep(0)
            time, record = events[number]
            try:
                document = make(values, time, record, with_type=with_type)
            except (Error, ValueError, TypeError) as error:
                settled.add(number)
                self._reject(values, time, record, error)
                continue
            if document is None:
                settled.add(number)
                self._dropped += 1
                continue
            key = document.target if by_index else ""
            request = requests.get(key)
            if request is None:
                request = requests[key] = Request(key)
            request.add(number, document.lines)
            if 0 <= limit < request.size:
                yield requests.pop(key)
        for request in requests.values():
            yield request

    async def _send(
        self, cluster: Cluster, request: Request, lane: Lane, events: Sequence[Event], values: Values
    ) -> tuple[list[int], str]:
        """Send one request; returns which events are to be tried again, and why. Raises Error."""
        body = b"".join(request.lines)
        level = LEVELS[self.compression_level]
        if level:
            pack = partial(gzip_body, body, level)
            body = pack() if len(body) < THREADED else await self.context.loop.run_in_executor(None, pack)
        path = f"/{quote(request.index, safe='')}/_bulk" if request.index else "/_bulk"
        answer = await cluster.request(lane.index, "POST", path, self.content_type, body, gzip=bool(level))
        if not 200 <= answer.status < 300:
            raise refused(answer, "the records taken")
        if answer.truncated:
            raise Error("the answer is too long", kind="answer", side=Side.SERVER, retryable=True)
        verdict = judge(
            answer.body,
            len(request.numbers),
            abort_on=self.unrecoverable_error_types,
            record_errors=self._record_errors(),
        )
        for number, error in verdict.rejected:
            time, record = events[request.numbers[number]]
            self._reject(values, time, record, error)
        return [request.numbers[number] for number in verdict.again], verdict.why

    def _reject(self, values: Values, time: int, record: Record, error: Exception) -> None:
        self._rejected += 1
        if self._logs_rejected():
            self._rejections.log(self.log, logging.WARNING, "a record was rejected: %s", error)
        if self._error_events():
            self.router.emit_error_event(values.tag or "", time, record, error)

    def _unreadable_time(self, tag: str | None, time: int, value: Any, error: Exception) -> None:
        told = {"tag": tag, "time": time // NS, "format": self.time_key_format, "value": value}
        self.router.emit_error_event(self.time_parse_error_tag, self.context.clock.wall_ns(), told, error)

    def _cluster(self, chunk: Chunk) -> Cluster:
        """The hosts a chunk goes to."""
        text = self.hosts or self.host
        if "$" in text or "%" in text:
            text = chunk.extract_placeholders(text)
        found = self._clusters.get(text)
        if found is None:
            assert self._client is not None
            if len(self._clusters) >= KEPT:
                self._clusters.clear()
            found = self._clusters[text] = Cluster(
                self._client,
                parse_hosts(text, self),
                now=self.context.clock.now,
                resurrect_after=self.resurrect_after,
                fields=self._fields(),
                sign=self._sign(),
                fallback=self.selector_class_name is not None,
                log=self.log if self.with_transporter_log else None,
            )
        return found

    def _fields(self) -> list[tuple[str, str]]:
        fields = list(self.custom_headers.items())
        api_key: str | None = getattr(self, "api_key", None)
        if api_key is not None:
            fields.append(("Authorization", "ApiKey " + base64.b64encode(api_key.encode()).decode()))
        return fields

    async def _prepare(self, cluster: Cluster, chunk: Chunk, lane: Lane) -> None:
        """Put the templates in place. Raises Error."""
        if self.template_name is not None and self.template_file is not None:
            name = chunk.extract_placeholders(self.template_name)
            texts = {old: chunk.extract_placeholders(new) for old, new in (self.customize_template or {}).items()}
            await self._templates.install(cluster, lane.index, name, partial(templates.read, self.template_file, texts))
        for name, path in (self.templates or {}).items():
            await self._templates.install(cluster, lane.index, name, partial(templates.read, path, {}))

    async def stop(self) -> None:
        """Close the connections of all lanes."""
        if self._client is not None:
            self._client.close()

    def stats(self) -> dict[str, Any]:
        """Connections; records that were rejected, left out for want of an id, and sent again one by one."""
        connections = self._client.stats() if self._client is not None else {}
        return {
            "connections": connections,
            "rejected_records": self._rejected,
            "left_out_records": self._dropped,
            "resent_records": self._resent,
        }
