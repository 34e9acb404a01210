"""A record -> a message: its partition, key, headers, time and value."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import Error
from headrace.pipeline.placeholders import as_text
from headrace.plugins.jsoncodec import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.event import Record
    from headrace.plugins.out_kafka2.parameters import KafkaParameters

    Format = Callable[[str, int, Record], bytes]


class UnfitError(Error):
    """A record that cannot be a message."""

    kind = "message"


class Message(NamedTuple):
    """hashed: what chooses the partition where `partition` does not; None: any will do."""

    value: bytes
    key: bytes | None
    partition: int | None
    hashed: bytes | None
    headers: list[tuple[str, bytes]]


def _bytes(value: Any) -> bytes | None:
    """A key as it is sent; None for none."""
    if value is None or value is False:
        return None
    return as_text(value).encode("utf-8", "surrogateescape")


class Messages:
    """Makes messages. format_: makes a value; None: JSON, which any field can be. record_field: see record_key."""

    def __init__(self, owner: KafkaParameters, format_: Format | None, inject: Callable[..., Record] | None) -> None:
        self._owner = owner
        self._format = format_
        self._inject = inject
        self._headers = [(name, text.encode("utf-8", "surrogateescape")) for name, text in owner.headers.items()]

    def make(self, tag: str | None, time: int, record: Record) -> Message:
        """The message of a record, which is taken apart. Raises ValueError or Error when it cannot be one."""
        owner = self._owner
        if self._inject is not None:
            record = self._inject(tag, time, record)
        if owner.exclude_topic_key:
            record.pop(owner.topic_key, None)
        hashed = _take(record, owner.partition_key_key, owner.default_partition_key, remove=owner.exclude_partition_key)
        partition = _take(record, owner.partition_key, owner.default_partition, remove=owner.exclude_partition)
        key = _bytes(_take(record, owner.message_key_key, owner.default_message_key, remove=owner.exclude_message_key))
        headers = self._headers
        if owner.header_fields:
            found = [(name, _bytes(field.get(record))) for name, field in owner.header_fields]
            headers = [*headers, *[(name, value) for name, value in found if value is not None]]
        for field in owner.removed:
            field.delete(record)
        value = self._value(tag, time, record)
        limit = owner.max_send_limit_bytes
        if limit is not None and len(value) > limit:
            raise UnfitError(f"record size exceeds max_send_limit_bytes: {len(value)}")
        chosen = _bytes(hashed)
        return Message(value, key, _number(partition), key if chosen is None else chosen, headers)

    def _value(self, tag: str | None, time: int, record: Record) -> bytes:
        sent: Any = record
        if self._owner.record_field is not None:
            sent = self._owner.record_field.get(record)
        if self._format is None:
            return encode(sent)
        if not isinstance(sent, dict):
            raise UnfitError(f"record_key is no map, and the formatter needs one: {sent!r:.100}")
        return self._format(tag or "", time, sent)


def _take(record: Record, name: str, default: Any, *, remove: bool) -> Any:
    value = record.pop(name, None) if remove else record.get(name)
    return default if value is None or value is False else value


def _number(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise UnfitError(f"a partition must be a number, not {value!r:.100}")
    try:
        return int(value)
    except ValueError as error:
        raise UnfitError(f"a partition must be a number, not {value!r:.100}") from error


def partition_of(hashed: bytes, count: int, function: str) -> int:
    """The partition that a key belongs to, as ruby-kafka works it out."""
    if function == "murmur2":
        from aiokafka.partitioner import murmur2  # noqa: PLC0415 - an optional dependency

        return int((murmur2(hashed) & 0x7FFFFFFF) % count)
    return zlib.crc32(hashed) % count
