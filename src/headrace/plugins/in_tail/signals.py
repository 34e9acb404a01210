"""Who tells that a file has something new: inotify, and a timer that looks.

- With inotify an idle file costs nothing. The timer then looks at SURE files a second only, in turn, to be sure.
- Where inotify tells nothing (no watches left, a network file system whose writers are elsewhere, switched off) each
  file is looked at once a second, spread over the second. A device whose files were found grown some times
  without a word from inotify is taken for such a one.
- Events are read at most every PACE seconds, so that a busy folder costs no more than that.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_tail.watch import IGNORED, OVERFLOW, Inotify

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.core.clock import Clock, Deadline
    from headrace.plugins.in_tail.tailed import Tailed

PACE: Final = 0.01
SLICE: Final = 0.004
"""Seconds of dealing with events after which others have the loop."""
TICK: Final = 0.1
TICKS: Final = 10
"""Ticks in which every polled file is looked at."""
SURE: Final = 200
FOLDERS: Final = 512
"""Folders that are watched at most; others are looked through every refresh_interval."""
MISSES: Final = 3


class Signals:
    """Watches and the timer of one source.

    changed: a file may have something new. look: look at a file; True when it has. appeared: a name came or went in
    a folder (its path with a slash at the end). lost: events were lost, everything must be looked at.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        log: logging.Logger,
        *,
        changed: Callable[[Tailed], None],
        look: Callable[[Tailed], bool],
        appeared: Callable[[str, str], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._log = log
        self._changed = changed
        self._look = look
        self._appeared = appeared
        self._lost = lost
        self._inotify: Inotify | None = None
        self._files: dict[int, Tailed] = {}
        self._folders: dict[int, str] = {}
        self._watched_folders: set[str] = set()
        self._reading = False
        self._paced: Deadline | None = None
        self._ticking: Deadline | None = None
        self._sure: deque[Tailed] = deque()
        self._polled: deque[Tailed] = deque()
        self._missed: dict[int, int] = {}
        self._exhausted = Throttle(burst=1, interval=3600.0, now=clock.now)
        self._timer = True
        self.looked = 0

    @property
    def polled(self) -> int:
        """Files that inotify does not tell of."""
        return len(self._polled)

    def start(self, *, inotify: bool, timer: bool) -> None:
        """Begin."""
        self._timer = timer
        if inotify:
            try:
                self._inotify = Inotify()
            except OSError as error:
                self._log.warning("files are looked at every second: there is no inotify: %s", error)
        if self._inotify is not None:
            self._listen()
        self._ticking = self._clock.deadline(self._pause(), self._tick)

    def _pause(self) -> float:
        """Seconds until the next tick: where inotify tells of all files, few of them need few ticks."""
        if self._polled or self._inotify is None:
            return TICK
        return TICK * TICKS / min(max(len(self._sure) if self._timer else 1, 1), TICKS)

    def stop(self) -> None:
        """End."""
        for deadline in (self._paced, self._ticking):
            if deadline is not None:
                deadline.cancel()
        if self._inotify is not None:
            if self._reading:
                self._loop.remove_reader(self._inotify.fd)
                self._reading = False
            self._inotify.close()
            self._inotify = None

    def add(self, tail: Tailed) -> None:
        """A file is followed from now on."""
        tail.polled = self._inotify is None or self._missed.get(tail.identity[0], 0) >= MISSES
        (self._polled if tail.polled else self._sure).append(tail)

    def remove(self, tail: Tailed) -> None:
        """A file is not followed any more."""
        number, tail.watch = tail.watch, -1
        if number >= 0 and self._inotify is not None:
            self._files.pop(number, None)
            self._inotify.forget(number)

    def arm(self, tail: Tailed, fd: int | None) -> None:
        """Tell of the next change of a file. fd: its descriptor, None when it is not open."""
        if self._inotify is None or tail.polled or tail.watch >= 0:
            return
        try:
            number = self._inotify.watch_path(tail.name) if fd is None else self._inotify.watch_file(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            self._complain(error)
            self._poll(tail)
            return
        self._files[number] = tail
        tail.watch = number

    def _complain(self, error: OSError) -> None:
        message = "inotify: %s; what it does not watch is looked at every second (see fs.inotify.max_user_watches)"
        self._exhausted.log(self._log, logging.WARNING, message, error.strerror)

    def _poll(self, tail: Tailed) -> None:
        if not tail.polled:
            tail.polled = True
            self._polled.append(tail)

    def watch_folders(self, folders: list[str]) -> bool:
        """Tell which names come and go in these folders; True when some are watched from now on only."""
        if self._inotify is None:
            return False
        before = len(self._folders)
        for folder in folders:
            if folder in self._watched_folders or len(self._folders) >= FOLDERS:
                continue
            try:
                number = self._inotify.watch_folder(folder or ".")
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            except OSError as error:
                self._complain(error)
                break
            self._folders[number] = folder
            self._watched_folders.add(folder)
        return len(self._folders) > before

    def _listen(self) -> None:
        if self._inotify is not None and not self._reading:
            self._loop.add_reader(self._inotify.fd, self._readable)
            self._reading = True

    def _readable(self) -> None:
        assert self._inotify is not None
        self._loop.remove_reader(self._inotify.fd)
        self._reading = False
        if self.drain():
            self._paced = self._clock.deadline(PACE, self._listen)
        else:
            self._listen()  # there is more, but others have their turn before it

    def drain(self) -> bool:
        """Deal with what has happened until now, for a slice of time; True when that was all."""
        inotify = self._inotify
        if inotify is None:
            return True
        end = self._clock.now() + SLICE
        while events := inotify.read():
            for number, mask, name in events:
                self._happened(number, mask, name)
            if self._clock.now() >= end:
                return False
        return True

    def _happened(self, number: int, mask: int, name: bytes) -> None:
        if mask & OVERFLOW:
            self._lost()
        elif (tail := self._files.pop(number, None)) is not None:
            if tail.watch == number:
                tail.watch = -1
                self._changed(tail)
        elif (folder := self._folders.get(number)) is not None:
            if mask & IGNORED:
                del self._folders[number]
                self._watched_folders.discard(folder)
                self._appeared(folder, "")
            elif name:
                self._appeared(folder, os.fsdecode(name))

    def _tick(self) -> None:
        self._ticking = self._clock.deadline(self._pause(), self._tick)
        if self._polled:
            for _ in range(-(-len(self._polled) // TICKS)):
                tail = self._polled.popleft()
                if not tail.closed:
                    self._polled.append(tail)
                    if tail.idle:
                        self.looked += 1
                        self._look(tail)
        if not self._timer or not self._sure:
            return
        told = self.drain()
        for _ in range(min(-(-len(self._sure) // TICKS), SURE // TICKS)):
            tail = self._sure.popleft()
            if tail.closed or tail.polled:
                continue
            self._sure.append(tail)
            if tail.idle:
                self.looked += 1
                if self._look(tail) and told and tail.watch >= 0 and self.drain() and tail.watch >= 0:
                    self._miss(tail)
            if not self._sure:
                return

    def _miss(self, tail: Tailed) -> None:
        """A file has grown, its watch was armed, and there was no event."""
        device = tail.identity[0]
        count = self._missed[device] = self._missed.get(device, 0) + 1
        if count == MISSES:
            self._log.warning(
                "%s has grown without a word from inotify: files of its file system are looked at every second",
                tail.path,
            )
            for other in list(self._sure):
                if other.identity[0] == device:
                    self._poll(other)
