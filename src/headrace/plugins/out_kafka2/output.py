"""The output `kafka2`: producers, and the way of a chunk."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import reserved
from headrace.errors import Error, Side, Unrecoverable
from headrace.pipeline.throttle import Throttle
from headrace.plugins.out_kafka2.messages import Messages, partition_of
from headrace.plugins.out_kafka2.parameters import KafkaParameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event, Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter
    from headrace.plugins.out_kafka2.messages import Format

SLICE: Final = 500
"""Records that are made messages before others get their turn on the loop."""
BATCH: Final = 512 << 10
"""Bytes of a batch before compression; brokers take 1 MB unless told otherwise."""
LARGEST: Final = 64 << 20
"""Bytes of a message that the client sends; the broker says whether it takes so many."""
_MS: Final = 1_000_000
_BARE: Final = frozenset({"json", "ltsv"})
"""Formats whose messages have no newline at their end."""


class Kafka2Output(KafkaParameters):
    """Sends records to Kafka."""

    def provision(self, context: Context) -> None:
        """Make the formatter."""
        section_ = self.format_section
        type_name = (section_ and reserved(section_, "@type")) or "json"
        format_: Format | None = None
        if type_name != "json" or (section_ is not None and len(section_.block or ()) > 1):
            made: Formatter | None = context.make("formatter", section_) if section_ is not None else None
            if made is None:
                return
            format_ = _bare(made) if type_name in _BARE else made.format
        self._messages = Messages(self, format_, self.inject.injector(context, self))
        self._producers: dict[int, Any] = {}
        self._left: dict[bytes, list[int]] = {}
        self._discarded = Throttle()
        self.sent = 0
        self.rejected = 0

    async def start(self) -> None:
        """Brokers are asked when the first chunk is sent."""
        log = logging.getLogger("aiokafka")
        log.propagate = False  # else it writes to stderr by itself
        if self.get_kafka_client_log:
            log.setLevel(logging.INFO)
            log.addHandler(_Forward(self.log))
        elif not log.handlers:
            log.addHandler(logging.NullHandler())
        self._starting = asyncio.Lock()

    async def _producer(self, lane: Lane) -> Any:
        """The lane's own producer: nobody else uses its connections, unless they are to be shared."""
        key = 0 if self.share_producer else lane.index
        async with self._starting:
            found = self._producers.get(key)
            if found is None:
                from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - an optional dependency

                made = AIOKafkaProducer(max_batch_size=BATCH, max_request_size=LARGEST, **self.producer_options())
                try:
                    await made.start()
                except BaseException as error:
                    await made.stop()
                    if isinstance(error, Exception):
                        raise _failure(error) from error
                    raise
                found = self._producers[key] = made
        return found

    def _topic(self, chunk: Chunk) -> str:
        """The topic of a chunk. Raises Unrecoverable when nothing names one."""
        if self.topic is not None:
            return chunk.extract_placeholders(self.topic)
        named = (chunk.meta.variables or {}).get(self.topic_key)
        topic = named if isinstance(named, str) and named else self.default_topic or chunk.tag
        if not topic:
            raise Unrecoverable("no topic: the record names none, and default_topic is not set", kind="topic")
        return topic

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk; of one that failed in part before, what is left. Raises Error."""
        topic = self._topic(chunk)
        producer = await self._producer(lane)
        events = chunk.events()
        remaining: Iterable[int] = self._left.get(chunk.id) or range(len(events))
        count = await self._partitions(producer, topic)
        if count is None and self.use_default_for_unknown_topic and self.default_topic not in {None, topic}:
            self.log.warning("topic %s is not known: sending to %s", topic, self.default_topic)
            topic = self.default_topic or topic
            count = await self._partitions(producer, topic)
        if count is None:
            raise Error(f"topic {topic} is not known", kind="topic", side=Side.SERVER, retryable=True)
        waiting, unsent, why = await self._send(producer, topic, count, chunk, events, remaining)
        left = [*(await self._acknowledged(waiting, chunk, events)), *unsent]
        failed = [number for number, _error in left]
        if failed and self.discard_kafka_delivery_failed:
            message = "delivery failed, %d messages are dropped: %s"
            self._discarded.log(self.log, logging.WARNING, message, len(failed), left[0][1])
            failed = []
        self._keep(chunk, sorted(failed))
        if failed:
            first = why or left[0][1]
            raise Error(
                f"{len(failed)} of {len(events)} messages: {first}", kind="kafka", side=Side.SERVER, retryable=True
            )

    @staticmethod
    async def _partitions(producer: Any, topic: str) -> int | None:
        """How many partitions a topic has; None when nobody knows it. Raises Error."""
        from aiokafka.errors import UnknownTopicOrPartitionError  # noqa: PLC0415 - an optional dependency

        try:
            return len(await producer.partitions_for(topic)) or None
        except UnknownTopicOrPartitionError:
            return None
        except Exception as error:
            raise _failure(error) from error

    async def _send(
        self, producer: Any, topic: str, count: int, chunk: Chunk, events: Sequence[Event], remaining: Iterable[int]
    ) -> tuple[list[tuple[int, Any]], list[tuple[int, Exception]], Exception | None]:
        """Hand messages to the producer; returns what waits for an answer, and what could not be handed over."""
        waiting: list[tuple[int, Any]] = []
        unsent: list[tuple[int, Exception]] = []
        broken: Exception | None = None
        make, function = self._messages.make, self.partitioner_hash_function
        for turn, number in enumerate(remaining, 1):
            if turn % SLICE == 0:
                await asyncio.sleep(0)
            time, record = events[number]
            if broken is not None:
                unsent.append((number, broken))
                continue
            try:
                # A copy, since the record may be needed once more, for @ERROR or the next try.
                message = make(chunk.tag, time, dict(record))
                partition = message.partition
                if partition is None and message.hashed is not None:
                    partition = partition_of(message.hashed, count, function)
                elif partition is not None and not 0 <= partition < count:
                    raise ValueError(f"topic {topic} has no partition {partition}")
            except (Error, ValueError, TypeError) as error:
                self._reject(chunk, time, record, error)
                continue
            try:
                future = await producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    partition=partition,
                    timestamp_ms=time // _MS if self.use_event_time else self.context.clock.wall_ns() // _MS,
                    headers=message.headers,
                )
            except Exception as error:  # noqa: BLE001 - it is told when the others are answered
                failure = _failure(error)
                if failure.retryable:
                    broken = failure
                    unsent.append((number, failure))
                else:
                    self._reject(chunk, time, record, failure)
            else:
                waiting.append((number, future))
        return waiting, unsent, broken

    async def _acknowledged(
        self, waiting: list[tuple[int, Any]], chunk: Chunk, events: Sequence[Event]
    ) -> list[tuple[int, Exception]]:
        """Wait for the answers; returns the messages to be sent again."""
        left: list[tuple[int, Exception]] = []
        outcomes = await asyncio.gather(*[future for _number, future in waiting], return_exceptions=True)
        for (number, _future), outcome in zip(waiting, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                self.sent += 1
                continue
            if not isinstance(outcome, Exception):
                raise outcome
            failure = _failure(outcome)
            if failure.retryable:
                left.append((number, failure))
            else:
                self._reject(chunk, *events[number], failure)
        return left

    def _reject(self, chunk: Chunk, time: int, record: Record, error: Exception) -> None:
        self.rejected += 1
        self.router.emit_error_event(chunk.tag or "", time, record, error)

    def _keep(self, chunk: Chunk, left: list[int]) -> None:
        """Remember what of a chunk is to be sent when it is tried again; after a restart all of it is."""
        if not left:
            self._left.pop(chunk.id, None)
            return
        self._left[chunk.id] = left
        runner = self.runner
        if runner is not None and len(self._left) > len(runner.buffer.queued) + len(runner.buffer.in_flight):
            live = runner.buffer.queued.keys() | runner.buffer.in_flight.keys() | {chunk.id}
            self._left = {key: value for key, value in self._left.items() if key in live}

    async def stop(self) -> None:
        """Stop the producers: what they hold is sent first, within their own time."""
        producers, self._producers = self._producers, {}
        await asyncio.gather(*[producer.stop() for producer in producers.values()], return_exceptions=True)
        log = logging.getLogger("aiokafka")
        for handler in [handler for handler in log.handlers if isinstance(handler, _Forward)]:
            log.removeHandler(handler)

    def stats(self) -> dict[str, Any]:
        """Messages with an acknowledgement, records that went to @ERROR, producers."""
        return {"messages": self.sent, "rejected_records": self.rejected, "producers": len(self._producers)}


class _Forward(logging.Handler):
    """The client's own lines, as lines of the plugin."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self._log.log(record.levelno, "%s", record.getMessage())


def _bare(formatter: Formatter) -> Format:
    def shaped(tag: str, time: int, record: Record) -> bytes:
        return formatter.format(tag, time, record).removesuffix(b"\n")

    return shaped


def _failure(error: Exception) -> Error:
    """An error of aiokafka as one of ours. What a broker refuses for its form is not tried again."""
    from aiokafka import errors  # noqa: PLC0415 - an optional dependency

    if isinstance(error, Error):
        return error
    text = f"{type(error).__name__}: {error}"
    hopeless = (
        errors.MessageSizeTooLargeError,
        errors.RecordListTooLargeError,
        errors.InvalidTopicError,
        errors.InvalidTimestampError,
        errors.UnsupportedForMessageFormatError,
    )
    if isinstance(error, hopeless):
        return Unrecoverable(text, kind="kafka")
    if isinstance(error, (errors.KafkaError, OSError, TimeoutError)):
        return Error(text, kind="kafka", side=Side.SERVER, retryable=True)
    if isinstance(error, (ValueError, TypeError, AssertionError)):
        return Unrecoverable(text, kind="kafka")
    raise error
