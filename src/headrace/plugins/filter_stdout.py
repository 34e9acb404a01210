"""Filter `stdout` (docs.fluentd.org, Filter Plugins, stdout): prints what passes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import raw_section, section
from headrace.pipeline.plugin import Filter
from headrace.plugins.inject import Inject
from headrace.plugins.stdout import write_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch
    from headrace.pipeline.plugin import Formatter


class StdoutFilter(Filter):
    """Prints events and lets them pass unchanged."""

    old_style: ClassVar[Mapping[str, str]] = {"inject": "", "format": "stdout"}

    format_section = raw_section(name="format", doc="The formatter; stdout by default")
    inject = section(Inject, name="inject", doc="Values to add to what is printed")

    def provision(self, context: Context) -> None:
        """Make the formatter."""
        if self.format_section is None:
            self._formatter: Formatter = context.make_default("formatter", "stdout", self, "format")
        else:
            self._formatter = context.make("formatter", self.format_section, default_type="stdout")
        self._inject = self.inject.injector(context)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Print a batch and return it; a record that cannot be formatted goes to @ERROR and passes too."""
        lines: list[bytes] = []
        for time, record in batch.events():
            try:
                shown = record if self._inject is None else self._inject(tag, time, record)
                lines.append(self._formatter.format(tag, time, shown))
            except Exception as error:  # noqa: BLE001 - whatever a record provokes is that record's matter
                self.router.emit_error_event(tag, time, record, error)
        write_lines(self.context.settings.stdout_fd, b"".join(lines))
        return batch
