"""Records that a filter, a formatter or a buffer refused, kept as dead letters where no <label @ERROR> takes them.

One letter is a file of events with the same label, tag and kind of error; it is closed when it is large or old, or
when too many others are open. `headrace dlq replay` moves it to where `look` finds it: its events then go through
their label once more, from its beginning.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.adopt import whole_entries
from headrace.pipeline.backup import LETTER, Backup
from headrace.pipeline.chunk import new_id
from headrace.pipeline.event import Batch, pack_event
from headrace.pipeline.fluentfiles import META, ChunkMeta, Location, read_meta, write_meta
from headrace.pipeline.placeholders import Meta
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.core.clock import Clock, Deadline
    from headrace.pipeline.backup import Space
    from headrace.pipeline.event import Record
    from headrace.pipeline.router import Router

LARGE: Final = 1 << 20
OLD: Final = 60.0
OPEN: Final = 16
LOOK: Final = 5.0
_SHOWN: Final = 64 << 10


class _Letter:
    """One that grows."""

    __slots__ = ("backup", "began", "count", "fd", "name", "size", "told")

    def __init__(self, backup: Backup, name: str, told: ChunkMeta, fd: int, began: float) -> None:
        self.backup = backup
        self.name = name
        self.told = told
        self.fd = fd
        self.began = began
        self.count = 0
        self.size = 0


class Refused:
    """The refused records of one worker. kept: records that are in letters; replayed: that went their way again."""

    def __init__(self, space: Space, log: logging.Logger) -> None:
        self.kept = 0
        self.replayed = 0
        self._space = space
        self._log = log
        self._clock: Clock | None = None
        self._labels: Mapping[str, Router] = {}
        self._open: dict[tuple[str, str, str], _Letter] = {}
        self._timer: Deadline | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[str] = set()
        self._errors = Throttle()

    def start(self, clock: Clock, labels: Mapping[str, Router]) -> None:
        """Begin to look for letters that are to be replayed. labels: the routers by name."""
        self._clock = clock
        self._labels = labels
        self._timer = clock.deadline(0.0, self.look)

    def add(self, label: str, tag: str, time: int, record: Record, error: BaseException) -> bool:
        """Keep a record; False when that is not possible."""
        if self._clock is None:
            return False
        kind = type(error).__name__
        try:
            data = _packed(time, record)
            letter = self._open.get((label, tag, kind)) or self._begin(label, tag, kind, error)
            self._space.make_room(len(data))
            files = self._space.files
            view = memoryview(data)
            while view:
                view = view[files.append(letter.fd, view) :]
        except OSError as failure:
            self._errors.log(self._log, logging.ERROR, "refused records cannot be kept: %s", failure)
            return False
        letter.count += 1
        letter.size += len(data)
        self.kept += 1
        if letter.size >= LARGE or self._clock.now() - letter.began >= OLD:
            self._end((label, tag, kind))
        return True

    def look(self) -> None:
        """Close old letters, and replay what was moved for it."""
        assert self._clock is not None
        assert self._timer is not None
        now = self._clock.now()
        for key in [key for key, letter in self._open.items() if now - letter.began >= OLD]:
            self._end(key)
        for name, router in self._labels.items():
            try:
                self._look(self._backup(name).replays, router)
            except OSError as error:
                self._errors.log(self._log, logging.ERROR, "dead letters cannot be looked through: %s", error)
        self._timer.reschedule(LOOK)

    def _look(self, place: Location, router: Router) -> None:
        for one in self._space.files.listdir(place.folder):
            path = os.path.join(place.folder, one)
            if place.parse(one) is not None and path not in self._under_way:
                self._under_way.add(path)
                task = asyncio.get_running_loop().create_task(self._replay(path, router))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Bring everything to the disk."""
        for key in list(self._open):
            self._end(key)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _backup(self, label: str) -> Backup:
        return Backup(self._space, f"errors{label}")

    def _begin(self, label: str, tag: str, kind: str, error: BaseException) -> _Letter:
        assert self._clock is not None
        if len(self._open) >= OPEN:
            self._end(next(iter(self._open)))
        wall = self._clock.wall_ns()
        chunk_id = new_id(wall)
        notes: dict[str, Any] = {
            "plugin": f"errors{label}",
            "reason": "refused",
            "error": f"{kind}: {error}"[:1000],
            "attempts": 1,
            "packed": True,
        }
        told = ChunkMeta(chunk_id, -1, wall / 1e9, wall / 1e9, Meta(tag), {"dead": notes})
        backup = self._backup(label)
        files, space = self._space.files, self._space
        for folder in (backup.folder, backup.notes):
            files.makedirs(folder, space.dir_mode)
        name = chunk_id.hex() + LETTER
        files.replace(os.path.join(backup.notes, name + META), write_meta(told), space.mode)
        fd = files.create(os.path.join(backup.folder, name), space.mode)
        letter = self._open[label, tag, kind] = _Letter(backup, name, told, fd, self._clock.now())
        return letter

    def _end(self, key: tuple[str, str, str]) -> None:
        letter = self._open.pop(key)
        files = self._space.files
        letter.told.events = letter.count
        try:
            files.sync(letter.fd)
            files.replace(
                os.path.join(letter.backup.notes, letter.name + META), write_meta(letter.told), self._space.mode
            )
        except OSError as error:
            self._errors.log(self._log, logging.ERROR, "refused records cannot be brought to the disk: %s", error)
        finally:
            files.close(letter.fd)

    async def _replay(self, path: str, router: Router) -> None:
        """Send a letter's events through their label again; it stays where it is when they are not taken."""
        files = self._space.files
        try:
            told = read_meta(files.content(path + META))
            data = files.content(path)
            count, end = whole_entries(data, told.events)
            waiting = router.emit(told.meta.tag or "", Batch.from_packed(data[:end], count))
            if waiting is not None:
                await waiting
            files.unlink(path)
            files.unlink(path + META)
            self.replayed += count
            self._log.info("%d refused events were sent through %s again", count, router.name)
        except Exception as error:  # noqa: BLE001 - whatever the events meet on their way, the letter stays
            self._errors.log(self._log, logging.WARNING, "%s cannot be sent again now: %r", path, error)
        finally:
            self._under_way.discard(path)


def _packed(time: int, record: Record) -> bytes:
    """The event; where it cannot be packed, what can be said of it."""
    try:
        return pack_event(time, record)
    except (ValueError, TypeError, OverflowError, RecursionError):
        try:
            shown = repr(record)[:_SHOWN]
        except RecursionError:
            shown = "nested too deeply to be shown"
        return pack_event(time, {"unpackable": shown})
