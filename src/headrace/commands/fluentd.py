"""`headrace-fluentd`: fluentd's flags, so that service files and images which start fluentd need no change.

https://docs.fluentd.org/deployment/command-line-option. A flag whose effect is always so, or which only makes sense for
a Ruby program, is accepted with a warning that says what is so; one that asks for something else is refused with a
reason. An unknown parameter in the configuration is a warning here, as in Fluentd.
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
from headrace.supervisor.rotation import KEEP, PERIODS, SIZE, Rotation
from headrace.topology.options import Options, PipelineOptions
from headrace.version import FLUENTD_VERSION, VERSION

DEFAULT_CONF: Final = "/etc/fluent/fluent.conf"

DEFAULT_PLUGINS: Final = "/etc/fluent/plugin"

_RUBY: Final = "headrace runs no Ruby: gems are not used"
_REFUSED: Final = {
    "--under-supervisor": "workers are started by the master only",
    "--use-v0-config": "only the v1 format is read; fluentd's own documentation tells how to convert",
    "--with-source-only": "a zero-downtime restart needs no such mode here: send USR2",
}
"""Flag -> why it is refused: ignoring it would do something else than what is asked for."""

DEFAULT_INCLUDES: Final = "/etc/fluent/conf.d"

_FIGURES: Final = "figures are always kept: headrace stats"
_ACCEPTED: Final = {
    "-g": _RUBY,
    "--gemfile": _RUBY,
    "-G": _RUBY,
    "--gem-path": _RUBY,
    "--log-event-verbose": "log events of start and stop are not emitted",
    "--use-v1-config": "the v1 format is the only one",
    "--strict-config-value": "values are always read strictly",
    "--enable-input-metrics": _FIGURES,
    "--disable-input-metrics": _FIGURES,
    "--disable-shared-socket": "workers always share the listeners of the master",
    "-x": "it is for Windows only",
    "--signame": "it is for Windows only",
}
"""Flag -> what is so here whether it is given or not."""

_VALUES: Final = {"-g", "--gemfile", "-G", "--gem-path", "-x", "--signame"}


class _Parser(argparse.ArgumentParser):
    """Ends as fluentd does: usage and the error on standard output, status 1."""

    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stdout)
        print(f"error: {message}")  # noqa: T201 - where fluentd prints it
        sys.exit(1)


class _Refuse(argparse.Action):
    """A flag that asks for what is not built."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object, **_more: object) -> None:
        flag = _rest[-1]
        parser.error(f"{flag} is not supported: {_REFUSED[str(flag)]}")


class _Accept(argparse.Action):
    """A flag that changes nothing here; a warning tells of all of them."""

    def __call__(self, _parser: argparse.ArgumentParser, flags: argparse.Namespace, *rest: object) -> None:
        flags.without_effect.append(f"{rest[-1]} ({_ACCEPTED[str(rest[-1])]})")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = _Parser(prog="headrace-fluentd", allow_abbrev=False, description="Run a fluent.conf.")
    add = made.add_argument
    add("--version", action="version", version=f"fluentd {FLUENTD_VERSION} (headrace {VERSION})")
    add("-s", "--setup", nargs="?", const="", metavar="DIR", help="install a sample configuration file to the folder")
    add("-c", "--config", metavar="PATH", help=f"configuration file (default: $FLUENT_CONF, else {DEFAULT_CONF})")
    add("--dry-run", action="store_true", help="check the configuration and end")
    add("--show-plugin-config", metavar="PLUGIN", help="show the parameters of a plugin and end (input:http)")
    add("-p", "--plugin", action="append", default=[], metavar="DIR", help="folder with plugins (out_x.py)")
    add("-I", action="append", default=[], dest="paths", metavar="PATH", help="folder to import Python modules from")
    add("-r", action="append", default=[], dest="modules", metavar="NAME", help="import a Python module")
    add("-d", "--daemon", metavar="PIDFILE", help="run in the background")
    add("--no-supervisor", "--standalone-worker", action="store_true", help="run as one process")
    add("--workers", type=_positive, metavar="NUM", help="number of workers, over that of <system>")
    add("--user", metavar="USER", help="whom workers become")
    add("--group", metavar="GROUP", help="whose group workers get")
    add("--umask", type=_octal, metavar="UMASK", help="permissions new files never get (octal)")
    add("-o", "--log", metavar="PATH", help="log file (default, and '-': standard output)")
    add("--log-rotate-age", type=_age, metavar="AGE", help=f"log files to keep ({KEEP}), or {', '.join(PERIODS)}")
    add("--log-rotate-size", type=_positive, metavar="BYTES", help=f"size at which the log begins anew ({SIZE})")
    add("-i", "--inline-config", metavar="TEXT", help="text appended to the configuration ('-': standard input)")
    add("--without-source", action="store_true", help="start no source")
    add("--emit-error-log-interval", type=float, metavar="SECONDS", help="between two lines about refused events")
    add("--suppress-repeated-stacktrace", nargs="?", const="true", metavar="VALUE", help="write equal traces once")
    add("--suppress-config-dump", action="store_true", help="do not log the configuration at the start")
    add("--enable-size-metrics", action="store_true", help="count bytes too where monitor_agent counts events")
    add("--config-file-type", choices=("guess", "yaml", "yml"), default="guess", help="format of the file")
    add("--conf-encoding", default="utf-8", metavar="ENCODING", help="encoding of the file (only utf-8)")
    add("-v", "--verbose", action="count", default=0, help="-v: debug, -vv: trace")
    add("-q", "--quiet", action="count", default=0, help="-q: warn, -qq: error")
    for flag in _REFUSED:
        add(flag, action=_Refuse, nargs=0, help=argparse.SUPPRESS)
    made.set_defaults(without_effect=[])
    for flag, reason in _ACCEPTED.items():
        nargs: int | str | None = None if flag in _VALUES else 0
        add(flag, action=_Accept, nargs=nargs, dest="without_effect", metavar="VALUE", help=f"no effect: {reason}")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _age(text: str) -> int | str:
    if text in PERIODS:
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"log-rotate-age should be {', '.join(PERIODS)} or a number")
    return int(text)


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
        from headrace.plugins.folder import Folders  # noqa: PLC0415 - likewise

        try:
            status = show(flags.show_plugin_config, Folders(flags.plugin, optional=[_default_plugins()]))
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough; the interpreter must not try to print the rest at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        return status
    return _run(flags, _options(flags))


def _conf(flags: argparse.Namespace) -> str:
    return flags.config or os.environ.get("FLUENT_CONF") or DEFAULT_CONF


def _default_plugins() -> str:
    return os.environ.get("FLUENT_PLUGIN") or DEFAULT_PLUGINS


def _import(paths: list[str], folders: list[str], modules: list[str]) -> str | None:
    """Import modules, which may lie in a plugin folder; what is wrong, or None."""
    sys.path[:0] = paths
    sys.path += folders
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"-r {module}: {error} (headrace loads Python modules, no Ruby)"
    return None


def _options(flags: argparse.Namespace) -> Options:
    inline = sys.stdin.read() if flags.inline_config == "-" else flags.inline_config
    if inline is not None:
        inline = inline.replace("\\n", "\n")  # as fluentd, for shells in which a line break is hard to write
    return Options(
        pipeline=PipelineOptions(
            _conf(flags),
            inline,
            sources=not flags.without_source,
            plugins=tuple(map(os.path.abspath, flags.plugin)),
            default_plugins=_default_plugins(),
            include_dir=os.environ.get("FLUENT_CONFIG_INCLUDE_DIR") or DEFAULT_INCLUDES,
            system=_system(flags),
            yaml=True if flags.config_file_type != "guess" else None,
        ),
        workers=flags.workers,
        user=flags.user,
        group=flags.group,
        pid_file=os.path.abspath(flags.daemon) if flags.daemon else None,
        daemon=bool(flags.daemon),
        master=not flags.no_supervisor,
        log_path=os.path.abspath(flags.log) if flags.log and flags.log != "-" else None,
        log_rotation=_rotation(flags.log_rotate_age, flags.log_rotate_size),
        log_level=log_level(flags.verbose, flags.quiet),
        unknown_is_error=False,
    )


def _system(flags: argparse.Namespace) -> dict[str, str]:
    """The parameters of <system> that flags give."""
    given: dict[str, str] = {}
    if flags.emit_error_log_interval is not None:
        given["emit_error_log_interval"] = f"{flags.emit_error_log_interval:g}"
    if flags.suppress_repeated_stacktrace is not None:
        given["suppress_repeated_stacktrace"] = flags.suppress_repeated_stacktrace
    if flags.suppress_config_dump:
        given["suppress_config_dump"] = "true"
    if flags.enable_size_metrics:
        given["enable_size_metrics"] = "true"
    if flags.umask is not None:
        given["umask"] = f"{flags.umask:o}"
    return given


def _rotation(age: int | str | None, size: int | None) -> Rotation | None:
    """What the two flags ask for; either alone has the default of the other, and an age of 0 is none."""
    if (age is None and size is None) or age == 0:
        return None
    if isinstance(age, str):
        return Rotation(period=age)
    return Rotation(keep=KEEP if age is None else age, size=size or SIZE)


def _run(flags: argparse.Namespace, options: Options) -> int:
    try:
        if options.log_path:
            Path(options.log_path).parent.mkdir(parents=True, exist_ok=True)
        log = FluentLog(options.log_path, level=options.log_level or "info")
    except OSError as error:
        sys.stderr.write(f"cannot open the log {options.log_path}: {error.strerror}\n")
        return 1

    def say(level: str, error: errors.ConfError) -> None:
        text = f"config error: {error}" if level == "emerg" else str(error)
        log.write("error" if level == "emerg" else "warn", text)

    if flags.without_effect:
        log.write("warn", f"these flags change nothing: {', '.join(flags.without_effect)}")
    if options.log_rotation is not None and options.log_path is None:
        log.write("warn", "--log-rotate-age and --log-rotate-size have no effect without a log file (-o)")
    conf = _conf(flags)
    plan = build(options, say)
    if plan is None:
        return 1
    log.write("info", f'parsing config file is succeeded path="{conf}"')
    if plan.pipeline is not None and not plan.pipeline.system.suppress_config_dump:
        log.write("info", f"using configuration file: {plan.pipeline.text}")
    if flags.dry_run:
        log.write("info", "finished dry run mode")
        return 0
    log.write("info", f"starting headrace-{VERSION} pid={os.getpid()} python={sys.version.split()[0]}")
    try:
        return serve(plan, options)
    except errors.Error as error:
        log.write("error", str(error))
        return 1
