"""Filter `parser` (docs.fluentd.org, Filter Plugins, parser): parses a field of the record, which becomes the record.

As Fluentd 1.19: a text with several records gives several events; one that does not match, or a record without the
field, goes to @ERROR (emit_invalid_record_to_error), and with reserve_data stays in the stream as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import boolean, raw_section, string
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Filter
from headrace.plugins.nested_fields import without
from headrace.plugins.parsing import ParserError
from headrace.plugins.ruby_text import scrub, to_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event, Record
    from headrace.pipeline.plugin import Parser


class ParserFilter(Filter):
    """Parses a field."""

    old_style: ClassVar[Mapping[str, str]] = {"parse": ""}

    key_name = string(doc="The field to parse; $.a.b for a nested one")
    reserve_data = boolean(default=False, doc="Keep the other fields, and the record where nothing could be parsed")
    reserve_time = boolean(default=False, doc="Keep the event's time, whatever the parser found")
    remove_key_name_field = boolean(default=False, doc="With reserve_data: remove the field when it could be parsed")
    inject_key_prefix = string(default=None, doc="Put this before each name that the parser found")
    replace_invalid_sequence = boolean(
        default=False, doc="Put ? in the place of bytes that are not UTF-8; false: they stay as they are"
    )
    hash_value_field = string(default=None, doc="Put what was parsed into this one field")
    emit_invalid_record_to_error = boolean(default=True, doc="Send what cannot be parsed to the @ERROR label")
    parse_section = raw_section(name="parse", required=True, doc="The parser")

    def validate(self, problems: Problems) -> None:
        """Read the accessor."""
        super().validate(problems)
        try:
            self._key = Accessor(self.key_name)
        except ValueError as error:
            problems.error(f'parameter "key_name": {error}', self.place_of("key_name"))

    def provision(self, context: Context) -> None:
        """Make the parser."""
        assert self.parse_section is not None
        self._parser: Parser = context.make("parser", self.parse_section)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Parse each record's field."""
        kept: list[Event] = []
        get, parse = self._key.get, self._parser.parse
        for event in batch.events():
            time, record = event
            value = get(record)
            if value is None:
                self._refuse(tag, time, record, ValueError(f"{self.key_name} does not exist"))
                if self.reserve_data:
                    kept.append((time, self._merged(record, {})))
                continue
            try:
                found = parse(self._bytes(value))
            except (ParserError, ValueError, TypeError) as error:
                self._refuse(tag, time, record, error)
                continue
            for moment, fields in found:
                if fields is None:
                    self._refuse(
                        tag, time, record, ParserError(f"pattern not matched with data '{to_s(value)[:1000]}'")
                    )
                    if self.reserve_data:
                        kept.append((time, self._merged(record, {})))
                    continue
                base = record
                if self.remove_key_name_field and self.reserve_data:
                    base = without(record, self._key)
                kept.append((time if self.reserve_time or moment is None else moment, self._merged(base, fields)))
        return Batch.of(kept)

    def _bytes(self, value: Any) -> bytes:
        raw = value if type(value) is bytes else to_s(value).encode("utf-8", "surrogateescape")
        return scrub(raw, "?") if self.replace_invalid_sequence else raw

    def _refuse(self, tag: str, time: int, record: Record, error: Exception) -> None:
        if self.emit_invalid_record_to_error:
            self.router.emit_error_event(tag, time, record, error)

    def _merged(self, record: Record, fields: Record) -> Record:
        if self.inject_key_prefix is not None:
            fields = {self.inject_key_prefix + to_s(key): value for key, value in fields.items()}
        if self.hash_value_field is not None:
            fields = {self.hash_value_field: fields}
        return {**record, **fields} if self.reserve_data else fields
