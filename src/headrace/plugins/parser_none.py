"""Parser `none` (docs.fluentd.org, Parser Plugins, none): the whole text is one field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import boolean, string
from headrace.pipeline.plugin import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.event import Event
    from headrace.plugins.parsing import Parsed


class NoneParser(Parser):
    """Reads nothing into a text. Bytes that are not UTF-8 are kept by surrogateescape."""

    message_key = string(default="message", doc="Field for the text")
    estimate_current_event = boolean(default=True, doc="The event is of now; false: it has no time")

    def parse(self, text: bytes) -> Parsed:
        """One record."""
        now = self.context.clock.wall_ns() if self.estimate_current_event else None
        return [(now, {self.message_key: text.decode("utf-8", "surrogateescape")})]

    def parse_lines(
        self, lines: Sequence[bytes], failed: Callable[[bytes, Exception | None], Event | None]
    ) -> list[Event]:
        """One record for each line; all are of the same moment."""
        if not self.estimate_current_event:
            return super().parse_lines(lines, failed)
        now, key = self.context.clock.wall_ns(), self.message_key
        return [(now, {key: line.decode("utf-8", "surrogateescape")}) for line in lines]
