"""Where chunks go that nobody takes: a file each, with the chunk's content, named as Fluentd names it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.files import Files

_UNSAFE: Final = re.compile(r'[ "/\\:;|*<>?]')


class Backup:
    """Writes chunks that nobody takes to ROOT/backup/workerN/PLUGIN_ID/CHUNK_ID.log."""

    def __init__(self, root: str, worker_id: int, plugin_id: str, files: Files, *, dir_mode: int, mode: int) -> None:
        self.folder = os.path.join(root, "backup", f"worker{worker_id}", _UNSAFE.sub("_", plugin_id))
        self._files = files
        self._dir_mode = dir_mode
        self._mode = mode

    def write(self, chunk: Chunk) -> str:
        """Write the content, decompressed, and bring it to the disk; return the path. Raises OSError, ValueError."""
        files = self._files
        path = os.path.join(self.folder, f"{chunk.hex_id}.log")
        data = chunk.read()
        files.makedirs(self.folder, self._dir_mode)
        files.unlink(path)
        fd = files.create(path, self._mode)
        try:
            view = memoryview(data)
            while view:
                view = view[files.append(fd, view[: 1 << 20]) :]
            files.sync(fd)
        finally:
            files.close(fd)
        return path
