"""Parser `csv` (docs.fluentd.org, Parser Plugins, csv): one line of comma-separated values (RFC 4180)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import array, enum, string
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.plugins.parsing import Parsed


class CsvParser(RecordParser):
    """Reads separated values. A value that is empty without quotes is null; one too many is left out."""

    keys = array(doc="Names of the fields")
    delimiter = string(default=",", doc="What stands between two values; more than one character is possible")
    parser_engine = enum(
        ("normal", "fast"),
        default="normal",
        alias="parser_type",
        doc="normal: by RFC 4180, anything else does not match; fast: takes what it can of wrong quotes",
    )

    def validate(self, problems: Problems) -> None:
        """Check that there is something to split by."""
        super().validate(problems)
        if not self.delimiter:
            problems.error('parameter "delimiter" cannot be empty', self.place_of("delimiter"))

    def read(self, text: bytes) -> Parsed:
        """Parse one line."""
        line = text.decode("utf-8", "surrogateescape")
        fast = self.parser_engine == "fast"
        if '"' in line:
            try:
                values = lenient(line, self.delimiter) if fast else strict(line, self.delimiter)
            except ValueError:
                return [(None, None)]
        else:
            if not fast:
                line = _first_line(line)
            line = line.removesuffix("\n").removesuffix("\r")
            if not line and not fast:
                return [(None, None)]
            values = [value or None for value in line.split(self.delimiter)] if line else []
        if not fast:
            values += [None] * (len(self.keys) - len(values))
        return [self.event(dict(zip(self.keys, values, strict=False)))]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def strict(line: str, delimiter: str) -> list[str | None]:
    """The values of the first line. Raises ValueError for quotes that RFC 4180 does not have."""
    values: list[str | None] = []
    at, size = 0, len(line)
    while True:
        if line.startswith('"', at):
            value, at = _quoted(line, at + 1)
            values.append(value)
            if line.startswith(delimiter, at):
                at += len(delimiter)
                continue
            if at < size and line[at] not in "\r\n":
                raise ValueError("text behind a quoted value")
            return values
        end = line.find(delimiter, at)
        stop = line.find("\n", at)
        last = end < 0 or (0 <= stop < end)
        if last:
            end = stop if stop >= 0 else size
        value = line[at:end]
        if last:
            value = value.removesuffix("\r")
        if '"' in value:
            raise ValueError("a quote within a value")
        values.append(value or None)
        if last:
            return values
        at = end + len(delimiter)


def _quoted(line: str, at: int) -> tuple[str, int]:
    """The value whose text begins at `at`, and where it ends behind its closing quote."""
    parts: list[str] = []
    while True:
        end = line.find('"', at)
        if end < 0:
            raise ValueError("a quote that is not closed")
        parts.append(line[at:end])
        if not line.startswith('"', end + 1):
            return "".join(parts), end + 1
        parts.append('"')
        at = end + 2


def lenient(line: str, delimiter: str) -> list[str | None]:
    """The values of a line, as far as they can be told apart: quotes around a value go, doubled ones are one."""
    columns = line.removesuffix("\n").removesuffix("\r").split(delimiter)
    values: list[str | None] = []
    index = 0
    while index < len(columns):
        column = columns[index]
        index += 1
        if column.count('"') == 1 and column.startswith('"'):
            merged = [column]
            while index < len(columns):
                merged.append(columns[index])
                index += 1
                if merged[-1].endswith('"'):
                    break
            values.append(delimiter.join(merged)[1:-1])
            continue
        quotes = column.count('"')
        if quotes >= 2 and column.startswith('"') and column.endswith('"'):
            column = column[1:-1]
        values.append((column.replace('""', '"') if quotes > 2 else column) if column or quotes else None)
    return values
