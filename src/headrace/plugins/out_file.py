"""Output `file` (docs.fluentd.org, Output Plugins, file): a file for each chunk, or chunks appended to files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import boolean, enum, raw_section, reserved, section, string
from headrace.errors import ConfError, Error, Unrecoverable
from headrace.pipeline import codec
from headrace.pipeline.plugin import Output
from headrace.plugins.file_append import append, create
from headrace.plugins.file_path import SUFFIXES, resolve, template_of, writable
from headrace.plugins.inject import Inject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter

DAY: Final = "86400"
KEPT: Final = 1024
THREADED: Final = 128 << 10
"""Bytes from which a chunk is compressed in a thread: zlib and zstd let the loop run meanwhile."""


class FileOutput(Output):
    """Writes chunks to files."""

    buffer_defaults: ClassVar[Mapping[str, str]] = {"@type": "file", "timekey": DAY}
    default_chunk_keys = ("time",)
    old_style: ClassVar[Mapping[str, str]] = {"format": "out_file", "buffer": "time", "inject": ""}

    path = string(placeholders=True, doc="Path of the files; a * in it stands for the time slice")
    append = boolean(default=False, doc="Append chunks to the file of their slice; false: a file for each chunk")
    add_path_suffix = boolean(default=True, doc="Put path_suffix behind the path")
    path_suffix = string(default=".log", doc="What stands behind the path")
    compress = enum(tuple(SUFFIXES), default="text", doc="Compression of the files")
    recompress = boolean(default=False, doc="Compress what the buffer has compressed already once more from its text")
    symlink_path = string(
        default=None,
        placeholders=True,
        doc="Symbolic link that always leads to the newest file. (In Fluentd to the chunk that grows in the buffer, "
        "which is no file here: use it with append and a short flush_interval)",
    )
    symlink_path_use_relative = boolean(default=False, doc="Make the link relative")
    format_section = raw_section(name="format", doc="The formatter; out_file by default")
    inject = section(Inject, name="inject", doc="Values to add to each record")

    time_slice_format = string(
        default=None, doc="Form of the time slice in the path; before 0.14, without a <buffer>, it also is timekey"
    )

    def buffer_parameters(self) -> Mapping[str, str]:
        """The defaults of <buffer>; a file buffer without a place of its own is kept beside the files."""
        given = self.buffer_section
        type_name = (given and reserved(given, "@type")) or "file"
        if type_name != "file" or (self.id_ is not None and self.context.settings.root_dir is not None):
            return self.buffer_defaults
        # A file without any suffix would have the name of the folder.
        beside = ".buffer" if self.append and not (self.add_path_suffix and self.path_suffix) else ""
        return {**self.buffer_defaults, "path": self.path + beside}

    def provision(self, context: Context) -> None:
        """Make the template of the paths and the formatter."""
        runner = self.runner
        if runner is None:  # the buffer is wrong, and reported
            return
        try:
            self._template = template_of(
                self.path,
                timekey=runner.keys.timekey,
                append=self.append,
                suffix=self.path_suffix if self.add_path_suffix else "",
                compress=self.compress,
                slices=self.time_slice_format,
            )
        except ValueError as error:
            raise ConfError(str(error), self.place_of("path")) from error
        is_secondary = runner.output is not self
        if not is_secondary:
            self.require_placeholders("path", self._template)
        elif self.symlink_path is not None:
            raise ConfError("symlink_path is not possible in <secondary>", self.place_of("symlink_path"))
        elif self.format_section is not None or self.inject.present:
            context.problems.warn(
                "<format> and <inject> have no effect in <secondary>: its chunks are as the primary formatted them",
                self.place,
            )
        folder = writable(self._template)
        if folder is not None:
            raise ConfError(f'"{folder}" does not let files be written to "{self.path}"', self.place_of("path"))
        if self.format_section is None:
            self._formatter: Formatter = context.make_default("formatter", "out_file", self, "format")
        else:
            self._formatter = context.make("formatter", self.format_section, default_type="out_file")
        self._inject = self.inject.injector(context, self)
        if self._inject is None and type(self).format is FileOutput.format:
            self.format_many = self._formatter.format_many
        self._kind = codec.NAMES["gzip" if self.compress == "gz" else self.compress]
        self._indexes: dict[str, int] = {}
        self._linked: dict[str, int] = {}
        self.files = 0
        self.bytes = 0

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record as the formatter writes it."""
        if self._inject is not None:
            record = self._inject(tag, time, record)
        return self._formatter.format(tag, time, record)

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Write a chunk to its file. Raises Error or OSError; a name that cannot be one is unrecoverable."""
        pieces = await self._content(chunk)
        parts = resolve(self._template, chunk.extract_placeholders)
        settings, files = self.context.settings, self.context.files
        try:
            self._make_folder("".join(parts))
            if len(parts) == 1:
                path = parts[0]
                await append(path, pieces, files=files, clock=self.context.clock, mode=settings.file_mode)
            else:
                path = await self._create(parts[0], parts[1], pieces)
            if self.symlink_path is not None:
                self._link(path, chunk)
        except OSError as error:
            if error.errno in {errno.ENAMETOOLONG, errno.EILSEQ}:
                raise Unrecoverable(f"{error.filename}: {error.strerror}", kind="path") from error
            raise Error(f"{error.filename or parts[0]}: {error.strerror}", kind="file", retryable=True) from error
        self.files += 1
        self.bytes += sum(map(len, pieces))

    def _make_folder(self, path: str) -> str:
        folder = os.path.dirname(path)
        if folder:
            self.context.files.makedirs(folder, self.context.settings.dir_mode)
        return folder

    async def _content(self, chunk: Chunk) -> Sequence[bytes]:
        kind = self._kind
        if kind == codec.TEXT:
            return chunk.pieces()
        if chunk.codec == kind and not self.recompress:
            return (chunk.read_compressed("gzip" if kind == codec.GZIP else "zstd"),)
        text = chunk.read()
        if len(text) < THREADED:
            return (codec.compress(kind, text),)
        return (await asyncio.get_running_loop().run_in_executor(None, codec.compress, kind, text),)

    async def _create(self, prefix: str, rest: str, pieces: Sequence[bytes]) -> str:
        """Write the first file of the series that is free; the search goes on where it ended."""
        key = prefix + rest
        last = self._indexes.get(key)
        # Where the last one was taken away, the series begins anew.
        index = 0 if last is None or not os.access(f"{prefix}_{last}{rest}", os.F_OK) else last + 1
        files, mode = self.context.files, self.context.settings.file_mode
        index = await create(prefix, rest, index, pieces, files=files, mode=mode)
        if len(self._indexes) >= KEPT:
            self._indexes.clear()
        self._indexes[key] = index
        return f"{prefix}_{index}{rest}"

    def _link(self, path: str, chunk: Chunk) -> None:
        """Let the link lead to the file, unless it leads to one of a later slice."""
        assert self.symlink_path is not None
        link = "".join(resolve(self.symlink_path, chunk.extract_placeholders))
        slice_ = chunk.meta.timekey or 0
        if slice_ < self._linked.get(link, 0):
            return
        folder = self._make_folder(link)
        target = os.path.abspath(path)
        if self.symlink_path_use_relative:
            target = os.path.relpath(target, os.path.abspath(folder))
        fresh = f"{link}.{os.getpid()}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        os.symlink(target, fresh)
        self.context.files.rename(fresh, link)
        if len(self._linked) >= KEPT:
            self._linked.clear()
        self._linked[link] = slice_

    def stats(self) -> dict[str, Any]:
        """Chunks and bytes written."""
        return {"files": self.files, "bytes": self.bytes}
