"""Files -> Plan: everything is parsed, checked and built before a process is forked or a socket is opened.

`build` collects what is wrong in Problems, of both files, so that `check` shows all of it at once. A Plan is the
supervisor's Program: immutable from here on, replaced as a whole by a reload.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.conf.files import Files
from headrace.core.listener import open_listener
from headrace.edge.shipped import read_file
from headrace.errors import ConfError, Error
from headrace.pipeline.system import metrics_address
from headrace.plugins.time_format import time_formatter
from headrace.supervisor import osproc
from headrace.supervisor.log import FluentLog, LogHandler, Style
from headrace.supervisor.program import GRACE, WATCHDOG, Listen, ProcessSettings
from headrace.supervisor.rotation import KEEP, SIZE, Rotation
from headrace.topology.run import Running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.conf.params import Problems
    from headrace.pipeline.system import SystemSection
    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.program import Identity
    from headrace.topology.gateway import GatewayPlan
    from headrace.topology.options import Options
    from headrace.topology.pipelines import PipelinePlan

WATCHDOG_VARIABLE: Final = "HEADRACE_WATCHDOG"
"""Seconds a worker may stay away from its loop, from the environment; 0 switches the watchdog off."""

_LOGGER: Final = "headrace"


@dataclass(frozen=True, slots=True)
class Plan:
    """One checked configuration (supervisor.program.Program)."""

    process: ProcessSettings
    gateway: GatewayPlan | None
    pipeline: PipelinePlan | None
    log: EngineLog
    files: Files
    metrics: tuple[str, int] | None = None
    """The address of the listener for figures."""

    @property
    def sources(self) -> Sequence[str]:
        """The files it came from."""
        return [path for path, _ in self.files.read]

    @property
    def errors_fd(self) -> int | None:
        """Where a daemon's standard error goes: its log."""
        fd = getattr(self.log, "fd", None)
        return fd if isinstance(fd, int) and fd >= 0 else None

    def listens(self) -> Sequence[Listen]:
        """Every listener of both parts."""
        found: list[Listen] = []
        if self.gateway is not None:
            found += self.gateway.listens()
        if self.pipeline is not None:
            found += self.pipeline.listens()
        if self.metrics is not None:
            found.append(Listen(metrics_key(self.metrics), partial(open_listener, self.metrics)))
        return found

    def test(self) -> None:
        """What a test looks at besides the files: users and logs. Nothing is made. Raises Error."""
        osproc.account(self.process.user, self.process.group)
        if self.gateway is not None:
            self.gateway.check_logs()

    def prepare(self, owner: tuple[int, int] | None) -> None:
        """Open the logs, make the folders of temporary files and run init_by_lua."""
        if self.process.umask is not None:
            os.umask(self.process.umask)
        if self.gateway is not None:
            self.gateway.prepare(owner)

    def reopen_logs(self, owner: tuple[int, int] | None) -> None:
        """Open all logs anew in the master."""
        if self.gateway is not None:
            self.gateway.reopen_logs(owner)
        self.log.reopen(owner)

    def engine(self, identity: Identity) -> Running:
        """The parts of one worker."""
        if isinstance(self.log, FluentLog):
            _attach(self.log)  # a reload that failed meanwhile has left its own in the master
        gateway = self.gateway.part(identity) if self.gateway is not None else None
        pipeline = self.pipeline.part(identity) if self.pipeline is not None else None
        return Running(gateway, pipeline, identity, self.log)

    def close(self) -> None:
        """Close the logs; Lua's VM goes with the plan."""
        if self.gateway is not None:
            self.gateway.close()
        if isinstance(self.log, FluentLog):
            self.log.close()


def build(options: Options, problems: Problems) -> Plan | None:
    """Build what the options name; None when `problems` has errors."""
    files = Files(read_file)
    fluent_log = _engine_log(options) if options.pipeline is not None else None
    gateway: GatewayPlan | None = None
    pipeline: PipelinePlan | None = None
    if options.gateway is not None:
        from headrace.topology.gateway import plan_gateway  # noqa: PLC0415 - a pipeline does not pay for it

        try:
            gateway = plan_gateway(options.gateway, files, problems)
        except ConfError as error:  # the syntax is wrong; the other file is checked all the same
            problems.errors.append(error)
        if gateway is not None and options.workers is not None:
            gateway.settings.worker_processes = options.workers
    if options.pipeline is not None:
        from headrace.topology.pipelines import plan_pipeline  # noqa: PLC0415 - a gateway does not pay for it

        workers = options.workers or (gateway.settings.worker_processes if gateway is not None else None)
        try:
            pipeline = plan_pipeline(
                options.pipeline,
                files,
                problems,
                workers=1 if options.master is False else workers,
                log_level=options.log_level,
                begin_log=partial(_begin_log, fluent_log, options, problems),
                facts={
                    "config_path": options.pipeline.conf,
                    "pid_file": options.pid_file,
                    "plugin_dirs": list(options.pipeline.plugins),
                    "log_path": options.log_path,
                },
            )
        except ConfError as error:
            problems.errors.append(error)
        if pipeline is not None and fluent_log is not None:
            fluent_log.set_level(pipeline.log_level)
    if gateway is not None and options.pipeline is None:
        gateway.forbid_bridge(problems)
    log = fluent_log or (gateway.engine_log() if gateway is not None else None)
    _compare_listeners(gateway, pipeline, problems)
    if problems.errors or log is None:
        return None
    metrics = _metrics(options, pipeline)
    process = _process(options, gateway, pipeline, problems)
    if metrics is not None:
        process = replace(process, metrics=metrics_key(metrics))
    return Plan(process, gateway, pipeline, log, files, metrics)


def metrics_key(address: tuple[str, int]) -> str:
    """The key of the listener for figures."""
    return f"metrics:{address[0]}:{address[1]}"


def _metrics(options: Options, pipeline: PipelinePlan | None) -> tuple[str, int] | None:
    """Where figures are told: what the command line says, else <system>. Raises ConfError."""
    text = options.metrics
    if text is None and pipeline is not None:
        text = pipeline.system.metrics.listen
    if text is None:
        return None
    address = metrics_address(text)
    if address is None:
        raise ConfError(f'"{text}" is no [HOST:]PORT for figures')
    return address


def _engine_log(options: Options) -> FluentLog:
    try:
        log = FluentLog(options.log_path, level=options.log_level or "info", rotation=options.log_rotation)
    except OSError as error:
        raise Error(f'open() "{options.log_path}" failed ({error.errno}: {error.strerror})', kind="log") from error
    _attach(log)
    return log


def _begin_log(log: FluentLog | None, options: Options, problems: Problems, system: SystemSection) -> int:
    """Give the log the form that <system> asks for; return where plugins print."""
    if log is None:
        return 1
    section = system.log
    path = options.log_path
    if section.path is not None and path is None:
        path = os.path.abspath(section.path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            log.begin_file(path)
        except OSError as error:
            problems.error(f'the log "{path}" cannot be opened: {error.strerror}', section.place_of("path"))
            return 1
    stamp = time_formatter(section.time_format, None)
    forced = section.forced_stacktrace_level
    log.set_style(
        Style(
            json=section.format == "json",
            stamp=lambda now: stamp(round(now * 1e9)),
            repeated=system.ignore_repeated_log_interval,
            same=system.ignore_same_log_interval,
            first_trace_only=system.suppress_repeated_stacktrace,
            trace_level=None if forced == "none" else forced,
        )
    )
    age, size = section.rotate_age, section.rotate_size
    if age is not None or size is not None:
        if path is None:
            problems.warn("<log> rotates nothing without a log file", section.place, hint="path, or -o")
        elif isinstance(age, str):
            log.rotate(Rotation(period=age))
        elif age != 0:
            log.rotate(Rotation(keep=KEEP if age is None else age, size=size or SIZE))
    return log.fd if path is not None else 1


def _attach(log: FluentLog) -> None:
    """Let Python's logging below the package's name write to the engine's log."""
    logger = logging.getLogger(_LOGGER)
    logger.handlers = [LogHandler(log)]
    logger.propagate = False
    logger.setLevel(1)


def _process(
    options: Options, gateway: GatewayPlan | None, pipeline: PipelinePlan | None, problems: Problems
) -> ProcessSettings:
    nginx = gateway.settings if gateway is not None else None
    user, group, by_default = options.user, options.group, False
    if nginx is not None and user is None:
        if nginx.user is not None:
            user, group = nginx.user[0], group or nginx.user[1]
            if os.geteuid() != 0:
                problems.warn('"user" is used only when headrace is started by root')
        elif pipeline is None:
            user, by_default = "nobody", True  # nginx's own default: no handler runs as root unawares
    watchdog = options.watchdog
    if watchdog is None:
        watchdog = _watchdog_of_environment()
    workers = options.workers or (nginx.worker_processes if nginx else pipeline.workers if pipeline else 1)
    master = options.master if options.master is not None else (nginx.master_process if nginx else True)
    daemon = options.daemon if options.daemon is not None else (gateway.background if gateway else False)
    timeout = nginx.worker_shutdown_timeout if nginx else None
    return ProcessSettings(
        workers=workers if master else 1,
        user=user,
        group=group,
        user_is_default=by_default,
        pid_file=options.pid_file or (gateway.pid_file if gateway is not None else None),
        prefix=gateway.prefix if gateway is not None else None,
        daemon=daemon,
        master=master,
        rlimit_nofile=nginx.rlimit_nofile if nginx else None,
        rlimit_core=nginx.rlimit_core if nginx else None,
        priority=nginx.priority if nginx else None,
        directory=nginx.working_directory if nginx else None,
        environment=gateway.environment() if gateway is not None and pipeline is None else None,
        shutdown_timeout=timeout if timeout is not None else GRACE,
        watchdog=watchdog,
        name=pipeline.name if pipeline is not None else None,
        restart_interval=pipeline.system.restart_worker_interval if pipeline is not None else 0.0,
        umask=int(pipeline.system.umask, 8) if pipeline is not None and pipeline.system.umask else None,
        rpc=pipeline.rpc if pipeline is not None and master else None,
        upgrade_by_hand=options.upgrade_by_hand,
    )


def _watchdog_of_environment() -> float:
    text = os.environ.get(WATCHDOG_VARIABLE)
    if not text:
        return WATCHDOG
    try:
        seconds = float(text)
    except ValueError:
        raise ConfError(f"{WATCHDOG_VARIABLE}={text} is not a number of seconds") from None
    return max(seconds, 0.0)


def _compare_listeners(gateway: GatewayPlan | None, pipeline: PipelinePlan | None, problems: Problems) -> None:
    if gateway is None or pipeline is None:
        return
    taken = {listen.key for listen in gateway.listens()}
    for listen in pipeline.listens():
        if listen.key in taken:
            problems.error(f"{listen.key} is a listener of both files", hint="each address has one owner")
