"""nginx.conf -> a GatewayPlan: edge's Gateway, with Lua's runtime when the file has Lua.

The gateway is built once, in the master; workers inherit it, so its code and settings are shared memory.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.conf import nginx
from headrace.conf.tree import Directive
from headrace.edge import build as edge_build
from headrace.edge import log as edge_log
from headrace.edge import registry
from headrace.edge.body import make_temp_folder
from headrace.edge.families.logs import LogFamily
from headrace.edge.names import SERVER_FULL
from headrace.edge.shipped import read_file
from headrace.errors import ConfError
from headrace.lua import check as lua_check
from headrace.lua.directives import LuaFamily
from headrace.lua.stream.directives import StreamLuaFamily
from headrace.stream.families import stream_families
from headrace.supervisor.program import Listen
from headrace.topology.modules import configure_arguments
from headrace.version import VERSION

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping, Sequence

    from headrace.conf.files import Files
    from headrace.conf.params import Problems
    from headrace.core.clock import Clock
    from headrace.edge.families.main import MainSettings
    from headrace.edge.gateway import Gateway
    from headrace.edge.listen import ListenSpec
    from headrace.edge.registry import Family
    from headrace.lua.runtime import Overlay, Runtime
    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.program import Identity
    from headrace.topology.bridge import Bridge
    from headrace.topology.options import GatewayOptions

_LEVELS: Final = {
    "trace": edge_log.DEBUG,
    "debug": edge_log.DEBUG,
    "info": edge_log.NOTICE,
    "warn": edge_log.WARN,
    "error": edge_log.ERR,
    "fatal": edge_log.EMERG,
}


def families(overlay: Overlay | None = None) -> list[Family]:
    """Fresh families of all directives, Lua's included. overlay: what a test puts under the VM that serves http."""
    specs = [family.specs for family in (*registry.families(), *stream_families())]
    configure = configure_arguments([*specs, LuaFamily.specs])
    sessions = StreamLuaFamily(configure)
    return [*registry.families(), *stream_families((sessions,)), LuaFamily(configure, overlay), sessions]


def read(options: GatewayOptions, files: Files) -> tuple[Directive, ...]:
    """The tree of -g and the file; with the error log of -e where neither has one. Raises ConfError."""
    tree = nginx.parse(options.directives, nginx.COMMAND_LINE, files=files) if options.directives else ()
    tree += nginx.load(options.conf, prefix=options.prefix, files=files)
    if options.error_log is not None and not any(directive.name == "error_log" for directive in tree):
        tree = (Directive("error_log", (options.error_log,), nginx.COMMAND_LINE, 0), *tree)
    return tree


def pid_file_of(options: GatewayOptions) -> str:
    """The pid file of a configuration without building it, for -s. Raises ConfError."""
    from headrace.conf.files import Files  # noqa: PLC0415 - for the one who has none yet

    path = options.pid_file or "logs/nginx.pid"
    for directive in read(options, Files(read_file)):
        if directive.name == "pid" and directive.args:
            path = directive.args[0]
            break
    return os.path.join(options.prefix, path)


def plan_gateway(options: GatewayOptions, files: Files, problems: Problems) -> GatewayPlan | None:
    """Build the gateway; None when there are errors in `problems`. Raises ConfError for a syntax error."""
    tree = read(options, files)
    known = families()
    before = len(problems.errors)
    gateway = edge_build.build(
        tree,
        prefix=options.prefix,
        problems=problems,
        families=known,
        conf_dir=os.path.dirname(options.conf),
        body_temp=options.body_temp,
    )
    lua_check.check(tree, prefix=options.prefix, conf_dir=os.path.dirname(options.conf), problems=problems)
    if len(problems.errors) > before:
        return None
    runtimes = [family.runtime for family in known if isinstance(family, LuaFamily) and family.runtime is not None]
    logs = next(family for family in known if isinstance(family, LogFamily))
    for runtime in runtimes:
        runtime.use_error_log(gateway.error_log)
    plan = GatewayPlan(options, gateway, runtimes, logs.bridged)
    if any(directive.name == "daemon" for directive in tree):
        plan.background = gateway.main.daemon
    return plan


class GatewayPlan:
    """A gateway that can be started: what the master needs to know of it."""

    def __init__(
        self, options: GatewayOptions, gateway: Gateway, runtimes: Sequence[Runtime], bridged: list[Directive]
    ) -> None:
        self.prefix = options.prefix
        self.settings: MainSettings = gateway.main
        self.pid_file = gateway.main.pid or options.pid_file
        self.background = options.background
        self._gateway = gateway
        self._runtimes = runtimes
        self._bridged = bridged

    def listens(self) -> Sequence[Listen]:
        """The listeners, with the socket's address as the key."""
        return [
            Listen(key_of(spec, worker), partial(self._gateway.open_socket, spec))
            for spec in self._gateway.listens
            for worker in range(self.settings.worker_processes if _is_each(spec) else 1)
        ]

    def environment(self) -> dict[str, str]:
        """What workers keep of the environment: TZ, where OpenSSL looks, and what `env` names."""
        kept = ["TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"]
        named = [(name, None) for name in kept] + list(self.settings.env)
        found = {name: os.environ.get(name) if value is None else value for name, value in named}
        return {name: value for name, value in found.items() if value is not None}

    def forbid_bridge(self, problems: Problems) -> None:
        """An access log into the pipeline needs one, and there is none."""
        for directive in self._bridged:
            problems.error(
                f'"access_log {directive.args[0]}" needs a pipeline, and this run has none',
                directive.place,
                hint="headrace run nginx.conf fluent.conf",
            )

    def check_logs(self) -> None:
        """Look whether all logs can be opened. Raises ConfError with nginx's text."""
        self._gateway.check_logs()

    def prepare(self, owner: tuple[int, int] | None) -> None:
        """Open the logs and run init_by_lua, in the master; owner: (uid, gid) of workers that are not root."""
        self._gateway.open_logs()
        self._gateway.error_log.line(edge_log.NOTICE, SERVER_FULL + f" (headrace {VERSION})".encode())
        for folder in sorted(self._gateway.temp_folders):
            if owner is None:
                break  # workers make it when they need it
            try:
                make_temp_folder(folder, owner)
            except OSError as error:
                raise ConfError(f'mkdir() "{folder}" failed ({error.errno}: {error.strerror})') from error
        for runtime in self._runtimes:
            runtime.run_init(worker_count=self.settings.worker_processes)

    def reopen_logs(self, owner: tuple[int, int] | None) -> None:
        """Open the logs anew in the master; owner: whom the files must belong to, so that workers can open them."""
        self._gateway.reopen_logs()
        if owner is None:
            return
        for file in self._gateway.logs.files.values():
            if file.fd > 2:
                os.fchown(file.fd, *owner)

    def close(self) -> None:
        """Close the logs."""
        for file in self._gateway.logs.files.values():
            file.close()

    def part(self, identity: Identity) -> GatewayPart:
        """What one worker runs."""
        return GatewayPart(self._gateway, self._runtimes, identity)

    def engine_log(self) -> EngineLog:
        """The error log of the main level, for what master and workers have to say."""
        return GatewayLog(self._gateway)


class GatewayPart:
    """The gateway in one worker."""

    def __init__(self, gateway: Gateway, runtimes: Sequence[Runtime], identity: Identity) -> None:
        self._gateway = gateway
        self._runtimes = runtimes
        self._identity = identity
        self._bridge: Bridge | None = None

    def connect_bridge(self, router: Any, loop: asyncio.AbstractEventLoop, log: EngineLog) -> None:
        """Let access logs of the form pipeline:TAG emit into `router`."""
        from headrace.topology.bridge import Bridge  # noqa: PLC0415 - a gateway alone does not pay for it

        self._bridge = Bridge(router, loop, log)
        self._bridge.connect()

    async def start(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        """Tie Lua to the loop, run init_worker_by_lua, accept connections."""
        for runtime in self._runtimes:
            runtime.attach(loop, worker_id=self._identity.index, worker_count=self._identity.workers)
        worker = self._identity.index
        own = {
            spec.socket_key: sockets[key_of(spec, worker if _is_each(spec) else 0)] for spec in self._gateway.listens
        }
        await self._gateway.start(loop, clock, own)

    async def stop(self, within: float) -> None:
        """Answer what is there and let timers end within `within` seconds, then end Lua."""
        end = time.monotonic() + within
        for runtime in self._runtimes:
            runtime.begin_exit()
        await self._gateway.stop(within)
        for runtime in self._runtimes:
            await runtime.timers_ended(end - time.monotonic())
        for runtime in self._runtimes:
            runtime.exit()
        if self._bridge is not None:
            await self._bridge.drain()

    def detach(self) -> None:
        """Leave the loop."""
        for runtime in self._runtimes:
            runtime.detach()

    def stats(self) -> dict[str, Any]:
        """Figures of edge, of Lua and of the bridge."""
        figures: dict[str, Any] = {"edge": self._gateway.stats()}
        for runtime in self._runtimes:
            name = "lua" if runtime.side.name == "http" else f"{runtime.side.name}_lua"
            figures[name] = {**runtime.stats(), "pools": runtime.pools()}
        if self._bridge is not None:
            figures["bridge"] = self._bridge.stats()
        return figures

    def reopen_logs(self) -> None:
        """Open the logs anew; one that cannot be opened keeps its old file, and the error log says so."""
        try:
            self._gateway.reopen_logs()
        except ConfError as error:
            self._gateway.error_log.line(edge_log.EMERG, error.message.encode("utf-8", "surrogateescape"))


class GatewayLog:
    """The gateway's error log as the log of the engine."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def fd(self) -> int:
        """The descriptor of its first file, which is opened if it is not. Raises ConfError."""
        targets = self._gateway.error_log.targets
        if not targets:
            return -1
        targets[0][0].open()
        return targets[0][0].fd

    def write(self, level: str, message: str) -> None:
        """One line."""
        self._gateway.error_log.line(_LEVELS[level], message.encode("utf-8", "surrogateescape"))

    def reopen(self, owner: tuple[int, int] | None = None) -> None:
        """Nothing: the file is the gateway's, which opens it anew itself."""

    def tend(self, *, rotate: bool, owner: tuple[int, int] | None = None) -> None:
        """Nothing: nginx's logs are rotated from outside."""

    def set_worker(self, index: int) -> None:
        """Nothing: a line names its process."""


def _is_each(spec: ListenSpec) -> bool:
    """Whether each worker has a socket of its own: so the datagrams of one client come to one worker."""
    return spec.udp and spec.reuseport


def key_of(spec: ListenSpec, worker: int = 0) -> str:
    """The name under which the master holds a listener."""
    return spec.text + (" udp" if spec.udp else "") + (f" {worker}" if worker else "")
