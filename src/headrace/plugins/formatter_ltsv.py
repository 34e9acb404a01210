"""Formatter `ltsv` (docs.fluentd.org, Formatter Plugins, ltsv): `label:value<TAB>label:value`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import string
from headrace.pipeline.plugin import Formatter
from headrace.plugins.newline import Newline
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from headrace.pipeline.event import Record


class LtsvFormatter(Newline, Formatter):
    """Writes labelled values; a delimiter within a value is replaced."""

    delimiter = string(default="\t", doc="What stands between two fields")
    label_delimiter = string(default=":", doc="What stands between label and value")
    replacement = string(default=" ", doc="What stands for a delimiter within a value")

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line."""
        delimiter, between, replacement = self.delimiter, self.label_delimiter, self.replacement
        parts = [
            f"{to_s(label)}{between}{to_s(value).replace(delimiter, replacement)}" for label, value in record.items()
        ]
        return delimiter.join(parts).encode("utf-8", "surrogateescape") + self.end
