"""Storage `local` (docs.fluentd.org, Storage Plugins, local): one JSON object in a file, as Fluentd writes it.

Where: `path`, when it is a file or ends in .json; below `path`, as workerN/storage.json, when it is a folder or
neither; else root_dir/workerN/@id/storage.USAGE.json; else in memory only.

A file is written anew beside the old one, brought to the disk and renamed, so that it is whole at any time. It is
locked by who has it (the lock is the file PATH.lock). In a reload the new process reads it when the old one is done.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, string
from headrace.errors import ConfError
from headrace.pipeline.storage import Storage
from headrace.plugins.jsoncodec import decode, encode

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.plugin import Plugin

_POLL: Final = 0.05
"""Seconds between two looks at a lock that somebody else holds."""
_TELL: Final = 100
"""Looks after which the log says who is waited for."""


class LocalStorage(Storage):
    """Values in a JSON file."""

    path = string(default=None, doc="The file (.json), or a folder below which each worker has its own")
    mode = string(default=None, doc="Octal mode of the file; default: 0644, or file_permission of <system>")
    dir_mode = string(default=None, doc="Octal mode of folders that are made; default: 0755, or dir_permission")
    pretty_print = boolean(default=False, doc="Write JSON for people")

    file: str | None = None
    """The file's path; None: in memory only."""

    def validate(self, problems: Problems) -> None:
        """Check the modes."""
        super().validate(problems)
        for name in ("mode", "dir_mode"):
            text = getattr(self, name)
            if text is not None and (not text or text.strip("01234567")):
                problems.error(f'parameter "{name}" must be octal, such as 0644', self.place_of(name))

    def belong(self, owner: Plugin, usage: str) -> None:
        """Find the file, and look at what is in it. Raises ConfError."""
        super().belong(owner, usage)
        settings = self.context.settings
        worker = f"worker{settings.worker_id}"
        if self.path is not None:
            if os.path.isfile(self.path) or (self.path.endswith(".json") and not os.path.isdir(self.path)):
                if settings.workers > 1 and not self.context.one_worker:
                    raise ConfError(
                        f'{settings.workers} workers cannot share the storage file "{self.path}"',
                        self.place_of("path"),
                        hint="give a folder as path, or root_dir in <system> and @id here, or use <worker N>",
                    )
                self.file = self.path
            else:
                self.file = os.path.join(self.path, worker, "storage.json")
        elif settings.root_dir is not None and owner.id_ is not None:
            name = f"storage.{usage}.json" if usage else "storage.json"
            self.file = os.path.join(settings.root_dir, worker, owner.id_, name)
        elif self.persistent:
            raise ConfError(
                "a persistent storage has no path", self.place, hint="write path, or root_dir in <system> and @id"
            )
        if self.file is not None:
            self._check(self.file)

    def _check(self, file: str) -> None:
        other = self.context.claimed.setdefault(os.path.realpath(file), self.owner.plugin_id)
        if other != self.owner.plugin_id:
            raise ConfError(f'the storage file {file} is already that of "{other}"', self.place_of("path"))
        if not os.path.exists(file):
            folder = os.path.dirname(file) or "."
            while not os.path.lexists(folder):
                folder = os.path.dirname(folder) or "."
            if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
                raise ConfError(f'"{folder}" is no folder in which the storage {file} can be made', self.place)
            return
        if not os.access(file, os.R_OK | os.W_OK):
            raise ConfError(f'the storage "{file}" cannot be read and written', self.place, hint="look at its mode")
        try:
            with open(file, "rb") as opened:
                values_of(opened.read())
        except (OSError, ValueError) as error:
            raise ConfError(
                f'the storage file "{file}" cannot be used: {error}', self.place, hint="mend it, or move it away"
            ) from error

    async def open(self) -> None:
        """Read the file as soon as nobody else has it."""
        self._lock: int | None = None
        self._opening: asyncio.Task[None] | None = None
        if self.file is None:
            level = logging.WARNING if self.directive and self.directive.block else logging.DEBUG
            self.log.log(level, "the storage has neither path nor @id and root_dir: in memory only")
            self.begin()
        elif not self._try():
            self._opening = self.context.loop.create_task(self._wait(), name=f"{self.owner.plugin_id} storage")

    async def ready(self) -> None:
        """Return when the file is ours and read."""
        if self._opening is not None:
            await asyncio.shield(self._opening)

    def _try(self) -> bool:
        """Take the lock and read; False while another process has it. Raises OSError."""
        assert self.file is not None
        files, settings = self.context.files, self.context.settings
        files.makedirs(os.path.dirname(self.file) or ".", _octal(self.dir_mode, settings.dir_mode))
        self._lock = files.lock(self.file + ".lock", _octal(self.mode, settings.file_mode))
        if self._lock is None:
            return False
        self.load()
        self.begin()
        return True

    async def _wait(self) -> None:
        looks = 0
        while True:
            await self.context.clock.sleep(_POLL)
            try:
                if self._try():
                    return
            except OSError as error:
                self.log.error("the storage %s cannot be opened: %s", self.file, error)  # noqa: TRY400 - no traceback
                return
            looks += 1
            if looks == _TELL:
                self.log.warning("another process still holds the storage %s: waiting for it", self.file)

    def load(self) -> None:
        """Read the file; what is no JSON object is logged, and left as it is until the next save."""
        assert self.file is not None
        try:
            with open(self.file, "rb") as opened:
                self.values = values_of(opened.read())
        except FileNotFoundError:
            self.values = {}
        except (OSError, ValueError) as error:
            self.values = {}
            self.log.error("the storage %s cannot be read, it begins anew: %s", self.file, error)  # noqa: TRY400

    def save(self) -> bool:
        """Write the file anew."""
        if self.file is None:
            return True
        if self._lock is None:
            return False
        files = self.context.files
        beside = f"{self.file}.tmp.{os.getpid()}"
        try:
            text = json_of(self.values, pretty=self.pretty_print)
            files.unlink(beside)
            fd = files.create(beside, _octal(self.mode, self.context.settings.file_mode))
            try:
                view = memoryview(text)
                while view:
                    view = view[files.append(fd, view) :]
                files.sync(fd)
            finally:
                files.close(fd)
            files.rename(beside, self.file)
            files.sync_dir(os.path.dirname(self.file) or ".")
        except (OSError, ValueError) as error:
            self.log.error("the storage %s cannot be saved: %s", self.file, error)  # noqa: TRY400 - no traceback
            return False
        return True

    async def close(self) -> None:
        """Let go of the file."""
        opening = getattr(self, "_opening", None)
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
        lock = getattr(self, "_lock", None)
        if lock is not None:
            self.context.files.close(lock)
            self._lock = None


def values_of(text: bytes) -> dict[str, Any]:
    """The values in a file; an empty one has none. Raises ValueError unless it is a JSON object."""
    if not text.strip():
        return {}
    values = decode(text)
    if not isinstance(values, dict):
        raise ValueError("it holds no JSON object")  # noqa: TRY004 - of the file's text
    return values


def json_of(values: dict[str, Any], *, pretty: bool) -> bytes:
    """A file's text. Raises ValueError for what JSON cannot hold."""
    compact = encode(values)
    if not pretty:
        return compact
    return json.dumps(json.loads(compact), indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _octal(text: str | None, default: int) -> int:
    return int(text, 8) if text else default
