"""The <system> section (docs.fluentd.org, Deployment, System Configuration).

What is built is declared here; what has no meaning here is accepted with a warning that says so; all other
parameters of Fluentd are refused by name, with what to do instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, boolean, enum, integer, string
from headrace.conf.tree import Directive
from headrace.pipeline.plugin import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Settings

_NO_EFFECT: Final[Mapping[str, str]] = {
    "suppress_config_dump": "the configuration is never dumped",
    "suppress_repeated_stacktrace": "repeated lines are held back anyway",
    "ignore_repeated_log_interval": "repeated lines are held back anyway",
    "ignore_same_log_interval": "repeated lines are held back anyway",
    "emit_error_log_interval": "repeated lines are held back anyway",
    "enable_msgpack_time_support": "it is always on",
    "enable_input_metrics": "figures are always kept",
    "enable_size_metrics": "figures are always kept",
    "enable_jit": "there is no Ruby here",
    "disable_shared_socket": "plugins share sockets as they need",
}
_REFUSED: Final[Mapping[str, str]] = {
    "rpc_endpoint": "use signals, or `headrace stats`",
    "enable_get_dump": "use `headrace check`",
    "restart_worker_interval": "a dead worker is restarted at once, more slowly when it dies again",
    "log_event_verbose": "log events hold the message only",
    "strict_config_value": "a value of the wrong type is always an error",
    "counter_server": "counters of workers are shared without a server",
    "counter_client": "counters of workers are shared without a server",
    "metrics": "figures are always kept; `headrace stats` shows them",
    "log": "the log is text; -o, --log-rotate-age and --log-rotate-size of headrace-fluentd say where and how long",
}


MANY_WORKERS: Final = 1024


class SystemSection(Configurable):
    """What the whole process does."""

    workers = integer(default=1, doc="Worker processes")
    root_dir = string(default=None, doc="Folder for the data of plugins that have an @id")
    log_level = enum(tuple(LEVELS), default=None, doc="What is logged")
    process_name = string(default=None, doc="Name of the process")
    without_source = boolean(default=False, doc="Start without sources, to empty the buffers")
    file_permission = string(default=None, doc="Octal mode of files that are made")
    dir_permission = string(default=None, doc="Octal mode of folders that are made")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Fill the values; say what has no effect, refuse what is not built."""
        kept: list[Directive] = []
        for child in directive.block or ():
            if (reason := _NO_EFFECT.get(child.name)) is not None:
                problems.warn(f'<system> "{child.name}" has no effect: {reason}', child.place)
            elif (instead := _REFUSED.get(child.name)) is not None:
                problems.error(f'<system> "{child.name}" is not supported', child.place, hint=instead)
            else:
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
        for name in ("file_permission", "dir_permission"):
            value = getattr(self, name)
            if value is not None and mode_of(value) is None:
                problems.error(f'parameter "{name}" must be octal, such as 0644', self.place_of(name))

    def apply(self, settings: Settings) -> None:
        """Change what the process told the pipeline."""
        settings.workers = max(settings.workers, self.workers)
        settings.root_dir = self.root_dir or settings.root_dir
        settings.log_level = self.log_level or settings.log_level
        settings.file_mode = mode_of(self.file_permission) or settings.file_mode
        settings.dir_mode = mode_of(self.dir_permission) or settings.dir_mode


def mode_of(text: str | None) -> int | None:
    """Return the mode that an octal text is, or None."""
    try:
        mode = int(text or "", 8)
    except ValueError:
        return None
    return mode if 0 < mode <= 0o7777 else None
