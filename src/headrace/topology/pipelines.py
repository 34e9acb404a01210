"""fluent.conf -> a PipelinePlan: one pipeline for each worker, all built in the master.

A worker's number shows in its configuration (`"#{worker_id}"`, <worker N>, what runs in worker 0 only), so each
has its own; they are built before the fork, so that everything wrong is known and the memory is shared.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.conf import fluent
from headrace.conf.params import literal_of
from headrace.conf.tree import Directive
from headrace.core.listener import open_listener
from headrace.errors import Error
from headrace.pipeline.backup import default_root
from headrace.pipeline.build import build_pipeline, system_section
from headrace.pipeline.context import Settings
from headrace.pipeline.dump import conf_text
from headrace.pipeline.system import endpoint_of
from headrace.plugins.folder import Folders
from headrace.supervisor.program import Listen
from headrace.supervisor.rpc import RpcSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from headrace.conf.files import Files
    from headrace.conf.params import Problems
    from headrace.core.clock import Clock
    from headrace.pipeline.pipeline import Pipeline
    from headrace.pipeline.plugin import ListenSpec
    from headrace.pipeline.router import Router
    from headrace.pipeline.system import SystemSection
    from headrace.pipeline.tap import Tap
    from headrace.supervisor.program import Identity
    from headrace.topology.options import PipelineOptions

COMMAND_LINE: Final = "command line"
INCLUDED: Final = (".conf", ".yaml", ".yml")
"""Ends of the names of files that are read from config_include_dir."""
INLINE: Final = "inline-config"
"""The file name of what -i gives."""


def plan_pipeline(
    options: PipelineOptions,
    files: Files,
    problems: Problems,
    *,
    workers: int | None,
    log_level: str | None,
    begin_log: Callable[[SystemSection], int] = lambda _system: 1,
    facts: Mapping[str, Any] | None = None,
) -> PipelinePlan | None:
    """Build the pipelines of `workers` workers (None: as <system> says); None when `problems` has errors.

    begin_log: called with <system>; it gives the log its form, and returns the descriptor where plugins print: a log
    file that was named takes the place of standard output, as in Fluentd.
    facts: what monitor_agent tells of the process. Raises ConfError for a syntax error.
    """
    before = len(problems.errors)
    tree = _read(options, files, problems, 0)
    system = system_section(tree, _unheard(problems))  # build_pipeline reports what is wrong in it
    stdout_fd = begin_log(system)
    count = workers or max(system.workers, 1)
    folders = Folders(options.plugins, optional=[options.default_plugins] if options.default_plugins else ())
    folders.report(problems)
    pipelines: list[Pipeline] = []
    for index in range(count):
        if index:
            tree = _read(options, files, _unheard(problems), index)
        settings = Settings(
            worker_id=index,
            workers=count,
            hostname=socket.gethostname(),
            stdout_fd=stdout_fd,
            backup_dir=default_root(options.conf),
        )
        settings.log_level = log_level or settings.log_level
        settings.facts = dict(facts or {})
        # What is wrong for one worker is wrong for all: said once, for the first.
        heard = problems if index == 0 else _unheard(problems)
        made = build_pipeline(tree, lookup=folders.lookup, problems=heard, settings=settings, sources=options.sources)
        if made is None:
            if heard is not problems:
                problems.errors.extend(heard.errors)
            return None
        pipelines.append(made)
    if len(problems.errors) > before:
        return None
    text = conf_text(tree, folders.lookup)
    return PipelinePlan(pipelines, log_level or system.log_level or "info", system, text)


def _unheard(problems: Problems) -> Problems:
    return type(problems)(unknown_is_error=problems.unknown_is_error)


def _read(options: PipelineOptions, files: Files, problems: Problems, index: int) -> tuple[Directive, ...]:
    worker = str(index)
    tree = fluent.load(options.conf, worker_id=worker, files=files, problems=problems, yaml=options.yaml)
    if options.inline:
        tree += fluent.parse(options.inline, INLINE, worker_id=worker, files=files, problems=problems)
    tree = with_system(tree, options.system)
    folder = options.include_dir
    for directive in tree:
        if directive.name == "system":
            for child in directive.children("config_include_dir"):
                folder = str(literal_of(child))
    for path in _included(folder, {name for name, _ in files.read}):
        tree += fluent.load(path, worker_id=worker, files=files, problems=problems)
    return tree


def with_system(tree: tuple[Directive, ...], values: Mapping[str, str]) -> tuple[Directive, ...]:
    """The tree with parameters of <system> that the command line gives; they win over those of the file."""
    if not values:
        return tree
    given = tuple(Directive(name, (value,), COMMAND_LINE, 0, values=(value,)) for name, value in values.items())
    systems = [directive for directive in tree if directive.name == "system" and directive.block is not None]
    if not systems:
        return (*tree, Directive("system", (), COMMAND_LINE, 0, block=given))
    first = systems[0]
    kept = tuple(child for child in first.block or () if child.name not in values)
    changed = replace(first, block=(*kept, *given))
    return tuple(changed if directive is first else directive for directive in tree)


def _included(folder: str | None, known: set[str]) -> list[str]:
    """The configuration files below a folder that are not read yet, in their order."""
    found = (
        os.path.join(parent, name)
        for parent, _folders, names in sorted(os.walk(folder or ""))
        for name in sorted(names)
    )
    read = {os.path.realpath(name) for name in known}
    return [path for path in found if path.endswith(INCLUDED) and os.path.realpath(path) not in read]


class PipelinePlan:
    """The pipelines of all workers. text: the configuration for logs, without secrets."""

    def __init__(self, pipelines: list[Pipeline], log_level: str, system: SystemSection, text: str) -> None:
        self._pipelines = pipelines
        self.log_level = log_level
        self.system = system
        self.text = text
        self.name = system.process_name

    @property
    def rpc(self) -> RpcSettings | None:
        """The calls that the master answers."""
        endpoint = self.system.rpc_endpoint
        if endpoint is None:
            return None
        return RpcSettings(f"rpc:{endpoint}", self.text, shows=self.system.enable_get_dump)

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._pipelines)

    def listens(self) -> Sequence[Listen]:
        """The listeners of all sources of all workers, each once."""
        found: dict[str, Listen] = {}
        for pipeline in self._pipelines:
            for spec in pipeline.listens:
                found.setdefault(spec.key, Listen(spec.key, partial(_open, spec)))
        if (rpc := self.rpc) is not None:
            address = endpoint_of(self.system.rpc_endpoint or "")
            assert address is not None
            found[rpc.key] = Listen(rpc.key, partial(open_listener, address))
        return list(found.values())

    def probe(self, problems: Problems, *, running: bool) -> None:
        """Open each listener and close it again, to find those that cannot be opened.

        running: a headrace runs, which may be the one whose configuration is checked: an address in use is a warning.
        """
        specs = {spec.key: spec for pipeline in self._pipelines for spec in pipeline.listens}
        wanted = [(partial(_open, spec), spec.place) for spec in specs.values() if not spec.address.startswith("unix:")]
        # (Opening a unix socket would take the place of the one that serves.)
        address = endpoint_of(self.system.rpc_endpoint or "")
        if address is not None:
            wanted.append((partial(open_listener, address), self.system.place_of("rpc_endpoint")))
        for opened, place in wanted:
            try:
                opened().close()
            except (OSError, Error) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                in_use = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
                report = problems.warn if in_use and running else problems.error
                hint = "choose another port, or stop who has it" if in_use else "look at bind and port"
                report(str(error), place, hint=hint)

    def part(self, identity: Identity) -> PipelinePart:
        """What one worker runs."""
        return PipelinePart(self._pipelines[identity.index])


class PipelinePart:
    """The pipeline in one worker."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def router(self) -> Router:
        """Where events of the process itself begin."""
        return self._pipeline.router

    async def start(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        """Start outputs, then sources."""
        mine = {spec.key: sockets[spec.key] for spec in self._pipeline.listens}
        await self._pipeline.start(loop, clock, mine)

    async def stop(self, within: float, *, heir: bool = False) -> None:
        """Stop sources, flush, close. heir: another process goes on with what is left."""
        await self._pipeline.stop(within, heir=heir)

    def stats(self) -> dict[str, Any]:
        """Figures of all plugins."""
        return self._pipeline.stats()

    def tap(self, pattern: str, side: str | None, *, counts_only: bool) -> Tap:
        """Look at live events. Raises Error when nothing fits."""
        return self._pipeline.tap(pattern, side, counts_only=counts_only)

    def flush(self) -> None:
        """Queue what is staged."""
        self._pipeline.flush()


def _open(spec: ListenSpec) -> socket.socket:
    if spec.address.startswith("unix:"):
        os.makedirs(os.path.dirname(spec.address.removeprefix("unix:")) or ".", exist_ok=True)
        return open_listener(spec.address, backlog=spec.backlog)
    host, _, port = spec.address.rpartition(":")
    address = (host.strip("[]"), int(port))
    if spec.kind == "udp":
        return _open_udp(address)
    return open_listener(address, backlog=spec.backlog)


def _open_udp(address: tuple[str, int]) -> socket.socket:
    host, port = address
    name = f"{host or '0.0.0.0'}:{port}"
    try:
        family, kind, _proto, _name, where = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise Error(f'host not found in "{name}" of the listener', kind="dns") from error
    sock = socket.socket(family, kind)
    try:
        sock.bind(where)
    except OSError as error:
        sock.close()
        raise Error(f"bind() to {name} by UDP failed ({error.errno}: {error.strerror})", kind="bind") from error
    sock.setblocking(False)
    return sock
