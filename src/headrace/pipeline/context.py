"""What a plugin gets of the pipeline around it, and how nested plugins are made.

A `Context` belongs to one pipeline of one worker. It exists while the configuration is built (then it
collects problems) and while it runs (then `clock`, `loop` and `sockets` are set).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.conf.params import Problems, near_miss, reserved
from headrace.errors import ConfError, Error
from headrace.pipeline import nested
from headrace.pipeline.ack import MODES, AckRouter
from headrace.pipeline.backup import Space, default_root
from headrace.pipeline.compat import converted
from headrace.pipeline.discovery import ServiceDiscovery
from headrace.pipeline.files import Files
from headrace.pipeline.plugin import LEVELS, Filter, Formatter, Output, Parser, Plugin, Source
from headrace.pipeline.router import ErrorDesk, Router
from headrace.pipeline.storage import Storage

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Mapping

    from headrace.conf.tree import Directive
    from headrace.core.clock import Clock
    from headrace.errors import Place

    Lookup = Callable[[str, str], type[Plugin]]
    """(kind, name) -> class; raises ConfError with a hint. Kinds: those of BASES."""

P = TypeVar("P", bound=Plugin)

BASES: dict[str, type[Plugin]] = {
    "input": Source,
    "output": Output,
    "filter": Filter,
    "parser": Parser,
    "formatter": Formatter,
    "buffer": Plugin,
    "storage": Storage,
    "sd": ServiceDiscovery,
}


@dataclass
class Settings:
    """What the process tells a pipeline; <system> may change it.

    root_dir: where plugins with an `@id` keep their data. dir_mode, file_mode: permissions of what is made.
    stdout_fd: where plugins print; the log's descriptor when the process has a log file. console_fd: standard output,
    whether there is a log file or not. size_metrics: bytes are counted too where monitor_agent counts
    events. emit_error_log_interval: seconds between two lines about events that an output refused; None: as the desk
    has it.
    """

    worker_id: int = 0
    workers: int = 1
    root_dir: str | None = None
    hostname: str = "localhost"
    dir_mode: int = 0o755
    file_mode: int = 0o644
    stdout_fd: int = 1
    console_fd: int = 1
    log_level: str = "info"
    facts: dict[str, Any] = field(default_factory=dict)
    """What monitor_agent tells of the process: config_path, pid_file, plugin_dirs, log_path."""
    size_metrics: bool = False
    emit_error_log_interval: float | None = None
    backup_dir: str = field(default_factory=default_root)
    """Where dead letters go when there is no root_dir."""
    dead_letter_dir: str | None = None
    """Where dead letters go instead of root_dir or backup_dir."""
    dead_letter_records: bool = False
    """Whether records that were refused are kept where there is no @ERROR label."""
    dead_letter_limit: int = 4 << 30
    """Bytes of a worker's dead letters; 0: no limit."""


@dataclass
class Context:
    """The pipeline as a plugin sees it."""

    lookup: Lookup
    problems: Problems
    settings: Settings = field(default_factory=Settings)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("headrace.pipeline"))
    files: Files = field(default_factory=Files)

    def __post_init__(self) -> None:
        self.desk = ErrorDesk(self.log)
        if self.settings.emit_error_log_interval is not None:
            self.desk.write_less(self.settings.emit_error_log_interval)
        self.root = Router("@ROOT", self.desk, self.log)
        self.labels: dict[str, Router] = {"@ROOT": self.root}
        self.plugins: list[Plugin] = []
        """Every plugin of the pipeline in the order of making, nested ones before their owner."""
        self.sockets: Mapping[str, socket.socket] = {}
        self.ack_routers: list[AckRouter] = []
        self.claimed: dict[str, str] = {}
        """Directory of a buffer, or file of a storage -> the plugin that owns it."""
        self.one_worker = self.settings.workers == 1
        """Whether what is being made runs in a single worker: there is one, or it stands in a <worker> section."""
        self._space: Space | None = None
        self._clock: Clock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ids: dict[str, Place | None] = {}
        self._numbers: dict[str, int] = {}

    @property
    def clock(self) -> Clock:
        """The only source of time; from `start` on."""
        assert self._clock is not None, "the pipeline has not started"
        return self._clock

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The worker's loop; from `start` on."""
        assert self._loop is not None, "the pipeline has not started"
        return self._loop

    @property
    def worker_id(self) -> int:
        """Number of this worker, from 0."""
        return self.settings.worker_id

    @property
    def hostname(self) -> str:
        """Name of this machine."""
        return self.settings.hostname

    @property
    def dead_letters(self) -> Space:
        """Where chunks and records go that nobody takes."""
        if self._space is None:
            settings = self.settings
            self._space = Space(
                settings.dead_letter_dir or settings.root_dir or settings.backup_dir,
                settings.worker_id,
                self.files,
                self.log,
                limit=settings.dead_letter_limit,
                dir_mode=settings.dir_mode,
                mode=settings.file_mode,
            )
        return self._space

    def run_on(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        """Give the pipeline its loop, clock and open listeners."""
        self._loop = loop
        self._clock = clock
        self.sockets = sockets
        for router in self.ack_routers:
            router.run_on(clock)

    def label(self, name: str, place: Place | None = None) -> Router:
        """Return the router of a label; an unknown one is reported, and one that leads nowhere returned."""
        router = self.labels.get(name)
        if router is None:
            self.problems.error(f'label "{name}" is not defined', place, hint=near_miss(name, self.labels))
            return Router(name, self.desk, self.log)
        return router

    def make(
        self,
        kind: str,
        directive: Directive,
        *,
        default_type: str | None = None,
        router: Router | None = None,
        primary: Output | None = None,
    ) -> Any:
        """Make, configure and provision the plugin a section describes; None when it is wrong (and reported).

        default_type: where the section has no `@type`. router: where it stands (top level by default).
        primary: the output whose <secondary> this is. Typed as Any: the caller knows the kind it asked for.
        """
        type_name = reserved(directive, "@type") or default_type
        if type_name is None:
            self.problems.error(f"<{directive.name}> needs an @type", directive.place)
            return None
        try:
            cls = self.lookup(kind, type_name)
        except ConfError as error:
            self.problems.error(error.message, error.place or directive.place, hint=error.hint)
            return None
        return self.adopt(cls, directive, type_name=type_name, router=router, primary=primary)

    def make_default(self, kind: str, type_name: str, owner: Plugin, name: str, **options: Any) -> Any:
        """Make a nested plugin for a section that is absent: with its defaults, placed where the owner stands."""
        assert owner.directive is not None
        place = owner.directive
        empty = type(place)(name, (), place.file, place.line, block=())
        return self.make(kind, empty, default_type=type_name, **options)

    def adopt(
        self,
        cls: type[P],
        directive: Directive,
        *,
        type_name: str,
        router: Router | None = None,
        primary: Output | None = None,
    ) -> P | None:
        """Configure and provision a plugin of a known class; None when it is wrong (and reported)."""
        problems = self.problems
        before = problems.broken
        plugin = cls()
        section = converted(cls, directive, self.lookup, problems)
        plugin.configure(section, problems)
        plugin.context = self
        plugin.router = router or self.root
        self._name(plugin, type_name)
        self._relabel(plugin)
        if isinstance(plugin, Source) and plugin.ack_mode != "buffer":
            if plugin.ack_deadline <= 0:
                problems.error('parameter "ack_deadline" must be above 0', plugin.place_of("ack_deadline"))
            plugin.router = AckRouter(plugin.router, MODES[plugin.ack_mode], plugin.ack_deadline)
            self.ack_routers.append(plugin.router)
        if problems.broken > before:
            nested.check(self, plugin, section)
            return None
        try:
            if isinstance(plugin, Output):
                self._wire(plugin, primary)
            plugin.provision(self)
        except Error as error:
            place = error.place if isinstance(error, ConfError) else None
            if problems.broken == before:  # else it follows from what is reported already
                problems.error(error.message, place or directive.place, hint=getattr(error, "hint", ""))
        except (OSError, ValueError) as error:  # paths and names that the system does not take
            problems.error(f"{type_name} cannot be set up: {error}", directive.place)
        if isinstance(plugin, Output) and plugin.runner is not None:
            plugin.runner.check_placeholders(plugin)
        if problems.broken > before:
            return None
        self.plugins.append(plugin)
        return plugin

    def _name(self, plugin: Plugin, type_name: str) -> None:
        if plugin.id_ is not None:
            if plugin.id_ in self._ids:
                self.problems.error(
                    f'@id "{plugin.id_}" is used twice', plugin.place_of("@id"), hint=f"first {self._ids[plugin.id_]}"
                )
            self._ids[plugin.id_] = plugin.place_of("@id")
            plugin.plugin_id = plugin.id_
        else:
            stem = f"{plugin.kind}_{type_name}"
            number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
            plugin.plugin_id = f"{stem}.{number}"
        plugin.log = logging.getLogger(f"{self.log.name}.{plugin.plugin_id}")
        if plugin.log_level is not None:
            plugin.log.setLevel(LEVELS[plugin.log_level])

    def _relabel(self, plugin: Plugin) -> None:
        if not isinstance(plugin, (Source, Filter, Output)):
            return
        if plugin.takes_label:
            if plugin.label_ is not None:
                plugin.router = self.label(plugin.label_, plugin.place_of("@label"))
        elif type(plugin).label_ in (Filter.label_, Output.label_) and plugin.label_ is not None:
            self.problems.warn("@label has no effect here: this plugin emits nothing", plugin.place_of("@label"))

    def _wire(self, plugin: Output, primary: Output | None) -> None:
        # The runner knows buffers and lanes; importing it above would make a circle with the base classes.
        from headrace.pipeline.runner import wire  # noqa: PLC0415

        wire(plugin, self, primary)


def of_kind(plugins: list[Plugin], cls: type[P]) -> list[P]:
    """Return the plugins of one base class."""
    return [plugin for plugin in plugins if isinstance(plugin, cls)]
