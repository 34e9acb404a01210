"""Slots of a buffer path: which folder a process writes, and which were left by others.

PATH/journal.0/   the slot of the first process that opened PATH: lock, segments
PATH/journal.1/   that of a second one, while the first still runs (a reload)
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from headrace.errors import Error
from headrace.pipeline.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.pipeline.files import Files

_SLOTS: Final = 1000
_NAME: Final = "journal."


class Slots:
    """The slots of one buffer path. elsewhere: other paths whose processes are gone for good, asked each time.

    busy: whether `left` met a slot of a process that lives.
    """

    def __init__(
        self,
        path: str,
        files: Files,
        log: logging.Logger,
        *,
        dir_mode: int,
        mode: int,
        size: int,
        elsewhere: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.path = path
        self.busy = False
        self._files = files
        self._log = log
        self._dir_mode = dir_mode
        self._mode = mode
        self._size = size
        self._elsewhere = elsewhere

    def own(self) -> Journal:
        """Take the first slot that is free. Raises OSError, or Error when all are taken."""
        self._files.makedirs(self.path, self._dir_mode)
        for slot in range(_SLOTS):
            if (journal := self._open(os.path.join(self.path, f"{_NAME}{slot}"))) is not None:
                return journal
        raise Error(f"the buffer path {self.path} is in use by {_SLOTS} processes", kind="locked")

    def _open(self, folder: str) -> Journal | None:
        self._files.makedirs(folder, self._dir_mode)
        lock = self._files.lock(os.path.join(folder, "lock"), self._mode)
        if lock is None:
            return None
        return Journal(folder, lock, self._files, self._log, mode=self._mode, size=self._size)

    def left(self, held: set[str]) -> Iterator[Journal]:
        """Take one slot after the other that has segments and no owner. held: folders that are ours already."""
        self.busy = False
        for path in (self.path, *self._elsewhere()):
            for name in self._files.listdir(path):
                folder = os.path.join(path, name)
                if not name.startswith(_NAME) or not name.removeprefix(_NAME).isdigit() or folder in held:
                    continue
                if not any(one.endswith(".journal") for one in self._files.listdir(folder)):
                    continue
                journal = self._open(folder)
                if journal is None:
                    self.busy = True
                else:
                    yield journal
