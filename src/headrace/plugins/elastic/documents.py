"""A record -> the lines of a bulk request: the action with its metadata, and the source.

What is configured becomes one function of (tag, time, record); the values that a chunk's placeholders give are
worked out once for each chunk. The record is never changed.
https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import Error
from headrace.plugins.elastic.parameters import CREATE, INDEX, UPSERT
from headrace.plugins.jsoncodec import encode
from headrace.plugins.time_format import time_formatter, zone_of
from headrace.plugins.time_parse import any_form, parse_float, strptime

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.event import Record
    from headrace.plugins.elastic.parameters import ElasticParameters

TIMESTAMP: Final = "@timestamp"


class MissingIdError(Error):
    """An operation that needs an _id, and a record without one."""

    kind = "missing_id"


class Document(NamedTuple):
    """lines: of the bulk request. target: the index it goes to, in the URL or in the lines."""

    lines: bytes
    target: str


class Values:
    """What the placeholders of one chunk give."""

    __slots__ = ("chunk_id", "index", "pipeline", "prefix", "tag", "type_name")

    def __init__(self, owner: ElasticParameters, chunk: Chunk, type_name: str | None) -> None:
        put = chunk.extract_placeholders
        self.tag = chunk.tag
        self.index = put(owner.index_name).lower()
        self.prefix = put(owner.logstash_prefix)
        self.pipeline = put(owner.pipeline) if owner.pipeline is not None else None
        self.type_name = type_name and put(type_name)
        self.chunk_id = chunk.hex_id


class Documents:
    """Makes documents. unreadable: told of (tag, time, value, error) when a record's own time cannot be read."""

    def __init__(self, owner: ElasticParameters, unreadable: Callable[[str | None, int, Any, Exception], None]) -> None:
        self._owner = owner
        self._unreadable = unreadable
        self._timed = owner.logstash_format or owner.include_timestamp
        digits = owner.time_precision
        fraction = f".%{digits}N" if digits else ""
        self._stamp = time_formatter(f"%Y-%m-%dT%H:%M:%S{fraction}%:z", None)
        self._date = time_formatter(owner.logstash_dateformat, zone_of(None, utc=owner.utc_index))
        self._parse_text = strptime(owner.time_key_format, None) if owner.time_key_format else any_form(None)
        self._removed = _list(owner.remove_keys)
        self._kept_on_update = _list(owner.remove_keys_on_update)
        self._target = owner.target_index_key.split(".") if owner.target_index_key else None
        self._target_type = _target_type(owner)
        names = (("id_key", "_id"), ("parent_key", "_parent"), ("routing_key", ""))
        self._meta = [(owner.__dict__[f"{key}_of"], name) for key, name in names if getattr(owner, key) is not None]
        self.routing = "routing"
        """What the server calls a routing."""

    def make(self, values: Values, time: int, record: Record, *, with_type: bool) -> Document | None:
        """The lines of one record; None for one that is left out. Raises Error or ValueError: the record is wrong.

        with_type: the server wants a _type.
        """
        owner = self._owner
        source = flat(record, owner.flatten_hashes_separator) if owner.flatten_hashes else dict(record)
        if owner.metadata.include_chunk_id:
            source[owner.metadata.chunk_id_key] = values.chunk_id
        moment = self._time(values.tag, time, source) if self._timed else time
        index = self._take(source, self._target) if self._target else None
        if index is None:
            if owner.logstash_format:
                index = f"{values.prefix}{owner.logstash_prefix_separator}{self._date(moment)}"
            else:
                index = values.index
        index = str(index).lower()
        if owner.include_tag_key:
            source[owner.tag_key] = values.tag
        meta: dict[str, Any] = {} if owner.include_index_in_url else {"_index": index}
        type_name = self._take(source, self._target_type) if self._target_type else None
        if with_type and values.type_name:
            meta["_type"] = type_name or values.type_name
        if values.pipeline:
            meta["pipeline"] = values.pipeline
        for get, name in self._meta:
            if (value := get(source)) is not None and value is not False:
                meta[name or self.routing] = value
        for key in self._removed:
            source.pop(key, None)
        operation = owner.write_operation
        if operation != INDEX and owner.needs_id and "_id" not in meta:
            if owner.emit_error_for_missing_id:
                raise MissingIdError(f"Missing '_id' field. Write operation is {operation}")
            return None
        if operation in {INDEX, CREATE}:
            return Document(b"%b\n%b\n" % (encode({operation: meta}), encode(source)), index)
        body = self._update(source, operation)
        return Document(b"%b\n%b\n" % (encode({"update": meta}), encode(body)), index)

    def _time(self, tag: str | None, time: int, source: Record) -> int:
        """The event's time, and @timestamp in the record."""
        key = self._owner.time_key
        if TIMESTAMP in source:
            return self._parse(tag, time, source[TIMESTAMP])
        if key is not None and key in source:
            moment = self._parse(tag, time, source[key])
            if not self._owner.time_key_exclude_timestamp:
                source[TIMESTAMP] = self._stamp(moment)
            return moment
        source[TIMESTAMP] = self._stamp(time)
        return time

    def _parse(self, tag: str | None, time: int, value: Any) -> int:
        try:
            if isinstance(value, str):
                return self._parse_text(value)
            return parse_float(value)
        except ValueError as error:
            self._unreadable(tag, time, value, error)
            return time

    @staticmethod
    def _take(source: Record, path: list[str]) -> Any:
        """Remove a field and return it; the maps on the way are copied, since they belong to the record."""
        holder: Any = source
        for step in path[:-1]:
            inner = holder.get(step)
            if not isinstance(inner, dict):
                return None
            holder[step] = inner = dict(inner)
            holder = inner
        return holder.pop(path[-1], None) if holder.get(path[-1]) else None

    def _update(self, source: Record, operation: str) -> Record:
        key = self._owner.remove_keys_on_update_key
        listed = source.pop(key, None) if key is not None else None
        left_out = listed if isinstance(listed, list) else self._kept_on_update
        changed = {name: value for name, value in source.items() if name not in left_out} if left_out else source
        if self._owner.suppress_doc_wrap:
            return changed
        body: Record = {"doc": changed}
        if operation == UPSERT:
            if changed == source:
                body["doc_as_upsert"] = True
            else:
                body["upsert"] = source
        return body


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def _target_type(owner: ElasticParameters) -> list[str] | None:
    text: str | None = getattr(owner, "target_type_key", None)
    return text.split(".") if text else None


def flat(record: Record, separator: str, prefix: str = "") -> Record:
    """A record without nested maps; lists stay as they are."""
    found: Record = {}
    for key, value in record.items():
        name = f"{prefix}{separator}{key}" if prefix else str(key)
        if isinstance(value, dict):
            found.update(flat(value, separator, name))
        else:
            found[name] = value
    return found
