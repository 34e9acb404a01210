"""Where files begin to be read, and their lines in the position file; the rules of coming and going."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_tail.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.clock import Clock
    from headrace.plugins.in_tail.planner import Target
    from headrace.plugins.in_tail.positions import PositionFile, Slot
    from headrace.plugins.in_tail.tailed import Tailed


@dataclass(frozen=True)
class Rules:
    """The parameters of the plugin that decide when files come and go. Times in seconds."""

    refresh_interval: float = 60.0
    rotate_wait: float = 5.0
    open_on_every_update: bool = False


class Places:
    """The positions of one source; without a position file they are in memory only.

    A write that fails is told of (seldom) and stops nothing: after a restart lines are read again.
    starting: files that are found are not new but were there before us. baseline: sizes of files when somebody else
    still followed them.
    """

    def __init__(
        self, positions: PositionFile | None, clock: Clock, log: logging.Logger, *, from_head: bool, by_inode: bool
    ) -> None:
        self._positions = positions
        self._log = log
        self._from_head = from_head
        self._by_inode = by_inode
        self._errors = Throttle(now=clock.now)
        self.history = History((), by_inode=by_inode)
        self.starting = True
        self.baseline: dict[tuple[int, int], int] | None = None

    def remember(self, slots: Iterable[Slot]) -> None:
        """Take what the position file says."""
        self.history = History(slots, by_inode=self._by_inode)

    def begin(self, target: Target) -> tuple[int, Slot | None]:
        """Where to begin to read a file, and its line as far as it has one."""
        raw, history, size = os.fsencode(target.path), self.history, target.info.st_size
        slot = history.claim(raw, target.identity) if history else None
        if slot is not None:
            offset = slot.offset
        elif history.knows(raw) or not self.starting or self._from_head:
            offset = 0
        elif self.baseline is not None:
            offset = self.baseline.get(target.identity, 0)
        else:
            offset = size
        return (offset if offset <= size else 0), slot

    def keep(self, tail: Tailed, slot: Slot | None) -> None:
        """Write the position of a file under its path. slot: the line it has, maybe under another path."""
        positions = self._positions
        if positions is None:
            return
        raw = os.fsencode(tail.path)
        if b"\t" in raw or b"\n" in raw:
            self._log.warning("the position of %r is not kept: a position file cannot hold such a name", tail.path)
            return
        try:
            if slot is None and (slot := self.history.claim_empty(raw)) is not None:
                positions.assign(slot, tail.offset, tail.identity[1])
            if slot is None:
                slot = positions.add(raw, tail.offset, tail.identity[1])
            elif slot.path != raw and not self._by_inode:
                old, slot = slot, positions.add(raw, tail.offset, tail.identity[1])
                positions.release(old)
            elif slot.offset != tail.offset:
                positions.save(slot, tail.offset)
        except OSError as error:
            self._complain(error)
        tail.slot = slot

    def save(self, tail: Tailed) -> None:
        """Write an offset that has moved."""
        if tail.slot is not None and self._positions is not None:
            try:
                self._positions.save(tail.slot, tail.offset)
            except OSError as error:
                self._complain(error)

    def release(self, slot: Slot | None) -> None:
        """A file is not followed any more."""
        if slot is not None and self._positions is not None:
            try:
                self._positions.release(slot)
            except OSError as error:
                self._complain(error)

    def _complain(self, error: OSError) -> None:
        assert self._positions is not None
        message = "the position file %s cannot be written: %s; after a restart lines will be read again"
        self._errors.log(self._log, logging.ERROR, message, self._positions.path, error)
