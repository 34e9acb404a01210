"""s3_object_key_format -> the key of a chunk's object."""

from __future__ import annotations

import re
import uuid
from datetime import UTC
from typing import TYPE_CHECKING, Final

from headrace.plugins.time_format import time_formatter

if TYPE_CHECKING:
    from datetime import tzinfo

    from headrace.pipeline.chunk import Chunk

NS: Final = 1_000_000_000
_NAME: Final = re.compile(r"%\{[^}]+\}")
_SLICES: Final = ((60, "%Y%m%d%H%M%S"), (3600, "%Y%m%d%H%M"), (86400, "%Y%m%d%H"))


def slice_format(timekey: int | None) -> str:
    """The form of time slices: as fine as timekey."""
    if timekey is None:
        return ""
    return next((form for limit, form in _SLICES if timekey < limit), "%Y%m%d")


class Keys:
    """Makes keys. zone: of the time slices, None is local time."""

    def __init__(
        self,
        form: str,
        *,
        path: str,
        extension: str,
        hostname: str,
        index_format: str,
        hex_length: int,
        slice_form: str,
        zone: tzinfo | None,
    ) -> None:
        fixed = {"%{path}": path, "%{file_extension}": extension, "%{hostname}": hostname}
        self._form = _NAME.sub(lambda match: fixed.get(match.group(), match.group()), form)
        self._index_format = index_format
        self._hex_length = hex_length
        self._slice = time_formatter(slice_form, zone) if slice_form else None
        self._hms = time_formatter("%H%M%S", UTC)
        self.indexed = "%{index}" in self._form
        """Whether a key that is taken may have a next one."""

    def index(self, number: int) -> str:
        """%{index}."""
        return self._index_format % number

    def parts(self, chunk: Chunk, now: int) -> tuple[str, ...]:
        """The key of a chunk, cut where the index belongs. now: wall clock in nanoseconds."""
        timekey = chunk.meta.timekey
        slice_ = self._slice(timekey * NS) if self._slice is not None and timekey is not None else ""
        values = {
            "%{time_slice}": slice_,
            "%{date_slice}": slice_,
            "%{hms_slice}": self._hms(now),
            "%{uuid_flush}": str(uuid.uuid4()),
            "%{hex_random}": chunk.hex_id[::-1][: self._hex_length],
        }
        pieces: list[str] = []
        # Only the form's own placeholders are filled in: a tag may hold anything.
        for piece in self._form.split("%{index}"):
            out: list[str] = []
            at = 0
            for match in _NAME.finditer(piece):
                out += (chunk.extract_placeholders(piece[at : match.start()]), values.get(match.group(), match.group()))
                at = match.end()
            out.append(chunk.extract_placeholders(piece[at:]))
            pieces.append("".join(out))
        return tuple(pieces)
