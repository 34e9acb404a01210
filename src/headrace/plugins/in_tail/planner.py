"""Which files are to be followed: `path`, `exclude_path`, `glob_policy`, `limit_recently_modified`.

`Planner.targets` is a generator, so that ten thousand files can be found in many small turns.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipeline.timezone import strftime
from headrace.plugins.in_tail.patterns import expand_braces, is_glob, name_pattern, path_pattern, walk

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence
    from datetime import tzinfo


@dataclass(frozen=True, slots=True)
class Target:
    """A file that the configuration names. old: longer ago modified than `limit_recently_modified`."""

    path: str
    info: os.stat_result
    old: bool = False

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.info.st_dev, self.info.st_ino


@dataclass(frozen=True)
class Settings:
    """The parameters of the plugin that a planner needs. recent: seconds, None for no limit.

    own: the position file, which a pattern may match and which is never followed: reading it would write it.
    """

    paths: Sequence[str]
    excluded: Sequence[str] = ()
    policy: str = "backward_compatible"
    zone: tzinfo | None = None
    recent: float | None = None
    own: str | None = None


class Planner:
    """Finds files. complain: called with a path and why it is left out.

    folders: every folder in which a name can appear that counts, with the patterns of names there; as of the last
    `targets`.
    """

    def __init__(self, settings: Settings, complain: Callable[[str, str], None]) -> None:
        self._settings = settings
        self._complain = complain
        self._own: tuple[int, int] | None = None
        self._date: tuple[int, list[str], list[str]] | None = None
        self._exclude: tuple[frozenset[str], list[re.Pattern[str]]] = (frozenset(), [])
        self.folders: dict[str, set[str]] = {}

    def dated(self, seconds: int) -> tuple[list[str], list[str]]:
        """`path` and `exclude_path` with the conversions of strftime filled in for a moment (seconds of 1970)."""
        if self._date is None or self._date[0] != seconds:
            settings = self._settings
            paths, excluded = (
                [strftime(seconds, settings.zone, path) if "%" in path else path for path in some]
                for some in (settings.paths, settings.excluded)
            )
            self._date = (seconds, paths, excluded)
            self._exclude = self._exclusions(excluded)
        return self._date[1], self._date[2]

    def _exclusions(self, excluded: list[str]) -> tuple[frozenset[str], list[re.Pattern[str]]]:
        exact = frozenset(path for path in excluded if not is_glob(path, self._settings.policy))
        globs = [one for path in excluded if path not in exact for one in expand_braces(path)]
        return exact, [path_pattern(glob) for glob in globs]

    def excludes(self, path: str) -> bool:
        """Whether `exclude_path` names a path, as of the last `dated`."""
        exact, patterns = self._exclude
        return path in exact or any(pattern.fullmatch(path) for pattern in patterns)

    def targets(self, seconds: int) -> Iterator[Target]:
        """Yield the files that are there, each path once."""
        paths, _excluded = self.dated(seconds)
        self._own = _identity(self._settings.own)
        seen: set[str] = set()
        folders: dict[str, set[str]] = {}

        def visited(folder: str, part: str) -> None:
            folders.setdefault(folder, set()).add(part)

        for pattern in paths:
            if is_glob(pattern, self._settings.policy):
                for one in expand_braces(pattern):
                    for path in walk(one, visited):
                        if path not in seen:
                            seen.add(path)
                            yield from self._look(path, seconds, glob=True)
            else:
                folder, _slash, name = pattern.rpartition("/")
                visited(folder + "/" if _slash else "", _literal(name))
                if pattern not in seen:
                    seen.add(pattern)
                    yield from self._look(pattern, seconds, glob=False)
        self.folders = folders

    def leads_to(self, folder: str, name: str) -> bool:
        """Whether a name that has just appeared in a folder can matter."""
        return any(name_pattern(part).fullmatch(name) for part in self.folders.get(folder, ()))

    def _look(self, path: str, seconds: int, *, glob: bool) -> Iterator[Target]:
        if self.excludes(path):
            return
        try:
            info = os.stat(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._complain(path, error.strerror or str(error))
            return
        mode = info.st_mode
        if stat.S_ISDIR(mode) or (info.st_dev, info.st_ino) == self._own:
            return
        if not stat.S_ISREG(mode):
            self._complain(path, "it is no regular file")
            return
        if glob and not os.access(path, os.R_OK, effective_ids=True):
            self._complain(path, "it is not readable")
            return
        recent = self._settings.recent
        yield Target(path, info, old=glob and recent is not None and info.st_mtime < seconds - recent)


def _identity(path: str | None) -> tuple[int, int] | None:
    """Device and inode of a file, None when it is not there."""
    try:
        info = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if info is None else (info.st_dev, info.st_ino)


def _literal(name: str) -> str:
    """A name as a pattern that matches it alone."""
    return "".join("\\" + char if char in "*?[]{}\\" else char for char in name)
