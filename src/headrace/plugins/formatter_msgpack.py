"""Formatter `msgpack` (docs.fluentd.org, Formatter Plugins, msgpack): a record as a msgpack map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.event import pack_value
from headrace.pipeline.plugin import Formatter

if TYPE_CHECKING:
    from headrace.pipeline.event import Record


class MsgpackFormatter(Formatter):
    """Writes msgpack; nothing of a record is lost."""

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One map. Raises ValueError, TypeError or OverflowError for what msgpack cannot hold."""
        return pack_value(record)
