"""Output `stdout` (docs.fluentd.org, Output Plugins, stdout): events as lines for people, at once or by <buffer>."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import boolean, raw_section, section
from headrace.pipeline.plugin import Output
from headrace.plugins.inject import Inject
from headrace.plugins.stdout import write_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch, Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter


class StdoutOutput(Output):
    """Prints events."""

    prefers_buffer = False
    buffer_defaults: ClassVar[Mapping[str, str]] = {"flush_at_shutdown": "true", "chunk_limit_size": "10k"}
    default_chunk_keys = ("tag",)
    old_style: ClassVar[Mapping[str, str]] = {"inject": "", "format": "stdout"}

    use_logger = boolean(
        default=True, doc="Where the log is a file, print there; false: to standard output, wherever the log is"
    )
    format_section = raw_section(name="format", doc="The formatter; stdout by default")
    inject = section(Inject, name="inject", doc="Values to add to each record")

    def provision(self, context: Context) -> None:
        """Make the formatter."""
        if self.format_section is None:
            self._formatter: Formatter = context.make_default("formatter", "stdout", self, "format")
        else:
            self._formatter = context.make("formatter", self.format_section, default_type="stdout")
        self._inject = self.inject.injector(context, self)
        self._fd = context.settings.stdout_fd if self.use_logger else context.settings.console_fd

    def process(self, tag: str, batch: Batch) -> None:
        """Print a batch; a record that cannot be formatted goes to @ERROR alone."""
        lines: list[bytes] = []
        for time, record in batch.events():
            try:
                lines.append(self.format(tag, time, record))
            except Exception as error:  # noqa: BLE001 - whatever a record provokes is that record's matter
                self.router.emit_error_event(tag, time, record, error)
        write_lines(self._fd, b"".join(lines))

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record as a line."""
        if self._inject is not None:
            record = self._inject(tag, time, record)
        text = self._formatter.format(tag, time, record)
        return text if text.endswith(b"\n") else text + b"\n"

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Print a chunk."""
        write_lines(self._fd, chunk.read())
