"""The source `systemd`: parameters, the child process, events and the cursor.

The cursor is kept after the events before it are in the buffers, so that a restart repeats entries and loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import array, boolean, raw_section, section, string
from headrace.conf.values import as_any
from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Source
from headrace.pipeline.storage import storage_of
from headrace.pipeline.throttle import Throttle
from headrace.plugins.in_systemd.export import ExportError, ExportParser
from headrace.plugins.systemd_entry import EntryFields

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.storage import Storage
    from headrace.plugins.in_systemd.export import Entry

PROGRAM: Final = "journalctl"
CURSOR: Final = "journal"
"""Key of the storage, as in the original."""
READ: Final = 256 << 10
"""Bytes of one read from the program."""
RESTART: Final = 1.0
"""Seconds until the program is started again."""
ROOM: Final = 1.0
"""Seconds until events that found no room are offered again."""
_BAD_CURSOR: Final = ("Failed to seek to cursor", "Failed to parse cursor", "Invalid cursor")


class SystemdInput(Source):
    """Reads the systemd journal."""

    path = string(default="/var/log/journal", doc="Folder of the journal's files")
    matches = array(
        default=None, value_type=as_any, doc="Which entries: objects of fields and values; one of them must fit"
    )
    filters = array(
        default=[], value_type=as_any, deprecated="filters has been renamed as matches", doc="Old name of matches"
    )
    read_from_head = boolean(default=False, doc="Without a cursor, begin with the oldest entry; false: with new ones")
    tag = string(doc="Tag of the events")
    entry = section(EntryFields, name="entry", doc="How fields are called")
    storage_section = raw_section(name="storage", doc="Where the cursor is kept between runs")

    def validate(self, problems: Problems) -> None:
        """Check the matches and the program."""
        super().validate(problems)
        self._program = shutil.which(PROGRAM)
        if self._program is None:
            hint = "install systemd's journalctl, or run where it is"
            problems.error(
                f"the systemd source reads the journal by {PROGRAM}, which is not here", self.place, hint=hint
            )
        given = self.filters if self.matches is None else self.matches
        try:
            self._matches = match_arguments(given)
        except ValueError as error:
            problems.error(f'parameter "matches": {error}', self.place_of("matches"))

    def provision(self, context: Context) -> None:
        """Make the storage."""
        self._storage: Storage | None = storage_of(self, self.storage_section, usage="positions")
        self._change = self.entry.change() if self.entry.present else None
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._failures = Throttle(burst=1, interval=60.0)
        self._overflows = Throttle()
        self.entries = 0
        self.starts = 0
        if self._storage is not None and getattr(self._storage, "file", "") is None and not self.read_from_head:
            context.problems.warn(
                "the cursor is kept in memory only: entries that come while this is stopped are left out",
                self.place,
                hint="give <storage> a path, or @id here and root_dir in <system>",
            )

    async def start(self) -> None:
        """Read from now on."""
        self._task = self.context.loop.create_task(self._run())

    async def _run(self) -> None:
        if self._storage is not None:
            await self._storage.ready()
        self._cursor = self._storage.get(CURSOR) if self._storage is not None else None
        while True:
            try:
                told = await self._read()
            except (OSError, ExportError) as error:
                told = str(error)
            if self._cursor is not None and any(text in told for text in _BAD_CURSOR):
                where = "the head" if self.read_from_head else "the tail"
                self.log.warning("the cursor %s is not valid: reading from %s", self._cursor, where)
                self._cursor = None
                continue
            self._failures.log(self.log, logging.WARNING, "the journal cannot be read, trying again: %s", told)
            await self.context.clock.sleep(RESTART)

    def _arguments(self) -> list[str]:
        if self._cursor:
            begin = [f"--after-cursor={self._cursor}"]
        else:
            begin = ["--no-tail"] if self.read_from_head else ["--lines=0"]
        follow = ["--quiet", "--no-pager", "--output=export", "--follow", "--all"]
        return [*follow, f"--directory={self.path}", *begin, *self._matches]

    async def _read(self) -> str:
        """Follow the journal until the program ends; returns what it said then."""
        assert self._program is not None
        self.starts += 1
        child = self._child = await asyncio.create_subprocess_exec(
            self._program,
            *self._arguments(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=READ,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        telling = self.context.loop.create_task(child.stderr.read(1 << 16))
        try:
            parser = ExportParser()
            while data := await child.stdout.read(READ):
                entries = parser.feed(data)
                if entries:
                    await self._emit(entries)
            status = await child.wait()
            told = (await telling).decode("utf-8", "replace").strip()
            return told or f"{PROGRAM} ended with status {status}"
        finally:
            telling.cancel()
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
            self._child = None

    async def _emit(self, entries: list[Entry]) -> None:
        """Bring entries into the buffers, however long it takes, and remember the last one."""
        change = self._change
        events = [(entry.time, entry.fields if change is None else change(entry.fields)) for entry in entries]
        while True:
            try:
                waiting = self.router.emit(self.tag, Batch.of(events))
                if waiting is not None:
                    await waiting
                break
            except BufferOverflow as error:
                self._overflows.log(self.log, logging.WARNING, "no room for %d entries: %s", len(events), error.message)
                await self.context.clock.sleep(ROOM)
            except Exception as error:  # noqa: BLE001 - an output's error: the journal goes on, as in the original
                self.log.log(logging.ERROR, "%d entries could not be emitted: %r", len(events), error)
                break
        self.entries += len(entries)
        self._cursor = entries[-1].cursor or self._cursor
        if self._storage is not None and self._cursor:
            self._storage.put(CURSOR, self._cursor)

    async def quiesce(self) -> None:
        """End the program; what it has said beyond the cursor is read again next time."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def stop(self) -> None:
        """Nothing is left to stop."""
        await self.quiesce()

    def stats(self) -> dict[str, Any]:
        """Entries read, and how often the program was started."""
        return {"entries": self.entries, "starts": self.starts}


def match_arguments(matches: list[Any]) -> list[str]:
    """The arguments of journalctl for `matches`. Raises ValueError.

    Fields of one object must all fit, values of one field need one to; objects are alternatives.
    """
    groups: list[list[str]] = []
    for match in matches:
        if not isinstance(match, dict) or not match:
            raise ValueError(f"an object of fields is needed, not {match!r}")
        terms: list[str] = []
        for name, values in match.items():
            if not name.replace("_", "A").isalnum() or name != name.upper():
                raise ValueError(f'"{name}" is no name of a field: capital letters, digits and _')
            for value in values if isinstance(values, list) else [values]:
                if isinstance(value, (dict, list)) or value is None:
                    raise ValueError(f'the value of "{name}" must be a text')
                terms.append(f"{name}={value}")
        groups.append(terms)
    found: list[str] = []
    for terms in groups:
        if found:
            found.append("+")
        found += terms
    return found
