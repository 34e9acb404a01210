"""Dead letters: where chunks go that nobody takes, and records that somebody refused.

    ROOT/backup/workerN/PLUGIN_ID/CHUNK_ID.log              the content, decompressed: just as Fluentd has it
    ROOT/backup/workerN.notes/PLUGIN_ID/CHUNK_ID.log.meta   why it is here, in the form of Fluentd's .meta files
    ROOT/backup/workerN.notes/PLUGIN_ID/replay/             what `headrace dlq replay` wants delivered once more, and
                                                            what a worker had in memory at a reload
    ROOT/backup/workerN/errors@LABEL/                       records refused in a label, while there is no @ERROR

Nothing leaves these folders by itself but the oldest letters, when all of a worker's are larger than the limit:
with a line in the log and a counter.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.fluentfiles import META, ChunkMeta, Location, write_meta
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.files import Files

REPLAY: Final = "replay"
REPLAYED: Final = "dead"
"""How the names of letters begin that are to be delivered again."""
LETTER: Final = ".log"
_NOTES: Final = re.compile(r"worker([0-9]+)\.notes")
VARIABLE: Final = "HEADRACE_DEAD_LETTERS"
FLUENTD: Final = "/tmp/fluent"  # noqa: S108 - where Fluentd puts bad chunks when there is no root_dir
_UNSAFE: Final = re.compile(r'[ "/\\:;|*<>?]')
_LEFT: Final = 0.9
"""To what part of the limit the store is cut back."""


def default_root(conf: str | None = None) -> str:
    """The folder of a configuration that names none: below $HEADRACE_DEAD_LETTERS, or Fluentd's /tmp/fluent.

    conf: the path of the configuration; each has a folder of its own, so that none takes letters of another one.
    """
    base = os.environ.get(VARIABLE) or FLUENTD
    if conf is None:
        return base
    stem = folder_name(os.path.basename(conf).rpartition(".")[0] or "fluent")
    path = os.path.realpath(conf).encode("utf-8", "surrogateescape")
    return os.path.join(base, f"{stem}-{blake2b(path, digest_size=4).hexdigest()}")


class Space:
    """The dead letters of one worker together. limit: bytes of all of them; 0: none."""

    def __init__(
        self, root: str, worker_id: int, files: Files, log: logging.Logger, *, limit: int, dir_mode: int, mode: int
    ) -> None:
        self.root = os.path.join(root, "backup", f"worker{worker_id}")
        self.files = files
        self.log = log
        self.dir_mode = dir_mode
        self.mode = mode
        self.limit = limit
        self.dropped = 0
        """Letters that went for newer ones."""
        self._used: int | None = None
        self._drops = Throttle(burst=5)

    def make_room(self, size: int) -> None:
        """Remove the oldest letters until `size` bytes more fit. Raises OSError."""
        if not self.limit:
            return
        if self._used is None or self._used + size > self.limit:
            letters = self._letters()
            self._used = sum(one[1] for one in letters)
            if self._used + size > self.limit:
                self._cut_back(letters, size)
        self._used += size

    def figures(self) -> dict[str, int]:
        """Bytes in the store as far as they are known, and letters that were dropped."""
        return {"bytes": self._used or 0, "dropped": self.dropped}

    def _cut_back(self, letters: list[tuple[float, int, str]], size: int) -> None:
        assert self._used is not None
        for _time, own, path in sorted(letters):
            if self._used + size <= self.limit * _LEFT:
                return
            self.files.unlink(path)
            self.files.unlink(note_of(path))
            self._used -= own
            self.dropped += 1
            message = "the dead letters are larger than limit_size, %d bytes: the oldest, %s, is dropped"
            self._drops.log(self.log, logging.WARNING, message, self.limit, path)

    def _letters(self) -> list[tuple[float, int, str]]:
        """(when written, bytes with its .meta, path) of each; not those that are to be delivered again."""
        files = self.files
        found = []
        for owner in files.listdir(self.root):
            folder = os.path.join(self.root, owner)
            names = set(files.listdir(folder)) if not files.is_file(folder) else set()
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(META) or not files.is_file(path):
                    continue
                found.append((files.modified(path), files.size(path), path))
        return found


class Backup:
    """The dead letters of one plugin."""

    def __init__(self, space: Space, plugin_id: str) -> None:
        self.space = space
        self.plugin_id = plugin_id
        self.folder = os.path.join(space.root, folder_name(plugin_id))
        self.notes = notes_of(self.folder)
        self._files = space.files

    @property
    def replays(self) -> Location:
        """Where letters lie that are to be delivered again."""
        return Location(os.path.join(self.notes, REPLAY), REPLAYED, LETTER)

    def elsewhere(self, workers: int) -> list[Location]:
        """The same of workers that there are no more, which worker 0 looks after. workers: how many there are."""
        top, own = os.path.split(self.space.root)
        if own != "worker0":
            return []
        found = []
        try:
            names = sorted(self._files.listdir(top))
        except OSError:  # whoever wants to put something there says so
            return []
        for name in names:
            match = _NOTES.fullmatch(name)
            if match is not None and int(match[1]) >= workers:
                folder = os.path.join(top, name, folder_name(self.plugin_id), REPLAY)
                found.append(Location(folder, REPLAYED, LETTER))
        return found

    def write(self, chunk: Chunk, notes: dict[str, Any] | None = None, *, now: float = 0.0) -> str:
        """Write the content, decompressed, and bring it to the disk; return the path. Raises OSError, ValueError.

        notes: why it is given up, for `headrace dlq`. now: seconds since the epoch.
        """
        told = ChunkMeta(
            chunk.id,
            chunk.count,
            chunk.created / 1e9,
            now or chunk.created / 1e9,
            chunk.meta,
            {"dead": {"plugin": self.plugin_id, **(notes or {})}},
        )
        return self.letter(chunk.hex_id, chunk.read(), told)

    def letter(self, name: str, data: bytes, told: ChunkMeta) -> str:
        """Write one letter; return its path. Raises OSError."""
        meta = write_meta(told)
        self.space.make_room(len(data) + len(meta))
        path = os.path.join(self.folder, name + LETTER)
        for folder in (self.folder, self.notes):
            self._files.makedirs(folder, self.space.dir_mode)
        # The notes first: a letter without them is whole, notes without a letter are nothing.
        self._put(os.path.join(self.notes, name + LETTER + META), meta)
        self._put(path, data)
        return path

    def save(self, name: str, data: bytes) -> str:
        """Write damaged bytes; return their path. Raises OSError."""
        self.space.make_room(len(data))
        self._files.makedirs(self.folder, self.space.dir_mode)
        path = os.path.join(self.folder, name)
        self._put(path, data)
        return path

    def take(self, path: str, name: str) -> str:
        """Move a file here; nothing happens when it is not there. Return its new path. Raises OSError."""
        files = self._files
        target = os.path.join(self.folder, name)
        if not files.is_file(path):
            return target
        files.makedirs(self.folder, self.space.dir_mode)
        self.space.make_room(files.size(path))
        try:
            files.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._put(target, files.content(path))
            files.unlink(path)
        return target

    def _put(self, path: str, data: bytes) -> None:
        files = self._files
        files.unlink(path)
        fd = files.create(path, self.space.mode)
        try:
            view = memoryview(data)
            while view:
                view = view[files.append(fd, view[: 1 << 20]) :]
            files.sync(fd)
        finally:
            files.close(fd)


def folder_name(plugin_id: str) -> str:
    """The name of a plugin's folder: what Fluentd makes of its id."""
    return _UNSAFE.sub("_", plugin_id)


def notes_of(folder: str) -> str:
    """The folder of the notes on the letters in a plugin's folder."""
    worker, name = os.path.split(folder)
    return os.path.join(f"{worker}.notes", name)


def note_of(path: str) -> str:
    """The file with the notes on a letter."""
    folder, name = os.path.split(path)
    return os.path.join(notes_of(folder), name + META)
