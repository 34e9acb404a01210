"""Formatter `hash` (docs.fluentd.org, Formatter Plugins, hash): a record as Ruby prints a hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.plugin import Formatter
from headrace.plugins.newline import Newline
from headrace.plugins.ruby_text import inspect

if TYPE_CHECKING:
    from headrace.pipeline.event import Record


class HashFormatter(Newline, Formatter):
    """Writes `{"key"=>"value"}`."""

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line."""
        return inspect(record).encode("utf-8", "surrogateescape") + self.end
