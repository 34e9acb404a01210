"""Formatter `out_file` (docs.fluentd.org, Formatter Plugins, out_file): time, tag and JSON, with tabs between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.params import boolean, enum, string
from headrace.pipeline.plugin import Formatter
from headrace.plugins.jsoncodec import POLICIES, REPLACE, encode
from headrace.plugins.jsonlines import encode_lines
from headrace.plugins.newline import Newline
from headrace.plugins.time_params import FormatTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record

_DELIMITERS: Final = {"SPACE": " ", "COMMA": ",", "TAB": "\t"}


class OutFileFormatter(Newline, FormatTime, Formatter):
    """Writes lines for files."""

    output_time = boolean(default=True, doc="Begin with the time")
    output_tag = boolean(default=True, doc="Then the tag")
    delimiter = string(default="TAB", doc="What stands between: SPACE, COMMA or TAB")
    invalid_values = enum(POLICIES, default=REPLACE, doc="What JSON cannot say; see the formatter json")

    def validate(self, problems: Problems) -> None:
        """Choose the delimiter and the form of the time."""
        super().validate(problems)
        word = self.delimiter.strip().upper()
        if word not in {*_DELIMITERS, "\\T", ""}:
            problems.error(
                f'parameter "delimiter": "{self.delimiter}" is not SPACE, COMMA or TAB', self.place_of("delimiter")
            )
        self._between = _DELIMITERS.get(word, "\t")
        self._time = self.time_formatter()

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line. Raises ValueError as `plugins.jsoncodec` says."""
        head = f"{self._time(time)}{self._between}" if self.output_time else ""
        if self.output_tag:
            head += f"{tag}{self._between}"
        return head.encode("utf-8", "surrogateescape") + encode(record, self.invalid_values) + self.end

    def format_many(self, tag: str, times: Sequence[int], records: Sequence[Record]) -> bytes:
        """As `format`; what stands before the record is made once for times that look the same."""
        tail = f"{tag}{self._between}" if self.output_tag else ""
        heads: bytes | list[bytes] = tail.encode("utf-8", "surrogateescape")
        if self.output_time and records:
            heads = self._heads(times, tail)
        return encode_lines(records, heads, self.end, self.invalid_values)

    def _heads(self, times: Sequence[int], tail: str) -> bytes | list[bytes]:
        """What stands before the records: one text for all of them, where their times look the same."""
        shown, between, unit = self._time, self._between, getattr(self._time, "unit", 1)
        last = times[0] // unit
        head = f"{shown(times[0])}{between}{tail}".encode("utf-8", "surrogateescape")
        if min(times) // unit == last == max(times) // unit:
            return head
        heads: list[bytes] = []
        for time in times:
            if time // unit != last:
                last = time // unit
                head = f"{shown(time)}{between}{tail}".encode("utf-8", "surrogateescape")
            heads.append(head)
        return heads
