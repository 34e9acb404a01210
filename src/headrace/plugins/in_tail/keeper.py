"""Knows which files are followed: finds them, sees them rotate, and lets them go.

A file is its device and inode; a path is where it lies. So
- a path that leads to another file was rotated. The old file is read on for `rotate_wait` seconds and to its end;
  the new one is read from its beginning, after the old one was read to its end once;
- a path that leads nowhere was rotated too: what appears there later is a new file;
- a file that is found under another path of the patterns was renamed: it is read on where it was;
- a file that leaves is looked for once more, in all patterns, before its line in the position file goes.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Final

from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_tail.handles import MovedError
from headrace.plugins.in_tail.history import Names
from headrace.plugins.in_tail.reader import PACE
from headrace.plugins.in_tail.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.plugins.in_tail.handles import Handles
    from headrace.plugins.in_tail.places import Places, Rules
    from headrace.plugins.in_tail.planner import Planner, Target
    from headrace.plugins.in_tail.reader import Reader
    from headrace.plugins.in_tail.signals import Signals
    from headrace.plugins.in_tail.tailed import Tailed

_GONE: Final = (FileNotFoundError, NotADirectoryError)
RETRY: Final = 1.0
"""Seconds until a file is tried again that could not be opened."""


class FileKeeper:
    """The files of one source (`reader.Keeper`).

    make: a Tailed for a path, an identity and an offset. placed: called when a file has got its path, and when it is
    let go of (False).
    """

    signals: Signals

    def __init__(
        self,
        rules: Rules,
        planner: Planner,
        reader: Reader,
        handles: Handles,
        places: Places,
        clock: Clock,
        log: logging.Logger,
        *,
        make: Callable[[str, tuple[int, int], int], Tailed],
        placed: Callable[[Tailed, bool], None],
    ) -> None:
        self._rules = rules
        self._planner = planner
        self._reader = reader
        self._handles = handles
        self.places = places
        self._clock = clock
        self._log = log
        self._make = make
        self._placed = placed
        self.tails: dict[tuple[int, int], Tailed] = {}
        self.paths: dict[str, Tailed] = {}
        self._leaving: dict[str, Tailed] = {}
        """Path -> the file that had it last and is still read."""
        self._finished: list[Tailed] = []
        self._search = Search(planner, clock, rules.refresh_interval)
        self._names = Names(clock.now)
        self._open_errors = Throttle(now=clock.now)
        self.rotated = 0
        self.lost = 0

    # What is there.

    async def survey(self) -> None:
        """Note how large files are now: somebody else follows them still, and new ones begin at these sizes."""
        sizes: dict[tuple[int, int], int] = {}
        async for target in self._search.found():
            sizes[target.identity] = target.info.st_size
        self.places.baseline = sizes

    async def run(self) -> None:
        """Search every refresh_interval, and when something has appeared."""
        await self._search.run(self.search)

    async def search(self) -> None:
        """Look for files, follow new ones, let those go that are not named any more."""
        seen: set[str] = set()
        async for target in self._search.found():
            seen.add(target.path)
            self._see(target)
        for path in [path for path in self.paths if path not in seen]:
            self._missing(path)
        if self.places.starting:
            self.places.starting = False
            self._recover()
        if self.signals.watch_folders(list(self._planner.folders)):
            self._search.soon()  # for what came between the look into a folder and its watch
        finished, self._finished = self._finished, []
        for tail in finished:
            if tail.rotated_at is not None and not tail.closed:
                self._reader.finish(tail)

    def appeared(self, folder: str, name: str) -> None:
        """A name came or went in a folder."""
        tail = self.paths.get(folder + name)
        if tail is not None:
            self.look(tail)
        elif not name or self._planner.leads_to(folder, name):
            self._search.soon()

    def look_at_all(self) -> None:
        """Events were lost."""
        for tail in list(self.tails.values()):
            self._reader.enqueue(tail)
        self._search.soon()

    def _see(self, target: Target) -> None:
        """A file is there."""
        tail = self.tails.get(target.identity)
        current = self.paths.get(target.path)
        if tail is not None:
            if tail is current:
                if target.info.st_size != tail.read and tail.idle:
                    self._reader.enqueue(tail)
            elif tail.final:
                return  # it was let go of; the next search takes it as it is then
            elif tail.rotated_at is not None or not self._lies_at_its_path(tail):
                self._move(tail, target.path)
            return  # else another name of a file that is followed
        if current is not None:
            self._rotate(current)
        if not target.old:
            self._follow(target)

    def _lies_at_its_path(self, tail: Tailed) -> bool:
        try:
            info = os.stat(tail.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == tail.identity

    def _missing(self, path: str) -> None:
        """A path is not among what is to be followed."""
        tail = self.paths.get(path)
        if tail is None:
            return
        try:
            info = os.stat(path)
        except _GONE:
            self._rotate(tail)
            return
        except OSError:
            return
        if (info.st_dev, info.st_ino) != tail.identity:
            self.look(tail)
        elif os.access(path, os.R_OK, effective_ids=True):
            self._rotate(tail)  # a pattern with a date, say, names others now

    # Files that come.

    def _follow(self, target: Target) -> None:
        path = target.path
        offset, slot = self.places.begin(target)
        tail = self._make(path, target.identity, offset)
        self.places.keep(tail, slot)
        self.tails[tail.identity] = tail
        self.paths[path] = tail
        self.signals.add(tail)
        self._placed(tail, True)
        self._log.info("following tail of %s", path)
        before = self._leaving.get(path)
        if before is not None and not before.drained:
            self._hold_back(tail, before)
        self._reader.enqueue(tail)

    def _hold_back(self, tail: Tailed, before: Tailed) -> None:
        while before.follower is not None:
            before = before.follower
        tail.held_back = True
        before.follower = tail

    def _recover(self) -> None:
        """Read to their ends the files that were rotated while nobody looked; forget the others that are gone."""
        for slot in self.places.history.orphans():
            name = self.places.history.renamed(slot)
            info = _stat(name) if name is not None else None
            if name is None or info is None or (info.st_dev, info.st_ino) in self.tails:
                self.places.release(slot)
                continue
            tail = self._make(os.fsdecode(slot.path), (info.st_dev, info.st_ino), slot.offset)
            tail.name = name
            tail.slot = slot
            self.tails[tail.identity] = tail
            self.signals.add(tail)
            self._placed(tail, True)
            self._log.info("%s was rotated to %s and is read from where it was left", tail.path, name)
            self._leave(tail)
            current = self.paths.get(tail.path)
            if current is not None and current.read == 0 and not current.held_back and not tail.closed:
                self._hold_back(current, tail)

    # Files that move and go.

    def _move(self, tail: Tailed, path: str) -> None:
        """A file has another path of the patterns now."""
        current = self.paths.get(path)
        if current is not None and current is not tail:
            self._rotate(current)
        if self.paths.get(tail.path) is tail:
            del self.paths[tail.path]
        if self._leaving.get(tail.path) is tail:
            del self._leaving[tail.path]
        self._placed(tail, False)
        tail.rotated_at = None
        if tail.wait_timer is not None:
            tail.wait_timer.cancel()
            tail.wait_timer = None
        if tail.path != path:
            self._log.info("%s was renamed to %s", tail.path, path)
        tail.path = tail.name = path
        self.paths[path] = tail
        self._placed(tail, True)
        self._handles.unpin(tail)
        self.places.keep(tail, tail.slot)
        self._reader.enqueue(tail)

    def _rotate(self, tail: Tailed) -> None:
        """The path of a file leads elsewhere, or nowhere."""
        self.rotated += 1
        self._log.info("detected rotation of %s; waiting %g seconds", tail.path, self._rules.rotate_wait)
        if self.paths.get(tail.path) is tail:
            del self.paths[tail.path]
        self._leave(tail)

    def _leave(self, tail: Tailed) -> None:
        tail.rotated_at = self._clock.now()
        tail.drained = False
        self._leaving[tail.path] = tail
        if not self._hold(tail):
            return
        tail.wait_timer = self._clock.deadline(self._rules.rotate_wait, self._reader.enqueue, tail)
        self._reader.enqueue(tail)

    def _hold(self, tail: Tailed) -> bool:
        """Keep a file open that has left its path. When many are, those with another name are found by that."""
        since = self._clock.now() if tail.rotated_at is None else tail.rotated_at
        try:
            self._handles.pin(tail)
        except MovedError:
            pass
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                return True  # tried again in its turn
        else:
            if self._handles.crowded and (name := self._names.find(tail.path, tail.identity, since)) is not None:
                tail.name = name
                self._handles.unpin(tail)
            return True
        name = self._names.find(tail.path, tail.identity, since)
        if name is not None and name != tail.name:
            tail.name = name
            return self._hold(tail)
        if not tail.ended or tail.splitter.held:
            self.lost += 1
            self._log.warning("%s was removed before it was read to its end", tail.path)
        tail.ended = True
        self._reader.finish(tail)
        return False

    def look(self, tail: Tailed, *, just_read: bool = False) -> bool:
        """See whether a file has something new, or its path leads elsewhere; True when it has."""
        if tail.rotated_at is not None:
            return self._look_at_rotated(tail)
        try:
            info = os.stat(tail.path)
        except _GONE:
            self._rotate(tail)
            self._search.soon()
            return False
        except OSError:
            return False
        if (info.st_dev, info.st_ino) != tail.identity:
            if self.tails.get((info.st_dev, info.st_ino)) is None:
                self._rotate(tail)
            self._search.soon()
            return False
        # Truncated and written again, it may have its old size: then only its time tells.
        touched = info.st_mtime_ns != tail.modified and not just_read
        tail.modified = info.st_mtime_ns
        if info.st_size == tail.read and not touched:
            return False
        self._read_soon(tail)
        return True

    def _look_at_rotated(self, tail: Tailed) -> bool:
        fd = self._handles.known(tail)
        try:
            info = os.stat(tail.name) if fd is None else os.fstat(fd)
        except OSError:
            info = None
        if info is None or (info.st_dev, info.st_ino) != tail.identity:
            self._reader.enqueue(tail)  # its turn finds out where it is
            return False
        if info.st_size == tail.read:
            return False
        self._read_soon(tail)
        return True

    def _read_soon(self, tail: Tailed) -> None:
        """A file has more. When its end was reached just now, what a busy writer adds is read in batches."""
        if tail.ended and tail.idle and not tail.polled:
            self._reader.later(tail, PACE)
        else:
            self._reader.enqueue(tail)

    def at_end(self, tail: Tailed) -> None:
        """A file was read to its end (reader.Keeper)."""
        self._let_follower_go(tail)
        if tail.rotated_at is not None:
            tail.drained = True
            if self._clock.now() - tail.rotated_at >= self._rules.rotate_wait - 1e-9:
                if tail not in self._finished:
                    self._finished.append(tail)
                    self._search.soon()
                return
        fd = self._handles.known(tail)
        if self._rules.open_on_every_update and tail.rotated_at is None:
            self._handles.close(tail)
            fd = None
        # First the watch, then the look: what is written in between is not missed.
        self.signals.arm(tail, fd)
        self.look(tail, just_read=True)

    def _let_follower_go(self, tail: Tailed) -> None:
        follower, tail.follower = tail.follower, None
        if follower is not None:
            follower.held_back = False
            self._reader.enqueue(follower)

    def unreadable(self, tail: Tailed, error: OSError) -> None:
        """A file cannot be opened or read (reader.Keeper)."""
        tail.ended = False
        gone = isinstance(error, (MovedError, *_GONE))
        if gone and tail.rotated_at is None:
            self.look(tail)
            if tail.rotated_at is not None or tail.closed:
                return
        elif gone:
            self._hold(tail)
            return
        message = "%s cannot be read: %s; it is tried again"
        self._open_errors.log(self._log, logging.WARNING, message, tail.path, error.strerror or error)
        self._reader.later(tail, RETRY)

    def taken(self, tail: Tailed) -> None:
        """Save a position (reader.Keeper)."""
        self.places.save(tail)

    def done(self, tail: Tailed) -> None:
        """Let go of a file (reader.Keeper)."""
        if tail.closed:
            return
        self._reader.drop(tail)
        self._handles.close(tail)
        self.signals.remove(tail)
        if self.tails.get(tail.identity) is tail:
            del self.tails[tail.identity]
        if self._leaving.get(tail.path) is tail:
            del self._leaving[tail.path]
        self._placed(tail, False)
        self.places.release(tail.slot)
        self._let_follower_go(tail)

    def stop(self) -> None:
        """Close everything; positions stay as they are."""
        self._search.stop()
        for tail in self.tails.values():
            self._reader.drop(tail)
        self._handles.close_all()


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
