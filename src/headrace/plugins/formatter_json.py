"""Formatter `json` (docs.fluentd.org, Formatter Plugins, json): a record as one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from headrace.conf.params import enum
from headrace.pipeline.plugin import Formatter
from headrace.plugins.jsoncodec import POLICIES, REPLACE, encode
from headrace.plugins.jsonlines import encode_lines
from headrace.plugins.newline import Newline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record

_PLAIN: Final = orjson.OPT_PASSTHROUGH_SUBCLASS


class JsonFormatter(Newline, Formatter):
    """Writes JSON."""

    json_parser = enum(
        ("oj", "yajl", "json"), default="oj", doc="Fluentd's choice of a library; the text is the same with each"
    )
    invalid_values = enum(
        POLICIES,
        default=REPLACE,
        doc="What JSON cannot say: replace writes U+FFFD for bytes that are not UTF-8 and null for NaN and infinity; "
        "reject sends the record to @ERROR",
    )

    def validate(self, problems: Problems) -> None:
        """Choose the function for these parameters."""
        super().validate(problems)
        if self.end == b"\n" and self.invalid_values == REPLACE:
            self.__dict__["format"] = self._line

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record. Raises ValueError as `plugins.jsoncodec` says."""
        return encode(record, self.invalid_values) + self.end

    def format_many(self, tag: str, times: Sequence[int], records: Sequence[Record]) -> bytes:
        """As `format`, for many."""
        return encode_lines(records, b"", self.end, self.invalid_values)

    @staticmethod
    def _line(tag: str, time: int, record: Record) -> bytes:
        try:
            # The sum is a new object of the right size: what orjson returns keeps 4 KB for as long as it lives.
            return orjson.dumps(record, option=_PLAIN) + b"\n"
        except TypeError:
            return encode(record) + b"\n"
