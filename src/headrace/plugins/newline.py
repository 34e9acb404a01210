"""The end of a line, which most text formatters let one choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, boolean, enum

if TYPE_CHECKING:
    from headrace.conf.params import Problems


class Newline(Configurable):
    """`end` (bytes) is what ends each record, after validate."""

    add_newline = boolean(default=True, doc="End each record with a newline")
    newline = enum(("lf", "crlf"), default="lf", doc="The newline: \\n or \\r\\n")

    end = b"\n"

    def validate(self, problems: Problems) -> None:
        """Choose the bytes."""
        super().validate(problems)
        self.end = b"" if not self.add_newline else b"\r\n" if self.newline == "crlf" else b"\n"
