"""Formatter `tsv` (docs.fluentd.org, Formatter Plugins, tsv): chosen fields, separated by tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import array, string
from headrace.pipeline.plugin import Formatter
from headrace.plugins.newline import Newline
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from headrace.pipeline.event import Record


class TsvFormatter(Newline, Formatter):
    """Writes separated values, as they are."""

    keys = array(doc="The fields, in order")
    delimiter = string(default="\t", doc="What stands between two values")

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line."""
        line = self.delimiter.join([to_s(record.get(key)) for key in self.keys])
        return line.encode("utf-8", "surrogateescape") + self.end
