"""`headrace`: the flags of all commands, and who runs them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from headrace import errors
from headrace.commands import binlog, buffers, ca, cat, dlq, tap, test, top
from headrace.commands.helping import add_examples, overview, summaries
from headrace.version import FLUENTD_VERSION, NGINX_VERSION, NGX_LUA_VERSION, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.topology.options import Options

_MODULES: Final[dict[str, Any]] = {
    "ca": ca,
    "cat": cat,
    "buffers": buffers,
    "dlq": dlq,
    "binlog": binlog,
    "tap": tap,
    "test": test,
    "top": top,
}
"""Commands that declare their own flags: `add(parser)`, and `run(flags)` -> exit status."""


def parser() -> argparse.ArgumentParser:
    """The flags of all commands."""
    made = argparse.ArgumentParser(
        prog="headrace",
        description="Run Fluentd pipelines and OpenResty gateways, apart or together.",
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=_versions(), help="show versions")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True, help="one of those below")
    told = summaries()
    parsers = {name: commands.add_parser(name, description=told[name], add_help=name != "cat") for name in told}
    _add_run(parsers["run"])
    check = parsers["check"]
    _add_files(check)
    check.add_argument("--json", action="store_true", help="a JSON list of the findings")
    _add_stats(parsers["stats"])
    plugins = parsers["plugins"]
    plugins.add_argument("name", nargs="?", metavar="KIND:NAME", help="show the parameters of one plugin")
    _add_plugins(plugins)
    for name, module in _MODULES.items():
        module.add(parsers[name])
    for name, command in parsers.items():
        add_examples(name, command)
    return made


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_files(run)
    add = run.add_argument
    add("--single", action="store_true", help="one process: no master, no workers, no reload")
    add("--workers", type=_positive, metavar="N", help="number of workers, over that of the files")
    add("--daemon", action="store_true", help="go into the background once everything serves")
    add("--pid-file", metavar="FILE", help="write the master's process id to FILE")
    add("--user", metavar="USER", help="whom workers become (the master being root)")
    add("--group", metavar="GROUP", help="whose group workers get")
    add("--log", metavar="FILE", help="the pipeline's log (default: standard output)")
    add("--log-level", choices=("trace", "debug", "info", "warn", "error", "fatal"), help="what the pipeline logs")
    add(
        "--watchdog",
        type=_seconds,
        metavar="SECONDS",
        help="replace a worker that is away from its loop for so long (60; 0: never; $HEADRACE_WATCHDOG)",
    )
    add(
        "--metrics",
        metavar="[HOST:]PORT",
        help="answer /metrics (Prometheus) and /_headrace/pools there; HOST is 127.0.0.1 unless named",
    )


def _add_stats(stats: argparse.ArgumentParser) -> None:
    stats.add_argument(
        "pid", nargs="?", type=int, metavar="PID", help="process id of one master (default: all that run)"
    )
    stats.add_argument("--all", action="store_true", dest="everything", help="a line per figure, and those of lanes")
    stats.add_argument("--json", action="store_true", help='everything, as JSON; of several masters in "masters"')
    stats.add_argument("--prometheus", action="store_true", help="text for Prometheus, of one master's workers")
    stats.add_argument("--watch", action="store_true", help="again every second, with what changed")


def _add_files(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("conf", nargs="+", metavar="CONF", help="one fluent.conf, one nginx.conf, or both")
    add("--type", choices=("fluent", "nginx"), help="the language of the file (default: by name and content)")
    add("--prefix", "-p", metavar="DIR", help="the folder of relative paths in the nginx.conf (default: its folder)")
    add("-g", dest="directives", default="", metavar="TEXT", help="main directives for the nginx.conf")
    _add_plugins(command)


def _add_plugins(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--plugin", action="append", default=[], dest="plugins", metavar="DIR", help="folder with plugins (out_x.py)"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError("not negative")
    return seconds


def main(argv: list[str]) -> int:
    """Run one command; the exit status."""
    flags = parser().parse_args(argv)
    try:
        status = _COMMANDS[flags.command](flags)
        sys.stdout.flush()
    except errors.Error as error:
        sys.stderr.write(_plain(f"headrace: {error}\n"))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read what we print has seen enough; the interpreter must not try to print the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def options(flags: argparse.Namespace) -> Options:
    """What the command line means. Raises ConfError for files that do not go together."""
    from headrace.topology.detect import language  # noqa: PLC0415 - `headrace version` starts at once
    from headrace.topology.options import (  # noqa: PLC0415 - likewise
        NGINX,
        GatewayOptions,
        Options,
        PipelineOptions,
        prefix_of,
    )

    if flags.type and len(flags.conf) > 1:
        raise errors.ConfError("--type goes with one file")
    found: dict[str, str] = {}
    for conf in flags.conf:
        kind = flags.type or language(conf)
        if kind in found:
            raise errors.ConfError(f"{found[kind]} and {conf} are both of type {kind}: one of each can run")
        found[kind] = conf
    gateway = None
    if NGINX in found:
        conf = os.path.abspath(found[NGINX])
        prefix = os.path.abspath(flags.prefix) if flags.prefix else prefix_of(conf)
        gateway = GatewayOptions(conf, prefix, flags.directives)
    elif flags.directives or flags.prefix:
        raise errors.ConfError("-g and --prefix go with an nginx.conf")
    pipeline = PipelineOptions(found["fluent"], plugins=tuple(flags.plugins)) if "fluent" in found else None
    if flags.plugins and pipeline is None:
        raise errors.ConfError("--plugin goes with a fluent.conf")
    if flags.command == "check":
        return Options(gateway, pipeline)
    return Options(
        gateway,
        pipeline,
        workers=flags.workers,
        user=flags.user,
        group=flags.group,
        pid_file=os.path.abspath(flags.pid_file) if flags.pid_file else None,
        daemon=flags.daemon or None,
        master=False if flags.single else None,
        watchdog=flags.watchdog,
        metrics=flags.metrics,
        log_path=os.path.abspath(flags.log) if flags.log else None,
        log_level=flags.log_level,
    )


def _run(flags: argparse.Namespace) -> int:
    from headrace.commands.launch import build, serve  # noqa: PLC0415 - as above

    wanted = options(flags)
    plan = build(wanted, _say)
    return 1 if plan is None else serve(plan, wanted)


def _say(level: str, error: errors.ConfError) -> None:
    word = "error" if level == "emerg" else "warning"
    sys.stderr.write(_plain(f"headrace: {word}: {error}\n"))


def _plain(text: str) -> str:
    """Text that any reader of JSON takes: bytes that are not UTF-8 are shown."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _check(flags: argparse.Namespace) -> int:
    from headrace.commands.launch import build  # noqa: PLC0415 - as above

    findings: list[dict[str, Any]] = []

    def collect(level: str, error: errors.ConfError) -> None:
        findings.append(
            {
                "level": "error" if level == "emerg" else "warning",
                "message": _plain(error.message),
                "file": _plain(error.place.file) if error.place else None,
                "line": error.place.line if error.place else None,
                "hint": _plain(error.hint) or None,
            }
        )

    plan = build(options(flags), collect if flags.json else _say, probe=True)
    if flags.json:
        sys.stdout.write(json.dumps(findings, indent=1, ensure_ascii=False) + "\n")
    elif plan is not None:
        sys.stdout.write(f"{' and '.join(flags.conf)}: no errors\n")
    return 1 if plan is None else 0


def _stats(flags: argparse.Namespace) -> int:
    from headrace.commands.stats import prometheus, show, watch  # noqa: PLC0415 - as above

    if flags.prometheus:
        if flags.json or flags.watch or flags.everything:
            raise errors.Error("--prometheus goes with no other flag")
        return prometheus(flags.pid)

    run = watch if flags.watch else show
    return run(flags.pid, as_json=flags.json, everything=flags.everything)


def _plugins(flags: argparse.Namespace) -> int:
    from headrace.commands.plugins import list_all, show  # noqa: PLC0415 - as above
    from headrace.plugins.folder import Folders  # noqa: PLC0415 - likewise

    folders = Folders(flags.plugins)
    return show(flags.name, folders) if flags.name else list_all(folders)


def _version(_flags: argparse.Namespace) -> int:
    sys.stdout.write(_versions() + "\n")
    return 0


def _versions() -> str:
    return (
        f"headrace {VERSION} (Python {sys.version.split()[0]})\n"
        f"behaves like Fluentd {FLUENTD_VERSION}, nginx {NGINX_VERSION}, ngx_lua {NGX_LUA_VERSION}"
    )


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "run": _run,
    "check": _check,
    "stats": _stats,
    "plugins": _plugins,
    "version": _version,
    **{name: module.run for name, module in _MODULES.items()},
}
