"""Formatter `csv` (docs.fluentd.org, Formatter Plugins, csv): chosen fields as separated values (RFC 4180)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.conf.params import array, boolean, string
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.plugin import Formatter
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record


class CsvFormatter(Formatter):
    """Writes separated values."""

    fields = array(doc="The fields, in order; $.a.b for nested ones")
    delimiter = string(default=",", doc="What stands between two values; \\t or TAB for a tab")
    force_quotes = boolean(default=True, doc="Quotes around every value; false: only where they are needed")
    add_newline = boolean(default=True, doc="End each record with a newline")

    def validate(self, problems: Problems) -> None:
        """Read the fields."""
        super().validate(problems)
        names = [name for name in self.fields if name]
        if not names:
            problems.error('parameter "fields" names no field', self.place_of("fields"))
        try:
            self._get = [Accessor(name).get for name in names]
        except ValueError as error:
            problems.error(f'parameter "fields": {error}', self.place_of("fields"))
        if not self.delimiter:
            problems.error('parameter "delimiter" cannot be empty', self.place_of("delimiter"))
        self._between = "\t" if self.delimiter in {"\\t", "TAB"} else self.delimiter
        self._quotable = re.compile('[\\r\\n"]|' + re.escape(self._between))
        self._end = "\n" if self.add_newline else ""

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One line."""
        values = [get(record) for get in self._get]
        if self.force_quotes:
            texts = ['"' + to_s(value).replace('"', '""') + '"' for value in values]
        else:
            texts = [self._quoted(value) for value in values]
        return (self._between.join(texts) + self._end).encode("utf-8", "surrogateescape")

    def _quoted(self, value: object) -> str:
        text = to_s(value)
        # An empty text has quotes, so that it is not read as null.
        if (text == "" and value is not None) or self._quotable.search(text):
            return '"' + text.replace('"', '""') + '"'
        return text
