"""Parser `cri` (github.com/fluent/fluent-plugin-parser-cri): lines of containers, `TIME STREAM LOGTAG MESSAGE`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.conf.params import boolean, raw_section
from headrace.plugins.parsing import ParserError, RecordParser

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import Parser
    from headrace.plugins.parsing import Parsed

_SPACE: Final = re.compile(r"[ \t\r\n\f\v]")


class CriParser(RecordParser):
    """Reads the log format of the Container Runtime Interface; a <parse> section reads the message."""

    merge_cri_fields = boolean(default=True, doc="With a <parse> section: keep stream and logtag in the record")
    time_key = RecordParser.time_key.with_default("time")
    time_format = RecordParser.time_format.with_default("%Y-%m-%dT%H:%M:%S.%L%z")
    keep_time_key = RecordParser.keep_time_key.with_default(default=True)
    parse_section = raw_section(name="parse", doc="The parser of the message; its time is the time of the event")

    def provision(self, context: Context) -> None:
        """Make the parser of messages."""
        super().provision(context)
        self._inner: Parser | None = context.make("parser", self.parse_section) if self.parse_section else None

    def read(self, text: bytes) -> Parsed:
        """Parse one line."""
        parts = _SPACE.split(text.decode("utf-8", "surrogateescape"), 3)
        if len(parts) != 4:
            return [(None, None)]
        at, stream, logtag, message = parts
        if self._inner is not None:
            found = list(self._inner.parse(message.encode("utf-8", "surrogateescape")))[-1:]
            for _, record in found:
                if self.merge_cri_fields and record is not None:
                    record["stream"] = stream
                    record["logtag"] = logtag
            return found or [(None, None)]
        record = {"stream": stream, "logtag": logtag, "message": message}
        try:
            moment = self._time(at)
        except ValueError as error:
            raise ParserError(f"invalid time: {error}") from error
        if self.keep_time_key and self.time_key is not None:
            record[self.time_key] = at
        if self._converts:
            self._convert(record)
        return [(moment, record)]
