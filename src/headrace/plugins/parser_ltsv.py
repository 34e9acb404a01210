"""Parser `ltsv` (docs.fluentd.org, Parser Plugins, ltsv): labels and values, `label:value<TAB>label:value`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import regexp, string
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.pipeline.event import Record
    from headrace.plugins.parsing import Parsed


class LtsvParser(RecordParser):
    """Reads labelled values. A part without a label is left out."""

    delimiter = string(default="\t", doc="What stands between two fields")
    delimiter_pattern = regexp(default=None, doc="The same as a pattern; delimiter does not count then")
    label_delimiter = string(default=":", doc="What stands between label and value")
    time_key = RecordParser.time_key.with_default("time")

    def read(self, text: bytes) -> Parsed:
        """Parse one line."""
        line = text.decode("utf-8", "surrogateescape")
        pattern = self.delimiter_pattern
        record: Record = {}
        for part in line.split(self.delimiter) if pattern is None else pattern.split(line):
            # A pattern with a group yields None where the group does not take part.
            label, found, value = (part or "").partition(self.label_delimiter)
            if found:
                record[label] = value
        return [self.event(record)]
