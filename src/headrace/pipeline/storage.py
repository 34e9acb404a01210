"""Storages: a few values that a plugin keeps between runs (docs.fluentd.org, Storage Plugins).

A plugin asks for one in `provision`:

    self.storage = storage_of(self, self.storage_section, usage="suspend")

and from `start` on calls `await self.storage.ready()`, then `get`, `put`, `update`, `delete`. Keys are texts, values
what JSON can hold. A storage saves itself: every `autosave_interval` when something changed, and at the end, after
the sources have stopped.

What is on a disk has one owner. After a reload the new process has its storage before the old one has saved its
last values; so `ready` ends when the old one has let go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from headrace.conf.params import boolean, time
from headrace.pipeline.plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.core.clock import Deadline

_USAGE: Final = re.compile(r"[a-zA-Z][-_.a-zA-Z0-9]*")


class Storage(Plugin):
    """Base of all storages. A storage overrides `load` and `save`."""

    kind: ClassVar[str] = "storage"

    persistent = boolean(default=False, doc="Save at every change, before it counts")
    autosave = boolean(default=True, doc="Save from time to time when something has changed")
    autosave_interval = time(default=10.0, doc="Seconds between two of those")
    save_at_shutdown = boolean(default=True, doc="Save at the end")

    owner: Plugin
    usage: str = ""
    values: dict[str, Any]

    def validate(self, problems: Problems) -> None:
        """Check the interval."""
        super().validate(problems)
        if self.autosave_interval <= 0:
            problems.error('parameter "autosave_interval" must be above 0', self.place_of("autosave_interval"))

    def belong(self, owner: Plugin, usage: str) -> None:
        """Take the owner; what is wrong with where the values go is raised as ConfError."""
        self.owner = owner
        self.usage = usage

    async def start(self) -> None:
        """Load what an earlier run has saved."""
        self.values = {}
        self.saved = 0
        self.failed = 0
        self._changed = False
        self._timer: Deadline | None = None
        await self.open()

    async def open(self) -> None:
        """Load now; override it where loading has to wait."""
        self.load()
        self.begin()

    def begin(self) -> None:
        """The values are here: save them from now on."""
        if self.autosave and not self.persistent:
            self._timer = self.context.clock.deadline(self.autosave_interval, self._autosave)

    async def ready(self) -> None:
        """Return when the values are here."""

    def load(self) -> None:
        """Fill `values`. Logs what cannot be read."""
        raise NotImplementedError

    def save(self) -> bool:
        """Write `values`; False (and a line in the log) when that fails."""
        raise NotImplementedError

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key."""
        return self.values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self.values[key] = value
        self._change()

    def delete(self, key: str) -> Any:
        """Remove a key; return its value."""
        value = self.values.pop(key, None)
        self._change()
        return value

    def update(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Set a key to `change(value)`; return that."""
        value = change(self.values.get(key))
        self.put(key, value)
        return value

    def _change(self) -> None:
        self._changed = True
        if self.persistent:
            self._save()

    def _save(self) -> None:
        if self.save():
            self.saved += 1
            self._changed = False
        else:
            self.failed += 1

    def _autosave(self) -> None:
        if self._changed:
            self._save()
        if self._timer is not None:
            self._timer.reschedule(self.autosave_interval)

    async def stop(self) -> None:
        """Save for the last time."""
        if not hasattr(self, "_timer"):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.save_at_shutdown and self._changed:
            self._save()

    def stats(self) -> dict[str, Any]:
        """How often the values were saved, and how often that failed."""
        return {"saved": getattr(self, "saved", 0), "failed": getattr(self, "failed", 0)}


def storage_of(owner: Plugin, section: Directive | None, *, usage: str = "", default: str = "local") -> Storage | None:
    """The storage of a plugin, from its <storage> section or with the defaults; None when it is wrong (and reported).

    usage: what it is for, a part of the file's name; the argument of the section says otherwise.
    """
    problems = owner.context.problems
    if section is not None and section.args and section.args[0]:
        usage = section.args[0]
        if not _USAGE.fullmatch(usage):
            problems.error(f"<storage {usage}>: a letter, then letters, digits and -_. are possible", section.place)
            return None
    if section is None:
        made = owner.context.make_default("storage", default, owner, "storage")
    else:
        made = owner.context.make("storage", section, default_type=default)
    if made is not None:
        cast("Storage", made).belong(owner, usage)
    return cast("Storage | None", made)
