"""The <system> section (docs.fluentd.org, Deployment, System Configuration).

What is built is declared here; what has no meaning here is accepted with a warning that says so; all other
parameters of Fluentd are refused by name, with what to do instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import Configurable, Param, boolean, enum, hash_, integer, section, size, string, time
from headrace.conf.tree import Directive
from headrace.pipeline.deadletters import DeadLetterSection
from headrace.pipeline.plugin import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Settings

_NO_EFFECT: Final[Mapping[str, str]] = {
    "enable_msgpack_time_support": "it is always on",
    "enable_input_metrics": "figures of sources are always kept",
    "enable_jit": "there is no Ruby here",
    "disable_shared_socket": "workers always share the listeners of the master",
    "strict_config_value": "values are always read strictly",
    "log_event_verbose": "log events hold the message only",
}
_REFUSED: Final[Mapping[str, str]] = {
    "with_source_only": "a zero-downtime restart needs no such mode here: send USR2",
    "source_only_buffer": "a zero-downtime restart needs no such mode here: send USR2",
    "counter_server": "counters of workers are shared without a server",
    "counter_client": "counters of workers are shared without a server",
}
"""Parameters and sections that are not built -> what to do instead."""

MANY_WORKERS: Final = 1024
PERIODS: Final = ("daily", "weekly", "monthly")
_ENDPOINT: Final = re.compile(r"\[?([0-9a-zA-Z:.-]+)\]?:([0-9]{1,5})")


def rotate_age(value: object) -> int | str:
    """How many log files are kept, or the period of each. Raises ValueError."""
    text = str(value)
    if text in PERIODS:
        return text
    if not text.isdigit():
        raise ValueError(f"a number or one of {', '.join(PERIODS)} is needed")
    return int(text)


class LogSection(Configurable):
    """The engine's own log."""

    path = string(default=None, doc="The log file, where the command line names none (-o)")
    format = enum(("text", "json"), default="text", doc="Form of the lines")
    time_format = string(default="%Y-%m-%d %H:%M:%S %z", doc="Form of the time, as strftime has it")
    rotate_age: Param[int | str | None] = Param(
        rotate_age,
        type_name="integer, daily, weekly or monthly",
        default=None,
        doc="Log files that are kept, or a period",
    )
    rotate_size = size(default=None, doc="Bytes at which the log begins anew")
    forced_stacktrace_level = enum(
        ("none", *LEVELS), default="none", doc="The level of all stack traces; none: that of their message"
    )


class MetricsSection(Configurable):
    """Where figures are kept."""

    type_ = enum(("local",), default="local", key="@type", doc="local: in the process, for `headrace stats`")
    labels = hash_(default={}, doc="Refused: local figures have no labels")
    listen = string(
        default=None, doc="[HOST:]PORT (HOST 127.0.0.1) that answers /metrics, for Prometheus, and /_headrace/pools"
    )

    def validate(self, problems: Problems) -> None:
        """Labels would be lost."""
        if self.listen is not None and metrics_address(self.listen) is None:
            problems.error(f'"{self.listen}" is no [HOST:]PORT', self.place_of("listen"))
        if self.labels:
            problems.error('<metrics> "labels" is not supported', self.place_of("labels"), hint="label what is scraped")


class SystemSection(Configurable):
    """What the whole process does."""

    workers = integer(default=1, doc="Worker processes")
    root_dir = string(default=None, doc="Folder for the data of plugins that have an @id")
    log_level = enum(tuple(LEVELS), default=None, doc="What is logged")
    process_name = string(default=None, doc="Name of the process")
    without_source = boolean(default=False, doc="Start without sources, to empty the buffers")
    file_permission = string(default=None, doc="Octal mode of files that are made")
    dir_permission = string(default=None, doc="Octal mode of folders that are made")
    umask = string(default=None, doc="Permissions that new files never get (octal)")
    restart_worker_interval = time(default=0.0, doc="Seconds at least until a worker that ended is started again")
    suppress_repeated_stacktrace = boolean(default=True, doc="Of equal stack traces in a row, write the first")
    ignore_repeated_log_interval = time(default=None, doc="Seconds in which a line equal to the last one is left out")
    ignore_same_log_interval = time(default=None, doc="Seconds in which a line equal to any of the last is left out")
    emit_error_log_interval = time(default=None, doc="Seconds between two lines about events that an output refused")
    suppress_config_dump = boolean(default=False, doc="Do not log the configuration at the start (headrace-fluentd)")
    rpc_endpoint = string(default=None, doc="HOST:PORT on which the master answers calls by HTTP")
    enable_get_dump = boolean(default=False, doc="Allow the call that returns the configuration, secrets hidden")
    enable_size_metrics = boolean(default=False, doc="Count bytes too where monitor_agent counts events")
    config_include_dir = string(
        default=None, doc="Folder whose .conf, .yaml and .yml files are read after the configuration; empty: none"
    )
    log = section(LogSection, name="log", doc="The engine's own log")
    metrics = section(MetricsSection, name="metrics", doc="Where figures are kept")
    dead_letter = section(DeadLetterSection, name="dead_letter", doc="Chunks and records that nobody takes")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Fill the values; say what has no effect, refuse what is not built."""
        kept: list[Directive] = []
        for child in directive.block or ():
            if (reason := _NO_EFFECT.get(child.name)) is not None:
                problems.warn(f'<system> "{child.name}" has no effect: {reason}', child.place)
            elif (instead := _REFUSED.get(child.name)) is not None and not _is_off(child):
                problems.error(f'<system> "{child.name}" is not supported', child.place, hint=instead)
            elif child.name not in _REFUSED:
                kept.append(child)
        super().configure(
            Directive(directive.name, directive.args, directive.file, directive.line, block=tuple(kept)), problems
        )

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        if self.workers < 1:
            problems.error('parameter "workers" must be at least 1', self.place_of("workers"))
        if self.workers > MANY_WORKERS:
            problems.error(f'parameter "workers" must be at most {MANY_WORKERS}', self.place_of("workers"))
        for name in ("file_permission", "dir_permission", "umask"):
            value = getattr(self, name)
            if value is not None and (not value or value.strip("01234567")):
                problems.error(f'parameter "{name}" must be octal, such as 0644', self.place_of(name))
        if self.rpc_endpoint is not None and endpoint_of(self.rpc_endpoint) is None:
            problems.error(f'"{self.rpc_endpoint}" is no HOST:PORT', self.place_of("rpc_endpoint"))
        if self.enable_get_dump and self.rpc_endpoint is None:
            problems.warn("enable_get_dump without rpc_endpoint has no effect", self.place_of("enable_get_dump"))

    def apply(self, settings: Settings) -> None:
        """Change what the process told the pipeline."""
        settings.workers = max(settings.workers, self.workers)
        settings.root_dir = self.root_dir or settings.root_dir
        settings.log_level = self.log_level or settings.log_level
        settings.file_mode = mode_of(self.file_permission) or settings.file_mode
        settings.dir_mode = mode_of(self.dir_permission) or settings.dir_mode
        self.dead_letter.apply(settings)
        settings.size_metrics = self.enable_size_metrics
        settings.emit_error_log_interval = self.emit_error_log_interval


def _is_off(directive: Directive) -> bool:
    """Whether a parameter asks for nothing."""
    value: Any = directive.values[0] if directive.values else directive.args[0] if directive.args else ""
    return directive.block is None and str(value).lower() in {"false", "no"}


def endpoint_of(text: str) -> tuple[str, int] | None:
    """Host and port, or None."""
    match = _ENDPOINT.fullmatch(text)
    return (match[1], int(match[2])) if match is not None and int(match[2]) < 65536 else None


def metrics_address(text: str) -> tuple[str, int] | None:
    """Host and port of [HOST:]PORT, or None; without a host this machine alone can connect."""
    return endpoint_of(text if ":" in text else f"127.0.0.1:{text}")


def mode_of(text: str | None) -> int | None:
    """Return the mode that an octal text is, or None."""
    try:
        mode = int(text or "", 8)
    except ValueError:
        return None
    return mode if 0 < mode <= 0o7777 else None
