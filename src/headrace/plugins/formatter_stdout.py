"""Formatter `stdout` (docs.fluentd.org, Formatter Plugins, stdout): time, tag, and the record by another formatter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.conf.params import declared_params, string
from headrace.conf.tree import Directive
from headrace.pipeline.plugin import Formatter
from headrace.plugins.time_format import time_formatter

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record

TIME_FORMAT = "%Y-%m-%d %H:%M:%S.%N %z"


class StdoutFormatter(Formatter):
    """Writes lines for people."""

    output_type = string(default="json", doc="The formatter of the record; the section's other parameters are its own")
    time_format = string(default=TIME_FORMAT, doc="How the time is shown; local time")

    _inner: Formatter

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Take what is declared here; the rest is for the inner formatter."""
        own = {key for item in declared_params(type(self)) for key in item.keys}
        children = directive.block or ()
        super().configure(replace(directive, block=tuple(item for item in children if item.name in own)), problems)
        self._rest = tuple(item for item in children if item.name not in own and not item.name.startswith("@"))

    def provision(self, context: Context) -> None:
        """Make the inner formatter."""
        place = self.directive
        assert place is not None
        kind = Directive("@type", (self.output_type,), place.file, place.line, values=(self.output_type,))
        self._inner = context.make("formatter", replace(place, block=(kind, *self._rest)))
        self._time = time_formatter(self.time_format, None)

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """`TIME TAG: RECORD`."""
        text = self._inner.format(tag, time, record)
        # One newline at most, as Ruby's chomp.
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        return f"{self._time(time)} {tag}: ".encode("utf-8", "surrogateescape") + text + b"\n"
