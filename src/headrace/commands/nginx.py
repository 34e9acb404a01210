"""`headrace-nginx`: nginx's flags, messages and exit statuses, so that scripts which drive nginx need no change.

https://nginx.org/en/docs/switches.html. Without -p and with /etc/nginx/nginx.conf on the machine the places are
those of Debian's package; with -p, or elsewhere, they are nginx's own: conf/, logs/ below the prefix.
"""

from __future__ import annotations

import os
import platform
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import errors
from headrace.commands.launch import build, serve
from headrace.supervisor import pidfile
from headrace.supervisor.log import NginxLog
from headrace.topology.options import GatewayOptions, Options
from headrace.version import NGINX_VERSION, VERSION

USAGE: Final = """\
Usage: headrace-nginx [-?hvVtTq] [-s signal] [-p prefix]
                      [-e filename] [-c filename] [-g directives]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: {prefix}/)
  -e filename   : set error log file (default: {error_log})
  -c filename   : set configuration file (default: {conf})
  -g directives : set global directives out of configuration file
"""

_WANTS: Final = {
    "p": "directory name",
    "e": "file name",
    "c": "file name",
    "g": "parameter",
    "s": "parameter",
}


@dataclass(frozen=True)
class Places:
    """Where things are when the command line does not say."""

    prefix: str
    conf: str
    error_log: str
    pid: str
    body_temp: str


DEBIAN: Final = Places(
    "/usr/share/nginx", "/etc/nginx/nginx.conf", "/var/log/nginx/error.log", "/run/nginx.pid", "/var/lib/nginx/body"
)
PLAIN: Final = Places("/usr/local/nginx", "conf/nginx.conf", "logs/error.log", "logs/nginx.pid", "client_body_temp")


@dataclass(frozen=True)
class Flags:
    """The command line."""

    values: dict[str, str]
    letters: frozenset[str]


class UsageError(Exception):
    """A command line nginx would refuse; the text is nginx's."""


def parse(argv: list[str]) -> Flags:
    """Read the flags as nginx does: letters may share a dash, a value may follow its letter directly."""
    values: dict[str, str] = {}
    letters: set[str] = set()
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            raise UsageError(f'invalid option: "{word}"')
        rest = word[1:]
        while rest:
            letter, rest = rest[0], rest[1:]
            if letter in "?hvVtTq":
                letters.add(letter)
            elif letter in _WANTS:
                value = rest or next(words, "")
                if not value:
                    raise UsageError(f'option "-{letter}" requires {_WANTS[letter]}')
                if letter == "s" and value not in pidfile.SIGNALS:
                    raise UsageError(f'invalid option: "-s {value}"')
                values[letter] = value
                rest = ""
            else:
                raise UsageError(f'invalid option: "{letter}"')
    return Flags(values, frozenset(letters))


def places(flags: Flags) -> Places:
    """The default places, those of Debian where its nginx.conf is and no prefix is given."""
    if "p" not in flags.values and Path(DEBIAN.conf).exists():
        return DEBIAN
    return PLAIN


def options(flags: Flags) -> Options:
    """What the command line means."""
    default = places(flags)
    prefix = os.path.abspath(flags.values.get("p", default.prefix))
    return Options(
        gateway=GatewayOptions(
            conf=os.path.join(prefix, flags.values.get("c", default.conf)),
            prefix=prefix,
            directives=flags.values.get("g", ""),
            error_log=flags.values.get("e", default.error_log),
            pid_file=os.path.join(prefix, default.pid),
            background=True,
            body_temp=default.body_temp,
        ),
        upgrade_by_hand=True,
    )


def main(argv: list[str]) -> int:
    """Run; the exit status."""
    try:
        flags = parse(argv)
    except UsageError as error:
        _say(str(error))
        return 1
    if flags.letters & set("?hvV"):
        _show(flags)
        return 0
    wanted = options(flags)
    if "s" in flags.values:
        return _signal(wanted, flags.values["s"])
    if flags.letters & set("tT"):
        return _test(wanted, dump="T" in flags.letters, quiet="q" in flags.letters)
    log = _early_log(wanted)

    def tell(level: str, error: errors.ConfError) -> None:
        _say_problem(level, error)
        where = f" in {error.place}" if error.place else ""
        log.write("fatal" if level == "emerg" else level, error.message + where)

    plan = build(wanted, tell)
    if plan is None:
        return 1
    try:
        return serve(plan, wanted)
    except errors.Error as error:
        tell("emerg", errors.ConfError(error.message))
        return 1


def _early_log(wanted: Options) -> NginxLog:
    """The error log of -e or the default one: what goes wrong before the file's own log is known stands there too."""
    assert wanted.gateway is not None
    name = wanted.gateway.error_log or "stderr"
    try:
        path = os.devnull if name in {"stderr", "/dev/stderr"} else os.path.join(wanted.gateway.prefix, name)
        return NginxLog(path)
    except OSError:
        return NginxLog(os.devnull)  # it is on standard error anyway


def _show(flags: Flags) -> None:
    lines = [f"nginx version: nginx/{NGINX_VERSION} (headrace {VERSION})"]
    default = places(flags)
    if flags.letters & set("?h"):
        lines.append(USAGE.format(prefix=default.prefix, error_log=default.error_log, conf=default.conf).rstrip())
    elif "V" in flags.letters:
        from headrace.topology.gateway import families  # noqa: PLC0415 - only -V needs them before a build
        from headrace.topology.modules import configure_arguments  # noqa: PLC0415 - likewise

        modules = configure_arguments(family.specs for family in families())
        lines += [
            f"built by {platform.python_implementation()} {platform.python_version()}",
            f"built with {ssl.OPENSSL_VERSION}",
            "TLS SNI support enabled",
            (
                f"configure arguments: --prefix={default.prefix} --conf-path={default.conf} "
                f"--error-log-path={default.error_log} --pid-path={default.pid} "
                f"--http-client-body-temp-path={default.body_temp} {modules}"
            ),
        ]
    print("\n".join(lines), file=sys.stderr)  # noqa: T201 - where nginx prints it


def _test(wanted: Options, *, dump: bool, quiet: bool) -> int:
    assert wanted.gateway is not None
    conf = wanted.gateway.conf
    plan = build(wanted, _say_problem)
    if plan is None:
        _say(f"configuration file {conf} test failed")
        return 1
    if not quiet:
        _say(f"the configuration file {conf} syntax is ok")
    try:
        plan.test()
    except errors.Error as error:
        _say(f"[emerg] {error}")
        _say(f"configuration file {conf} test failed")
        return 1
    if not quiet:
        _say(f"configuration file {conf} test is successful")
    if dump:
        sys.stdout.write(plan.files.dump())
    return 0


def _signal(wanted: Options, command: str) -> int:
    # Only the pid file's place is needed: a master must be reachable whatever its file has become.
    from headrace.topology.gateway import pid_file_of  # noqa: PLC0415 - a signal needs nothing else of topology

    assert wanted.gateway is not None
    try:
        path = pid_file_of(wanted.gateway)
    except errors.ConfError as error:
        _say_problem("emerg", error)
        return 1
    if command == "reload" and build(wanted, _say_problem) is None:
        return 1  # as in nginx: who asks for it hears what is wrong, and the master is left alone
    try:
        pidfile.send(path, command)
    except errors.Error as error:
        _say(f"[{'alert' if error.kind == 'no_process' else 'error'}] {error}")
        return 1
    return 0


def _say(text: str) -> None:
    print(f"nginx: {text}", file=sys.stderr)  # noqa: T201 - where nginx prints it


def _say_problem(level: str, error: errors.ConfError) -> None:
    where = f" in {error.place}" if error.place else ""
    _say(f"[{level}] {error.message}{where}")
    if error.hint:
        _say(f"[{level}]   ({error.hint})")
