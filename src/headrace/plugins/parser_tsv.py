"""Parser `tsv` (docs.fluentd.org, Parser Plugins, tsv): values separated by tabs, without quotes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import array, string
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.plugins.parsing import Parsed


class TsvParser(RecordParser):
    """Reads separated values. The last key takes the rest of the line, missing ones are null."""

    keys = array(doc="Names of the fields")
    delimiter = string(default="\t", doc="What stands between two values")

    def validate(self, problems: Problems) -> None:
        """Check that there is something to split by."""
        super().validate(problems)
        if not self.delimiter:
            problems.error('parameter "delimiter" cannot be empty', self.place_of("delimiter"))
        if not self.keys:
            problems.error('parameter "keys" names no field', self.place_of("keys"))

    def read(self, text: bytes) -> Parsed:
        """Parse one line."""
        line = text.decode("utf-8", "surrogateescape")
        keys = self.keys
        values: list[str | None] = [*line.split(self.delimiter, len(keys) - 1)] if line else []
        values += [None] * (len(keys) - len(values))
        return [self.event(dict(zip(keys, values, strict=True)))]
