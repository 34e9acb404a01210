"""Chunks in journals: the store behind `<buffer> @type file`.

New chunks go to the journal of our own slot (`slots.py`). What another process left in its slot is adopted when its
lock is free, at start and every few seconds: its chunks are delivered from where they are, and the slot
disappears with the last of them. So nothing on disk has two owners, and a reload loses nothing.

What was just written is kept in memory too, up to CACHE bytes, so that a chunk which is delivered soon is
not read from the disk.

When is a batch safe? With `sync write` (the default) when the kernel has it, which survives a crash of the
process; the disk follows within sync_interval. With `sync fsync` when the disk has it: everything that
waits shares one fsync.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from headrace.errors import Error
from headrace.pipeline.ack import answer_synced
from headrace.pipeline.chunk import Chunk
from headrace.pipeline.placeholders import Meta
from headrace.pipeline.places import Place
from headrace.pipeline.recovery import Recovery
from headrace.pipeline.seen import Seen
from headrace.pipeline.slots import Slots
from headrace.pipeline.throttle import Throttle
from headrace.pipeline.twins import sync_twins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.core.clock import Clock, Deadline
    from headrace.pipeline.buffer import Write
    from headrace.pipeline.files import Files
    from headrace.pipeline.journal import Journal
    from headrace.pipeline.placeholders import ChunkKeys
    from headrace.pipeline.places import Segment

CACHE: Final = 32 << 20
ADOPT_INTERVAL: Final = 5.0
BUSY_INTERVAL: Final = 0.5
"""Seconds between two looks at what others have left; the latter while one of them lives."""


class FileStore:
    """The journals of one buffer path. Raises Error or OSError when the path cannot be used."""

    persistent = True

    def __init__(
        self,
        path: str,
        *,
        files: Files,
        clock: Clock,
        log: logging.Logger,
        backup: str,
        fsync: bool,
        sync_interval: float,
        segment_size: int,
        dir_mode: int,
        mode: int,
        adopted: Callable[[list[Chunk]], None] | None = None,
        distrusted: Callable[[], None] | None = None,
        elsewhere: Callable[[], Sequence[str]] | None = None,
        seen: Seen | None = None,
        twins: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.path = path
        self.files = files
        self.clock = clock
        self.log = log
        self.adopted = adopted
        self.distrusted = distrusted
        self.fsyncs = 0
        self._backup = backup
        self._fsync = fsync
        self._sync_interval = sync_interval
        self._dir_mode = dir_mode
        self._mode = mode
        self._seen = Seen() if seen is None else seen
        self._twins = twins or tuple
        self._others: list[Journal] = []
        self._cached = 0
        self._damaged_before = 0
        self._executor: ThreadPoolExecutor | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._in_sync: list[tuple[Journal, list[tuple[Segment, int, int]]]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: Deadline | None = None
        self._late = False
        self._adopt_timer: Deadline | None = None
        self._looking: asyncio.Task[None] | None = None
        self._sync_errors = Throttle()
        self._adopt_errors = Throttle()
        self._closed = False
        places = elsewhere or tuple
        self._slots = Slots(path, files, log, dir_mode=dir_mode, mode=mode, size=segment_size, elsewhere=places)
        self.journal = self._slots.own()
        self.journal.keep = self._still_seen

    # The interface of stores.

    def write(self, writes: Sequence[Write], batch_id: bytes | None) -> None:
        """Append the pieces in one record. Raises OSError: nothing has happened."""
        pieces: list[tuple[Place, bytes, int]] = []
        fresh: dict[int, Place] = {}
        for chunk, data, count in writes:
            place = chunk.place or fresh.get(id(chunk))
            if place is None:
                place = fresh[id(chunk)] = self._place(chunk)
            assert isinstance(place, Place)
            pieces.append((place, chunk.encoder.add(data, flush=True) if chunk.encoder else data, count))
        try:
            self.journal.append(pieces, self.clock.wall_ns(), batch_id)
        except OSError:
            for chunk, _data, _count in writes:
                if chunk.encoder is not None:
                    chunk.closed = chunk.ragged = True
            raise
        for (chunk, _data, count), (place, piece, _count) in zip(writes, pieces, strict=True):
            chunk.place = place
            chunk.size += len(piece)
            chunk.count += count
            self._cache(chunk, piece)
        if batch_id is not None:
            self._seen.add(batch_id)
        if self._timer is None and not self._fsync:
            self._timer = self.clock.deadline(self._sync_interval, self._start_sync)

    def seal(self, chunk: Chunk) -> None:
        """Close the compressed member; its end is not on the disk, which recovery can do without."""
        if chunk.encoder is not None:
            if not chunk.ragged:
                tail = chunk.encoder.finish()
                self._cache(chunk, tail)
                if chunk.parts is None:
                    chunk.ragged = True
            chunk.encoder = None

    def purge(self, chunk: Chunk) -> None:
        """Note that a chunk is gone, and remove what nobody needs any more."""
        self._uncache(chunk)
        chunk.encoder = None
        place = chunk.place
        if not isinstance(place, Place):
            return
        journal = place.journal
        journal.purge(place)
        self._collect(journal)
        if journal is not self.journal and not journal.places:
            self._let_go(journal)
        elif self._timer is None and not self._closed:
            self._timer = self.clock.deadline(self._sync_interval, self._start_sync)

    def read(self, chunk: Chunk) -> bytes:
        """Return the pieces, from memory or from the disk."""
        if chunk.parts is not None:
            return chunk.parts[0] if len(chunk.parts) == 1 else b"".join(chunk.parts)
        assert isinstance(chunk.place, Place)
        return b"".join(chunk.place.journal.read(chunk.place))

    @property
    def damaged(self) -> int:
        """Places where damage was found, in our journal and in those that were adopted."""
        return self._damaged_before + sum(journal.damaged for journal in (self.journal, *self._others))

    def seen(self, batch_id: bytes, *, own: bool, fsync: bool | None = None) -> bool:
        """Whether a batch with this id was accepted before, by an earlier run too; own: not by another worker."""
        if batch_id in self._seen:
            return True
        if own or not self._seen.elsewhere(batch_id):
            return False
        return not (self._fsync if fsync is None else fsync) or sync_twins(self._twins(), self.files)

    def acknowledged(self, fsync: bool | None = None) -> Awaitable[None] | None:
        """None, or with `sync fsync` (or when asked for it) a future that ends when the disk has what was written."""
        if not (self._fsync if fsync is None else fsync):
            if self._fsync and self._timer is None:  # nobody waits for the disk, which has to have it all the same
                self._timer = self.clock.deadline(self._sync_interval, self._start_sync)
            return None
        if not self.journal.unsynced():
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting and self._syncing is None:
            loop.call_soon(self._start_sync)  # what other connections bring in this turn comes along
        self._waiting.append(future)
        return future

    async def recover(self, keys: ChunkKeys, since: float) -> list[Chunk]:
        """Return what an earlier run left in our slot, and in slots that nobody holds."""
        self._keys = keys
        chunks = await self._recover(self.journal, since)
        chunks += await self._adopt(since)
        self._look_again()
        return sorted(chunks, key=lambda chunk: chunk.created)

    def close(self) -> None:
        """Bring everything to the disk, give up files and locks."""
        self._closed = True
        for timer in (self._timer, self._adopt_timer):
            if timer is not None:
                timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self._end_sync(failed=True)  # whether it did is not known here: what is there is synced once more
        for journal in self._others:
            journal.close()
        error = self.journal.close()
        waiting, self._waiting = self._waiting, []
        answer_synced(waiting, error)

    # Slots.

    async def _recover(self, journal: Journal, since: float) -> list[Chunk]:
        recovery = Recovery(journal, self._backup, self._dir_mode, self._mode)
        chunks: list[Chunk] = []
        for _ in recovery.steps():
            await asyncio.sleep(0)  # gigabytes may be there: the loop goes on, and the watchdog sees it
        for found in recovery.alive:
            opening, place = found.opening, found.place
            assert opening is not None
            assert place is not None
            meta = Meta(opening.tag, opening.timekey, opening.variables)
            chunk = Chunk(self, self._keys, self._keys.group(meta), meta, opening.created, since, opening.codec)
            chunk.id = opening.chunk_id
            chunk.parts = None
            chunk.encoder = None
            chunk.ragged = bool(opening.codec)
            chunk.place = place
            chunk.size = place.size
            chunk.count = place.events
            chunks.append(chunk)
        for batch_id in recovery.seen:
            self._seen.add(batch_id)
        if chunks:
            events = sum(chunk.count for chunk in chunks)
            were = "was" if len(chunks) == 1 else "were"
            found_ = (_counted(len(chunks), "chunk"), _counted(events, "event"), were)
            self.log.info("%s: %s with %s %s left by an earlier run", journal.folder, *found_)
        self._collect(journal)
        return chunks

    async def _adopt(self, since: float) -> list[Chunk]:
        chunks: list[Chunk] = []
        for journal in self._slots.left({self.journal.folder, *(journal.folder for journal in self._others)}):
            journal.keep = self._still_seen
            try:
                chunks += await self._recover(journal, since)
            except BaseException as error:
                journal.abandon()  # half read: what is in it stays for the next
                if not isinstance(error, (OSError, Error)):
                    raise
                message = "%s was left by another process and cannot be taken over now: %s"
                self._adopt_errors.log(self.log, logging.ERROR, message, journal.folder, error)
                continue
            self._others.append(journal)
            if not journal.places:
                self._let_go(journal)
        return chunks

    def _look_for_left(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="adopt")

    async def _look(self) -> None:
        """Adopt what a process that ended meanwhile has left."""
        try:
            chunks = await self._adopt(self.clock.now())
        except (OSError, Error) as error:
            self._sync_errors.log(self.log, logging.ERROR, "%s cannot be looked through: %s", self.path, error)
            chunks = []
        if chunks and self.adopted is not None:
            self.adopted(sorted(chunks, key=lambda chunk: chunk.created))
        self._look_again()

    def _look_again(self) -> None:
        """Soon, when somebody is there whose slot will be ours (a reload), else now and then."""
        wait = BUSY_INTERVAL if self._slots.busy else ADOPT_INTERVAL
        self._adopt_timer = self.clock.deadline(wait, self._look_for_left)

    def _let_go(self, journal: Journal) -> None:
        """Remove an adopted slot that is empty; the ids of batches noted in it go to our own journal."""
        ids = [one for kept in journal.segments.values() for one in kept.seen if one in self._seen]
        if ids and journal.keep is not _forgotten:
            try:
                self.journal.note_seen(ids)
            except OSError as error:
                self._adopt_errors.log(self.log, logging.ERROR, "%s cannot be given up: %s", journal.folder, error)
                return
            journal.keep = _forgotten
        self._others.remove(journal)
        self._damaged_before += journal.damaged
        journal.close()

    # Disk space.

    def _collect(self, journal: Journal) -> None:
        journal.collect()
        try:
            if journal.compact(self.clock.wall_ns()) and self._timer is None and not self._closed:
                self._timer = self.clock.deadline(self._sync_interval, self._start_sync)
        except (OSError, ValueError) as error:
            self._sync_errors.log(self.log, logging.WARNING, "%s cannot be compacted: %s", journal.folder, error)

    def _still_seen(self, ids: list[bytes]) -> list[bytes]:
        return [one for one in ids if one in self._seen]

    # Memory.

    def _place(self, chunk: Chunk) -> Place:
        meta = chunk.meta
        return self.journal.place((chunk.id, chunk.created, chunk.codec, meta.tag, meta.timekey, meta.variables))

    def _cache(self, chunk: Chunk, piece: bytes) -> None:
        if chunk.parts is None:
            return
        if self._cached + len(piece) > CACHE:
            self._uncache(chunk)
            return
        chunk.parts.append(piece)
        self._cached += len(piece)

    def _uncache(self, chunk: Chunk) -> None:
        if chunk.parts is not None:
            self._cached -= sum(map(len, chunk.parts))
            chunk.parts = None

    # Safety.

    def _start_sync(self) -> None:
        """Bring what was written to the disk, in a thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        if self._syncing is not None:
            self._late = True  # what is written meanwhile has waited its time when the disk is done
            return
        self._late = False
        todo = self._in_sync = [(journal, journal.begin_sync()) for journal in (self.journal, *self._others)]
        waiting, self._waiting = self._waiting, []
        fds = [fd for _journal, part in todo for _segment, fd, _size in part]
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "fsync")
        self.fsyncs += 1
        work = asyncio.get_running_loop().run_in_executor(self._executor, self._sync_all, fds)
        self._syncing = work

        def done(ended: asyncio.Future[None]) -> None:
            self._syncing = None
            error = None if ended.cancelled() else ended.exception()
            self._end_sync(failed=error is not None)
            if error is not None:
                self._sync_errors.log(self.log, logging.ERROR, "the buffer cannot be synced: %s", error)
                # What the kernel still holds of that file is not known, nor what will be there of its chunks.
                self.journal.leave()
                if self.distrusted is not None:
                    self.distrusted()
            answer_synced(waiting, error)
            if self._closed:
                return
            if self._waiting or self._late:
                self._start_sync()
            elif self._timer is None and not self._fsync and self.journal.unsynced():
                self._timer = self.clock.deadline(self._sync_interval, self._start_sync)

        work.add_done_callback(done)

    def _end_sync(self, *, failed: bool) -> None:
        todo, self._in_sync = self._in_sync, []
        for journal, part in todo:
            journal.end_sync(part, failed=failed)

    def _sync_all(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self.files.sync(fd)


def _forgotten(_ids: list[bytes]) -> list[bytes]:
    """Say that no id must be noted again."""
    return []


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
