"""`headrace-fluentd`: fluentd's flags, so that service files and images which start fluentd need no change.

https://docs.fluentd.org/deployment/command-line-option. What only makes sense for a Ruby program is refused
with a reason. An unknown parameter in the configuration is a warning here, as in Fluentd.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

from headrace import errors
from headrace.commands.launch import build, serve
from headrace.supervisor.log import LEVELS, FluentLog
from headrace.topology.options import Options, PipelineOptions
from headrace.version import FLUENTD_VERSION, VERSION

DEFAULT_CONF: Final = "/etc/fluent/fluent.conf"

_RUBY: Final = "headrace runs no Ruby"
_REFUSED: Final = {
    "--under-supervisor": "workers are started by the master only",
    "--gemfile": _RUBY,
    "-g": _RUBY,
    "--gem-path": _RUBY,
    "-G": _RUBY,
    "--use-v0-config": "only the v1 format is read; fluentd's own documentation tells how to convert",
    "--log-rotate-age": "rotate by logrotate and send USR1: the log is then opened anew",
    "--log-rotate-size": "rotate by logrotate and send USR1: the log is then opened anew",
    "--log-event-verbose": "log events of start and stop are not emitted",
    "--emit-error-log-interval": "repeated messages are always throttled",
    "--suppress-repeated-stacktrace": "repeated messages are always throttled",
    "--enable-input-metrics": "figures are always on: headrace stats",
    "--enable-size-metrics": "figures are always on: headrace stats",
    "--disable-shared-socket": "workers always share the listeners of the master",
    "--strict-config-value": "values are always read strictly",
    "--with-source-only": "zero-downtime restarts are a reload here: send USR2",
}
"""Flag -> why it is refused."""


class _Parser(argparse.ArgumentParser):
    """Ends as fluentd does: usage and the error on standard output, status 1."""

    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stdout)
        print(f"error: {message}")  # noqa: T201 - where fluentd prints it
        sys.exit(1)


class _Refuse(argparse.Action):
    """A flag that exists in fluentd and means nothing here."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object, **_more: object) -> None:
        flag = _rest[-1]
        parser.error(f"{flag} is not supported: {_REFUSED[str(flag)]}")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = _Parser(prog="headrace-fluentd", allow_abbrev=False, description="Run a fluent.conf.")
    add = made.add_argument
    add("--version", action="version", version=f"fluentd {FLUENTD_VERSION} (headrace {VERSION})")
    add("-s", "--setup", nargs="?", const="", metavar="DIR", help="install a sample configuration file to the folder")
    add("-c", "--config", metavar="PATH", help=f"configuration file (default: $FLUENT_CONF, else {DEFAULT_CONF})")
    add("--dry-run", action="store_true", help="check the configuration and end")
    add("--show-plugin-config", metavar="PLUGIN", help="show the parameters of a plugin and end (input:http)")
    add("-p", "--plugin", action="append", default=[], metavar="DIR", help="folder with plugins (Python packages)")
    add("-I", action="append", default=[], dest="paths", metavar="PATH", help="folder to import Python modules from")
    add("-r", action="append", default=[], dest="modules", metavar="NAME", help="import a Python module")
    add("-d", "--daemon", metavar="PIDFILE", help="run in the background")
    add("--no-supervisor", action="store_true", help="run as one process")
    add("--workers", type=_positive, metavar="NUM", help="number of workers, over that of <system>")
    add("--user", metavar="USER", help="whom workers become")
    add("--group", metavar="GROUP", help="whose group workers get")
    add("--umask", type=_octal, metavar="UMASK", help="permissions new files never get (octal)")
    add("-o", "--log", metavar="PATH", help="log file (default: standard output)")
    add("-i", "--inline-config", metavar="TEXT", help="text appended to the configuration ('-': standard input)")
    add("--without-source", action="store_true", help="start no source")
    add("--config-file-type", choices=("guess", "yaml", "yml"), default="guess", help="format of the file (not yaml)")
    add("--use-v1-config", action="store_true", help="read the v1 format (always so)")
    add("--suppress-config-dump", action="store_true", help="do not print the configuration (never done)")
    add("--conf-encoding", default="utf-8", metavar="ENCODING", help="encoding of the file (only utf-8)")
    add("-v", "--verbose", action="count", default=0, help="-v: debug, -vv: trace")
    add("-q", "--quiet", action="count", default=0, help="-q: warn, -qq: error")
    for flag in _REFUSED:
        if flag.startswith("--with-") or flag == "--strict-config-value" or not _takes_value(flag):
            add(flag, action=_Refuse, nargs=0, help=argparse.SUPPRESS)
        else:
            add(flag, action=_Refuse, nargs="?", help=argparse.SUPPRESS)
    return made


def _takes_value(flag: str) -> bool:
    return flag.startswith(("-g", "-G", "--gem", "--log-rotate", "--emit", "--suppress-rep"))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _octal(text: str) -> int:
    return int(text, 8)


def log_level(verbose: int, quiet: int) -> str | None:
    """The level of -v and -q; None when neither is given."""
    if not verbose and not quiet:
        return None
    position = LEVELS.index("info") - verbose + quiet
    return LEVELS[min(max(position, 0), LEVELS.index("error"))]


def main(argv: list[str]) -> int:
    """Run; the exit status."""
    made = parser()
    flags = made.parse_args(argv)
    if flags.setup is not None:
        from headrace.commands.setup import install  # noqa: PLC0415 - needed once in a lifetime

        return install(flags.setup or str(Path(_conf(flags)).parent))
    if flags.config_file_type != "guess":
        made.error("YAML configurations are not supported: write the v1 format")
    if flags.conf_encoding.lower().replace("_", "-") not in {"utf-8", "utf8"}:
        made.error("--conf-encoding: only utf-8 is supported")
    if flags.no_supervisor and (flags.workers or 1) > 1:
        print("Error: multi workers is not supported with --no-supervisor")  # noqa: T201 - where fluentd prints it
        return 2
    if flags.umask is not None:
        os.umask(flags.umask)
    problem = _import(flags.paths, flags.plugin, flags.modules)
    if problem:
        made.error(problem)
    if flags.show_plugin_config:
        from headrace.commands.plugins import show  # noqa: PLC0415 - not needed to run

        return show(flags.show_plugin_config)
    return _run(flags, _options(flags))


def _conf(flags: argparse.Namespace) -> str:
    return flags.config or os.environ.get("FLUENT_CONF") or DEFAULT_CONF


def _import(paths: list[str], folders: list[str], modules: list[str]) -> str | None:
    """Make plugins of folders and modules known; what is wrong, or None."""
    sys.path[:0] = paths
    for folder in folders:
        found = sorted(Path(folder).glob("*.rb")) if Path(folder).is_dir() else []
        if found:
            return f"-p {folder}: {found[0].name} is Ruby, and {_RUBY}; headrace's plugins are Python packages"
        sys.path.insert(0, folder)
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"-r {module}: {error}"
    return None


def _options(flags: argparse.Namespace) -> Options:
    inline = sys.stdin.read() if flags.inline_config == "-" else flags.inline_config
    return Options(
        pipeline=PipelineOptions(_conf(flags), inline, sources=not flags.without_source),
        workers=flags.workers,
        user=flags.user,
        group=flags.group,
        pid_file=os.path.abspath(flags.daemon) if flags.daemon else None,
        daemon=bool(flags.daemon),
        master=not flags.no_supervisor,
        log_path=os.path.abspath(flags.log) if flags.log else None,
        log_level=log_level(flags.verbose, flags.quiet),
        unknown_is_error=False,
    )


def _run(flags: argparse.Namespace, options: Options) -> int:
    try:
        log = FluentLog(options.log_path, level=options.log_level or "info")
    except OSError as error:
        sys.stderr.write(f"cannot open the log {options.log_path}: {error.strerror}\n")
        return 1

    def say(level: str, error: errors.ConfError) -> None:
        text = f"config error: {error}" if level == "emerg" else str(error)
        log.write("error" if level == "emerg" else "warn", text)

    conf = _conf(flags)
    plan = build(options, say)
    if plan is None:
        return 1
    log.write("info", f'parsing config file is succeeded path="{conf}"')
    if flags.dry_run:
        log.write("info", "finished dry run mode")
        return 0
    log.write("info", f"starting headrace-{VERSION} pid={os.getpid()} python={sys.version.split()[0]}")
    try:
        return serve(plan, options)
    except errors.Error as error:
        log.write("error", str(error))
        return 1
