"""Buffer `file_single` (docs.fluentd.org, Buffer Plugins, file_single): as `file`, with Fluentd's rules for chunk keys.

Fluentd keeps each chunk of it in one file whose name holds the tag, or the value of the one chunk key. Here the
chunks are in the same journal as those of `file`; what a Fluentd left in its files is taken over at start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import boolean, enum
from headrace.plugins.buf_file import FileBuffer

if TYPE_CHECKING:
    from headrace.conf.params import Problems


class FileSingleBuffer(FileBuffer):
    """Chunks on disk, by tag or by one field."""

    single: ClassVar[bool] = True

    chunk_format = enum(
        ("msgpack", "text", "auto"),
        default="auto",
        doc="What chunks that Fluentd left hold, to count their events; auto: what the output makes",
    )
    calc_num_records = boolean(
        default=True, doc="Count the events of chunks that Fluentd left; here they are counted in any case"
    )

    def validate(self, problems: Problems) -> None:
        """Check the chunk keys: the tag, or one field."""
        if not self.calc_num_records:
            message = (
                'parameter "calc_num_records" false has no effect: the events of adopted chunks are always counted'
            )
            problems.warn(message, self.place_of("calc_num_records"))
        names = [name for name in self.chunk_keys if name != "tag"]
        if not self.chunk_keys:
            self.chunk_keys = ["tag"]
        elif "time" in names or len(names) > 1 or (names and "tag" in self.chunk_keys):
            problems.error(
                f"file_single cannot have the chunk keys {', '.join(self.chunk_keys)}",
                self.place,
                hint="the tag, or one field of the record; `@type file` has all others",
            )
            return
        super().validate(problems)

    def holds_packed(self) -> bool:
        """Whether chunks hold the msgpack stream of events."""
        return super().holds_packed() if self.chunk_format == "auto" else self.chunk_format == "msgpack"
