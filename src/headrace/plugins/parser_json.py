"""Parser `json` (docs.fluentd.org, Parser Plugins, json): an object is a record, an array of objects several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import enum, integer
from headrace.plugins.jsoncodec import decode
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.plugins.parsing import Parsed


def records_of(values: list[Any], parser: RecordParser) -> Parsed:
    """The events of decoded values; what is no map does not match."""
    return [parser.event(value) if type(value) is dict else (None, None) for value in values]


class JsonParser(RecordParser):
    """Reads JSON."""

    json_parser = enum(
        ("oj", "yajl", "json"), default="oj", doc="Fluentd's choice of a library; records are the same with each"
    )
    stream_buffer_size = integer(
        default=8192, deprecated="there is no stream parser with a buffer here", doc="No effect"
    )
    time_key = RecordParser.time_key.with_default("time")
    time_type = RecordParser.time_type.with_default("float")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """With time_format and without time_type, times are texts."""
        given = {child.name for child in directive.block or ()}
        if "time_format" in given and "time_type" not in given:
            self.time_type = "string"
        super().configure(directive, problems)

    def read(self, text: bytes) -> Parsed:
        """Parse one JSON value."""
        try:
            value = decode(text)
        except ValueError:
            return [(None, None)]
        if type(value) is dict:
            return [self.event(value)]
        return records_of(value, self) if type(value) is list else [(None, None)]
