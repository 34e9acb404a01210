"""The source `tail`: its parts put together, start and end, and the hand-over between two generations of workers.

After a reload the worker of the new configuration starts while the old one still follows the files. The position
file's lock says whose they are: the new one waits for it. What it finds before that, it only measures: a file that
is there now and that nobody has a position of begins at the size it has now, as at any start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error
from headrace.pipeline.throttle import Throttle
from headrace.pipeline.timezone import zone
from headrace.plugins.in_tail.encodings import codec_of, converter, line_end
from headrace.plugins.in_tail.groups import Groups, Quota
from headrace.plugins.in_tail.handles import Handles, limit
from headrace.plugins.in_tail.keeper import FileKeeper
from headrace.plugins.in_tail.lines import LineSplitter
from headrace.plugins.in_tail.parameters import TailParameters
from headrace.plugins.in_tail.places import Places, Rules
from headrace.plugins.in_tail.planner import Planner, Settings
from headrace.plugins.in_tail.positions import PositionFile
from headrace.plugins.in_tail.reader import Reader, Work
from headrace.plugins.in_tail.signals import Signals
from headrace.plugins.in_tail.tailed import Tailed, tag_of
from headrace.plugins.parser_multiline import Assembler

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event
    from headrace.pipeline.plugin import Parser

POLL: Final = 0.05
"""Seconds between two tries to get the position file from the worker that has it."""
PATIENCE: Final = 10.0
"""Seconds of waiting for it after which the log says so."""
LAST_TURNS: Final = 1000
"""Turns of the loop at the end before the wait for the last lines becomes a slower one."""
LAST_TURN: Final = 5.0
"""Seconds at the end for what is under way."""


class TailInput(TailParameters):
    """Follows files as `tail -F` does, and remembers how far it got."""

    _parser: Parser
    _running: bool = False

    def provision(self, context: Context) -> None:
        """Make the parser; a position file belongs to one source."""
        assert self.parse_section is not None
        self._parser = context.make("parser", self.parse_section)
        if self.pos_file is not None:
            key = os.path.realpath(self.pos_file)
            owner = context.claimed.setdefault(key, self.plugin_id)
            if owner != self.plugin_id:
                context.problems.error(
                    f"Other 'in_tail' plugin already use same pos_file path: plugin_id = {owner}, "
                    f"pos_file path = {self.pos_file}",
                    self.place_of("pos_file"),
                    hint="each source needs a file of its own",
                )
        if self._parser is None:
            return
        self._multiline = "multiline" in self._parser.type_
        if self._multiline and self.emit_unmatched_lines and hasattr(self._parser, "unmatched_lines"):
            self._parser.unmatched_lines = True
        head, star, rest = self.tag.partition("*")
        self._tag_around = (head, rest.partition("*")[0]) if star else None

    async def start(self) -> None:
        """Begin to follow, or to wait until the files are free."""
        context = self.context
        clock = context.clock
        self.unmatched = 0
        self._unmatched_lines = Throttle(now=clock.now)
        self._invalid_lines = Throttle(now=clock.now)
        self._long_lines = Throttle(now=clock.now)
        self._complaints = Throttle(burst=20, now=clock.now)
        self._complained: set[str] = set()
        self._troubles = Throttle(now=clock.now)
        self._quotas: dict[str, Quota] = {}
        self._groups = Groups(self.group) if self.group.present else None
        self._tasks: list[asyncio.Task[None]] = []
        self._positions = None if self.pos_file is None else PositionFile(self.pos_file, context.settings.file_mode)
        source = codec_of(self.from_encoding or self.encoding or "BINARY")
        self._line_end = line_end(source)
        convert = converter(source, codec_of(self.encoding)) if self.from_encoding and self.encoding else None
        self._handles = Handles(limit())
        work = Work(
            self.router.emit,
            self._parse,
            lines_limit=self.read_lines_limit,
            convert=convert,
            unit=len(self._line_end),
            flush_interval=self.multiline_flush_interval,
            named=self.ack_mode == "delivery",
        )
        self._reader = Reader(work, self._handles, clock, self.log)
        planner = Planner(
            Settings(
                self.paths,
                self.exclude_path,
                self.glob_policy,
                zone(self.path_timezone),
                self.limit_recently_modified,
                self.pos_file,
            ),
            self._complain,
        )
        rules = Rules(
            self.refresh_interval,
            self.rotate_wait,
            open_on_every_update=self.open_on_every_update,
        )
        self._places = Places(
            self._positions, clock, self.log, from_head=self.read_from_head, by_inode=self.follow_inodes
        )
        self._keeper = FileKeeper(
            rules,
            planner,
            self._reader,
            self._handles,
            self._places,
            clock,
            self.log,
            make=self._make,
            placed=self._placed,
        )
        self._reader.keeper = self._keeper
        self._keeper.signals = self._signals = Signals(
            context.loop,
            clock,
            self.log,
            changed=self._reader.enqueue,
            look=self._keeper.look,
            appeared=self._keeper.appeared,
            lost=self._keeper.look_at_all,
        )
        self._running = True
        free = self._acquire()
        self._spawn(self._follow(free=free))

    def rerouted(self) -> None:
        """Events go to another router from now on."""
        if hasattr(self, "_reader"):
            self._reader.send_to(self.router.emit)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.context.loop.create_task(work, name=self.plugin_id)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.error("files are not followed any more: %r", error)

    async def _for_ever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something again and again, whatever goes wrong in it."""
        while True:
            await self._safely(work)
            await self.context.clock.sleep(POLL * 20)

    async def _safely(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - what fails once must not end the source
            self._troubles.log(self.log, logging.ERROR, "unexpected error, it goes on: %r", error)

    def _acquire(self) -> bool:
        """Take the position file. Raises Error when it cannot be opened."""
        if self._positions is None:
            return True
        try:
            return self._positions.acquire(self.context.settings.dir_mode)
        except OSError as error:
            raise Error(f"{self.plugin_id}: pos_file {self.pos_file} cannot be opened: {error.strerror}") from error

    async def _follow(self, *, free: bool) -> None:
        if not free:
            await self._wait_for_positions()
        self._signals.start(inotify=self.enable_stat_watcher, timer=self.enable_watch_timer)
        if self._positions is not None:
            self._load(self._positions)
        if not self.skip_refresh_on_startup:
            await self._safely(self._keeper.search)
        self._spawn(self._for_ever(self._reader.run))
        await self._compact()
        if self._positions is not None and self.pos_file_compaction_interval is not None:
            self._spawn(self._compact_again_and_again(self.pos_file_compaction_interval))
        await self._for_ever(self._keeper.run)

    async def _wait_for_positions(self) -> None:
        clock = self.context.clock
        if not self.read_from_head and not self.skip_refresh_on_startup:
            await self._keeper.survey()
        told = clock.now() + PATIENCE
        while not self._acquire():
            if clock.now() >= told:
                self.log.warning("waiting for %s: another process has it", self.pos_file)
                told = clock.now() + 60 * PATIENCE
            await clock.sleep(POLL)

    def _load(self, positions: PositionFile) -> None:
        parsed = positions.load()
        for number in parsed.damaged:
            self.log.warning("%s:%d is no position: the line is left out", positions.path, number)
        self._places.remember(positions.slots())

    async def _compact_again_and_again(self, interval: float) -> None:
        while True:
            await self.context.clock.sleep(interval)
            await self._compact()

    async def _compact(self) -> None:
        positions = self._positions
        if positions is None:
            return

        async def sync(fd: int) -> None:
            await self.context.loop.run_in_executor(None, os.fdatasync, fd)

        try:
            done = await positions.compact(sync)
        except OSError as error:
            self.log.warning("%s cannot be compacted: %s", positions.path, error)
        else:
            if not done:
                self.log.warning("%s cannot be compacted: its folder cannot be written to", positions.path)

    # Files.

    def _make(self, path: str, identity: tuple[int, int], offset: int) -> Tailed:
        assembler = None
        if self._multiline:
            parser: Any = self._parser
            firstline = parser.firstline if getattr(parser, "has_firstline", bool)() else None
            assembler = Assembler(
                firstline, self._complete, keep_strays=self.emit_unmatched_lines, stray=partial(self._stray, path)
            )
        return Tailed(path, identity, offset, LineSplitter(self._line_end, self.max_line_size), assembler)

    def _stray(self, path: str, line: bytes) -> None:
        self.unmatched += not self.emit_unmatched_lines  # else it is counted where it does not match
        message = "got incomplete line before first line from %s: %r"
        self._unmatched_lines.log(self.log, logging.WARNING, message, path, line[:1000].decode("utf-8", "replace"))

    def _complete(self, text: bytes) -> bool:
        try:
            return any(time is not None and record is not None for time, record in self._parser.parse(text))
        except Exception:  # noqa: BLE001 - a text that cannot be read is not complete
            return False

    def _placed(self, tail: Tailed, here: bool) -> None:
        """A file has got a path, or is let go of: its tag and its share."""
        path = tail.path
        limited = self.read_bytes_limit_per_second > 0 or self._groups is not None
        if here:
            around = self._tag_around
            tail.tag = self.tag if around is None else f"{around[0]}{tag_of(path)}{around[1]}"
            if limited:
                quota = self._quotas.get(path)
                if quota is None:
                    group = self._groups.find(path) if self._groups is not None else None
                    quota = self._quotas[path] = Quota(self.read_bytes_limit_per_second, group)
                if quota.group is not None:
                    quota.group.paths.add(path)
                tail.quota = quota if quota.limited else None
            return
        quota = self._quotas.pop(path, None) if path not in self._keeper.paths else None
        if quota is not None and quota.group is not None:
            quota.group.paths.discard(path)

    def _complain(self, path: str, why: str) -> None:
        """Tell why a file is left out."""
        if self.ignore_repeated_permission_error:
            if path in self._complained:
                return
            self._complained.add(path)
        message = "%s unreadable (%s). It is excluded and would be examined next time."
        self._complaints.log(self.log, logging.WARNING, message, path, why)

    # Lines.

    def _parse(self, tail: Tailed, texts: Sequence[bytes]) -> list[Event]:
        if tail.splitter.lost:
            message = "%s: received line length is longer than %s"
            self._long_lines.log(self.log, logging.WARNING, message, tail.path, self.max_line_size)
        events = self._parser.parse_lines(texts, self._failure(tail))
        key = self.path_key
        if key is not None:
            for _time, record in events:
                if not record.get(key):
                    record[key] = tail.path
        return events

    def _failure(self, tail: Tailed) -> Callable[[bytes, Exception | None], Event | None]:
        def failed(line: bytes, error: Exception | None) -> Event | None:
            self.unmatched += 1
            shown = line[:1000].decode("utf-8", "backslashreplace")
            if error is not None:
                message = "invalid line found in %s: %r: %s"
                self._invalid_lines.log(self.log, logging.WARNING, message, tail.path, shown, error)
                return None
            self._unmatched_lines.log(self.log, logging.WARNING, "pattern not matched in %s: %r", tail.path, shown)
            if not self.emit_unmatched_lines:
                return None
            return self.context.clock.wall_ns(), {"unmatched_line": line.decode("utf-8", "surrogateescape")}

        return failed

    # The end.

    async def quiesce(self) -> None:
        """Read nothing new; what is under way gets to the buffers; then the files are free for others."""
        if not self._running:
            return
        self._running = False
        reader, keeper = self._reader, self._keeper
        try:
            if self._positions is None and self._tasks:
                await self._read_out()
            await self._end_tasks()
            await reader.settle(LAST_TURN)
            await reader.flush_all(list(keeper.tails.values()), LAST_TURN)
        finally:
            self._let_go()

    async def _read_out(self) -> None:
        """Nobody will know where to go on: read what there is."""
        clock = self.context.clock
        end = clock.now() + LAST_TURN
        tails = list(self._keeper.tails.values())
        for tail in tails:
            tail.ended = False
            self._reader.enqueue(tail)
        turns = 0
        while any(not tail.ended and tail.timer is None and not tail.closed for tail in tails) and clock.now() < end:
            turns += 1
            await clock.sleep(0 if turns < LAST_TURNS else POLL)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def _let_go(self) -> None:
        self._signals.stop()
        self._keeper.stop()
        if self._positions is not None:
            self._positions.close()

    async def close(self) -> None:
        """Give everything back, also when quiesce did not come to its end."""
        if hasattr(self, "_keeper"):
            await self._end_tasks()
            self._let_go()

    def followed(self) -> list[tuple[str, int, int]]:
        """(path, inode, position in bytes) of the files that are followed now, for prometheus_tail_monitor."""
        tails = self._keeper.tails.values() if hasattr(self, "_keeper") else ()
        return [(tail.path, tail.identity[1], tail.offset) for tail in tails]

    def stats(self) -> dict[str, Any]:
        """Figures; those that Fluentd has under its names."""
        if not hasattr(self, "_keeper"):
            return {}
        reader, keeper, signals, handles = self._reader, self._keeper, self._signals, self._handles
        return {
            "opened_file_count": handles.opened,
            "closed_file_count": handles.closed,
            "rotated_file_count": keeper.rotated,
            "tracked_file_count": len(keeper.tails),
            "open_files": len(handles),
            "polled_files": signals.polled,
            "looked": signals.looked,
            **reader.stats(),
            "unmatched": self.unmatched,
            "suspected_losses": reader.suspected + keeper.lost,
            "compactions": 0 if self._positions is None else self._positions.compactions,
            "waits_for_positions": self._positions is not None and not self._positions.opened,
        }
