"""The <dead_letter> section of <system>: where chunks and records go that nobody takes; see backup.py, refused.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, boolean, size, string

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Settings


class DeadLetterSection(Configurable):
    """Chunks that were given up, and records that were refused."""

    path = string(
        default=None,
        doc="Folder with backup/workerN in it; default: root_dir, else one for each configuration in /tmp/fluent",
    )
    limit_size = size(default=4 << 30, doc="Bytes of a worker's letters; the oldest go for new ones. 0: no limit")
    records = boolean(
        default=None,
        doc="Keep records that were refused where there is no <label @ERROR>; default: when path or root_dir is set",
    )

    def validate(self, problems: Problems) -> None:
        """Check the limit."""
        if self.limit_size < 0:
            problems.error('parameter "limit_size" cannot be negative', self.place_of("limit_size"))

    def apply(self, settings: Settings) -> None:
        """Change what the process told the pipeline; root_dir is set already."""
        settings.dead_letter_dir = self.path or settings.dead_letter_dir
        settings.dead_letter_limit = self.limit_size
        settings.dead_letter_records = (
            (settings.dead_letter_dir or settings.root_dir) is not None if self.records is None else self.records
        )
