"""Output `secondary_file` (docs.fluentd.org, Output Plugins, secondary_file): chunks into files, in <secondary> only.

The files hold the chunks as the primary formatted them: the msgpack stream of events where it did not. What
`headrace binlog` shows, and `headrace cat --format msgpack` sends again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, enum, string
from headrace.errors import ConfError, Error, Unrecoverable
from headrace.pipeline import codec
from headrace.pipeline.plugin import Output
from headrace.plugins.file_append import append, create
from headrace.plugins.file_path import resolve, writable

if TYPE_CHECKING:
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.lanes import Lane

THREADED: Final = 128 << 10
"""Bytes from which a chunk is compressed in a thread: zlib lets the loop run meanwhile."""


class SecondaryFileOutput(Output):
    """Keeps in files what the primary could not deliver."""

    directory = string(placeholders=True, doc="Folder of the files")
    basename = string(
        default="dump.bin", placeholders=True, doc="Name of the files; ${chunk_id} and the chunk keys may stand in it"
    )
    append = boolean(default=False, doc="Append chunks to one file; false: a file for each, with .0, .1, ... behind it")
    compress = enum(("text", "gzip"), default="text", doc="Compression of the files")

    def provision(self, context: Context) -> None:
        """Check that this is a secondary, and that its files can be written."""
        if self.runner is None or self.runner.output is self:
            raise ConfError("secondary_file can only stand in a <secondary> section", self.place)
        if "/" in self.basename:
            raise ConfError('parameter "basename" cannot have a "/"', self.place_of("basename"))
        self._template = os.path.join(self.directory, self.basename)
        if (closed := writable(self._template)) is not None:
            raise ConfError(
                f'"{self.directory}" cannot be written to: "{closed}" does not let files be made in it',
                self.place_of("directory"),
            )
        self._suffix = ".gz" if self.compress == "gzip" else ""
        self.files = 0
        self.bytes = 0

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Write a chunk to its file. Raises Error; a name that cannot be one is unrecoverable."""
        data = await self._content(chunk)
        base = resolve(self._template, chunk.extract_placeholders)[0]
        settings, files = self.context.settings, self.context.files
        try:
            files.makedirs(os.path.dirname(base) or ".", settings.dir_mode)
            if self.append:
                await append(
                    base + self._suffix, (data,), files=files, clock=self.context.clock, mode=settings.file_mode
                )
            else:
                await create(base, self._suffix, 0, (data,), files=files, mode=settings.file_mode, joint=".")
        except OSError as error:
            if error.errno in {errno.ENAMETOOLONG, errno.EILSEQ}:
                raise Unrecoverable(f"{error.filename}: {error.strerror}", kind="path") from error
            raise Error(f"{error.filename or base}: {error.strerror}", kind="file", retryable=True) from error
        self.files += 1
        self.bytes += len(data)

    async def _content(self, chunk: Chunk) -> bytes:
        if self.compress == "text":
            return chunk.read()
        text = chunk.read()
        if len(text) < THREADED:
            return codec.compress(codec.GZIP, text)
        return await asyncio.get_running_loop().run_in_executor(None, codec.compress, codec.GZIP, text)

    def stats(self) -> dict[str, Any]:
        """Chunks and bytes written."""
        return {"files": self.files, "bytes": self.bytes}
