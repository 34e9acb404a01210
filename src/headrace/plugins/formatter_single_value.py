"""Formatter `single_value` (docs.fluentd.org, Formatter Plugins, single_value): one field, as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import string
from headrace.pipeline.plugin import Formatter
from headrace.plugins.newline import Newline
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from headrace.pipeline.event import Record


class SingleValueFormatter(Newline, Formatter):
    """Writes one field; nothing where it is absent."""

    message_key = string(default="message", doc="The field")

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line."""
        return to_s(record.get(self.message_key)).encode("utf-8", "surrogateescape") + self.end
