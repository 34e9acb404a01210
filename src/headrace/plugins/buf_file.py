"""Buffer `file` (docs.fluentd.org, Buffer Plugins, file): a journal on disk; see `pipeline.filestore`.

`path` is a folder. Of Fluentd's forms with a file name, `/dir/name.*.log` and the path of an existing file,
the part before the star names the folder: `/dir/name.journals`.

What a Fluentd with the same section has left in its files is taken over at start: see `pipeline.adopt`.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import enum, size, string, time
from headrace.errors import ConfError
from headrace.pipeline.filestore import FileStore
from headrace.pipeline.fluentfiles import SINGLE_PREFIX, SINGLE_SUFFIX, Location, locations
from headrace.pipeline.journal import SEGMENT_SIZE
from headrace.pipeline.seen import Seen, shared_table
from headrace.pipeline.settings import BufferSection

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context


class FileBuffer(BufferSection):
    """Chunks on disk."""

    persistent = True
    single: ClassVar[bool] = False
    """Whether Fluentd has its chunks in one file each, without a .meta file."""

    chunk_limit_size = size(default=256 << 20, doc="Bytes of a chunk")
    total_limit_size = size(default=64 << 30, doc="Bytes of all chunks: staged, queued and in flight")
    path = string(default=None, doc="Folder of the journal; default: root_dir/workerN/@id/buffer")
    path_suffix = string(default=".log", doc="How the files of Fluentd end that are taken over")
    sync = enum(("write", "fsync"), default="write", doc="When a batch counts as safe: in the kernel, or on the disk")
    sync_interval = time(default=0.4, doc="With sync write, seconds until the disk has what was written")
    segment_size = size(default=SEGMENT_SIZE, doc="Bytes of one file of the journal")
    dir_permission = string(default=None, doc="Octal mode of the folders")
    file_permission = string(default=None, doc="Octal mode of the files")

    folder: str

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        if self.segment_size < 1 << 12:
            problems.error('parameter "segment_size" must be at least 4k', self.place_of("segment_size"))
        if self.sync_interval <= 0:
            problems.error('parameter "sync_interval" must be above 0', self.place_of("sync_interval"))
        for name in ("dir_permission", "file_permission"):
            text = getattr(self, name)
            if text is not None and (not text or text.strip("01234567")):
                problems.error(f'parameter "{name}" must be octal, such as 0755', self.place_of(name))

    def provision(self, context: Context) -> None:
        """Find the folder, and see that no other output has it."""
        settings = context.settings
        if settings.workers > 1:
            shared_table()  # now, so that all workers have the same
        if self.path is not None:
            folder = folder_of(self.path)
            if settings.workers > 1:
                folder = os.path.join(folder, f"worker{settings.worker_id}")
        elif settings.root_dir is not None and self.owner.id_ is not None:
            folder = os.path.join(settings.root_dir, f"worker{settings.worker_id}", self.owner.id_, "buffer")
        else:
            raise ConfError(
                "the file buffer has no path", self.place, hint="write path, or root_dir in <system> and @id here"
            )
        self.folder = os.path.realpath(folder)
        if (closed := unwritable(self.folder)) is not None:
            raise ConfError(
                f'the buffer cannot be kept in "{folder}": "{closed}" is no folder that may be written to',
                self.place_of("path"),
                hint="choose another path, or change its owner",
            )
        other = context.claimed.setdefault(self.folder, self.owner.plugin_id)
        if other != self.owner.plugin_id:
            raise ConfError(f'the buffer path {folder} is already that of "{other}"', self.place_of("path"))

    def adopts(self, context: Context) -> list[Location]:
        """Where Fluentd has the files of a buffer with this section."""
        settings = context.settings
        if self.path is None:
            return [self._at(one) for one in (self.folder, *self.elsewhere(context))]
        return locations(
            self.path,
            self.path_suffix or ".log",
            worker=settings.worker_id,
            workers=settings.workers,
            names=context.files.listdir(self.path) if os.path.isdir(self.path) else (),
            single=self.single,
        )

    def _at(self, folder: str) -> Location:
        if self.single:
            return Location(folder, SINGLE_PREFIX, SINGLE_SUFFIX, single=True)
        return Location(folder, "buffer", self.path_suffix or ".log")

    def elsewhere(self, context: Context) -> list[str]:
        """Folders of workers that there are no more, since `workers` was set to another number: worker 0 has them."""
        settings = context.settings
        if settings.worker_id:
            return []
        if self.path is not None:
            top, inside = folder_of(self.path), ""
        else:
            assert settings.root_dir is not None
            assert self.owner.id_ is not None
            top, inside = settings.root_dir, os.path.join(self.owner.id_, "buffer")
        found = [top] if settings.workers > 1 and not inside else []
        for name in context.files.listdir(top):
            number = name.removeprefix("worker")
            gone = number.isdigit() and int(number) >= (settings.workers if settings.workers > 1 or inside else 0)
            if name.startswith("worker") and gone:
                found.append(os.path.join(top, name, inside) if inside else os.path.join(top, name))
        real = [os.path.realpath(one) for one in found]
        return [one for one in real if context.claimed.get(one) is None]

    def open_store(self, context: Context) -> FileStore:
        """Open the journal."""
        settings = context.settings
        runner = self.owner.runner
        assert runner is not None
        return FileStore(
            self.folder,
            files=context.files,
            clock=context.clock,
            log=self.log,
            backup=runner.backup().folder,
            fsync=self.sync == "fsync",
            sync_interval=self.sync_interval,
            segment_size=self.segment_size,
            dir_mode=int(self.dir_permission, 8) if self.dir_permission else settings.dir_mode,
            mode=int(self.file_permission, 8) if self.file_permission else settings.file_mode,
            adopted=runner.restore,
            distrusted=runner.flush,
            elsewhere=partial(self.elsewhere, context),
            seen=self._seen(settings.workers, settings.root_dir),
            twins=partial(self._twins, context),
        )

    def _twins(self, context: Context) -> list[str]:
        """The folders of this buffer in the other workers, those of an elder generation too."""
        if self.path is not None:
            top, inside = os.path.dirname(self.folder), ""
        else:
            top, inside = (
                os.path.realpath(context.settings.root_dir or ""),
                os.path.join(self.owner.id_ or "", "buffer"),
            )
        names = [name for name in context.files.listdir(top) if re.fullmatch("worker[0-9]+", name)]
        return [os.path.join(top, name, inside) for name in names]

    def _seen(self, workers: int, root_dir: str | None) -> Seen:
        """The ids of accepted batches, those of our twins in the other workers too."""
        if workers < 2:
            return Seen()
        scope = os.path.realpath(self.path) if self.path is not None else f"{root_dir}\0{self.owner.id_}"
        return Seen(table=shared_table(), scope=scope.encode("utf-8", "surrogateescape"))


def unwritable(folder: str) -> str | None:
    """None when the folder is there or can be made, else what stands in the way."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder) or "."
    return None if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK) else folder


def folder_of(path: str) -> str:
    """Return the folder that a `path` of Fluentd means."""
    if "*" in os.path.basename(path):
        return os.path.join(os.path.dirname(path), os.path.basename(path).partition("*")[0].rstrip(".") + ".journals")
    return path + ".journals" if os.path.isfile(path) else path
