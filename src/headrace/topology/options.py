"""What a command line says about a run; the configuration files say the rest.

A value of None means: as the configuration says, or its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.supervisor.rotation import Rotation

FLUENT: Final = "fluent"
NGINX: Final = "nginx"


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """conf: path of the nginx.conf. prefix: the folder of relative paths (nginx -p).

    directives: text of -g. error_log: the log where the file names none (-e). pid_file: the default path.
    background: whether the process goes into the background where the file does not say (nginx's default).
    body_temp: the folder of request bodies that do not stay in memory, where the file names none.
    """

    conf: str
    prefix: str
    directives: str = ""
    error_log: str | None = None
    pid_file: str | None = None
    background: bool = False
    body_temp: str = "client_body_temp"


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """conf: path of the fluent.conf. inline: text that is appended to it (fluentd -i). sources: whether they start.

    plugins: folders with plugins; default_plugins: one that may be missing. include_dir: a folder of further
    configuration files, which may be missing. system: parameters of <system> that the command line gives. yaml: whether
    the file is YAML; None: as its name ends.
    """

    conf: str
    inline: str | None = None
    sources: bool = True
    plugins: tuple[str, ...] = ()
    default_plugins: str | None = None
    include_dir: str | None = None
    system: Mapping[str, str] = field(default_factory=dict)
    yaml: bool | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """One run. log_path, log_level, log_rotation: of the engine's own log (Fluentd's form).

    metrics: [HOST:]PORT of the listener for figures. watchdog: seconds, 0 is off. upgrade_by_hand: USR2 works as in
    nginx.
    """

    gateway: GatewayOptions | None = None
    pipeline: PipelineOptions | None = None
    workers: int | None = None
    user: str | None = None
    group: str | None = None
    pid_file: str | None = None
    daemon: bool | None = None
    master: bool | None = None
    watchdog: float | None = None
    metrics: str | None = None
    log_path: str | None = None
    log_level: str | None = None
    log_rotation: Rotation | None = None
    unknown_is_error: bool = True
    upgrade_by_hand: bool = False


def prefix_of(conf: str) -> str:
    """The prefix that goes with an nginx.conf when none is given.

    The folder of the file; its parent when the folder is called "conf", as in nginx's own layout.
    """
    folder = Path(conf).resolve().parent
    return str(folder.parent if folder.name == "conf" else folder)
