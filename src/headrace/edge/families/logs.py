"""error_log, access_log, log_format.

https://nginx.org/en/docs/http/ngx_http_log_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.edge.accesslog import COMBINED, AccessLog, Format, PathLog, PipelineLog, compile_format
from headrace.edge.families.common import (
    HSL,
    HSLI,
    MAIN_HSL,
    MANY,
    BaseFamily,
    flag,
    flag_of,
    parse_size,
    parse_time,
    refused,
    spec,
    table,
)
from headrace.edge.log import ERR, ErrorLog, LogFile, Logs, parse_level
from headrace.edge.logcache import LogCache
from headrace.edge.memorylog import MemoryLog
from headrace.edge.syslog import SyslogLog, parse_syslog
from headrace.edge.values import compile_value
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

DEFAULT_BUFFER = 65536
_LEVELS = tuple("123456789")


class LogFamily(BaseFamily):
    """Which files get what. logs: all files, to be opened before the workers are forked."""

    specs = table(
        spec("error_log", MAIN_HSL, 1, 2),
        spec("access_log", (*HSLI, "limit_except"), 1, MANY),
        spec("log_format", ("http",), 2, MANY),
        spec("open_log_file_cache", HSL, 1, 4),
        flag("log_subrequest", HSL),
    )

    def __init__(self) -> None:
        self.logs = Logs()
        self._formats: dict[str, Format] = {}
        self._default: dict[str, AccessLog] = {}
        self.buffered: list[AccessLog] = []
        self._by_path: list[tuple[PathLog, Scope]] = []
        self.bridged: list[Directive] = []
        """The access_log directives that name the pipeline."""

    def _do_error_log(self, scope: Scope, directive: Directive) -> None:
        name = directive.args[0]
        if name.startswith("memory:"):
            size = parse_size(name[7:])
            if not size:
                raise ConfError(f'invalid buffer size "{name[7:]}"', directive.place)
            scope.add("error_log", (MemoryLog(size), parse_level(directive.args, directive.place)))
        if name.startswith("syslog:"):
            target = SyslogLog(parse_syslog(name, directive.place))
            scope.add("error_log", (target, parse_level(directive.args, directive.place)))
            return
        scope.add("error_log", (self._file(scope, name), parse_level(directive.args, directive.place)))

    def _file(self, scope: Scope, name: str) -> LogFile:
        return self.logs.file(name if name == "stderr" else scope.build.path(name))

    def error_log(self, scope: Scope, *, at_need: bool = False) -> ErrorLog:
        """The error log in force on a level; without any, logs/error.log at level error.

        at_need: that file is then made when there is something to write to it.
        """
        targets = scope.get("error_log")
        if not targets:
            targets = ((self.logs.file(scope.build.path("logs/error.log"), at_need=at_need), ERR),)
        return ErrorLog(targets)

    def _do_log_format(self, scope: Scope, directive: Directive) -> None:
        name, *texts = directive.args
        if name == "combined" or name in self._formats:
            raise ConfError(f'duplicate "log_format" name "{name}"', directive.place)
        escape = "default"
        if texts[0].startswith("escape="):
            escape = texts.pop(0)[7:]
            if escape not in ("default", "json", "none"):
                raise ConfError(f'unknown log format escaping "{escape}"', directive.place)
        self._formats[name] = compile_format("".join(texts), scope.build.variables, directive.place, escape)

    def _format(self, scope: Scope, name: str, directive: Directive | None) -> Format:
        if name == "combined" and name not in self._formats:
            self._formats[name] = compile_format(COMBINED, scope.build.variables, None)
        found = self._formats.get(name)
        if found is None:
            raise ConfError(f'unknown log format "{name}"', directive.place if directive else None)
        return found

    def _do_access_log(self, scope: Scope, directive: Directive) -> None:
        path, *words = directive.args
        own: list[AccessLog | PathLog | PipelineLog] = scope.settings.setdefault("access_log", [])
        if path == "off":
            if words:
                raise ConfError(f'invalid parameter "{words[0]}"', directive.place)
            own.clear()
            return
        if path.startswith("pipeline:"):
            own.append(self._pipeline_log(scope, directive, words))
            return
        name = words.pop(0) if words and "=" not in words[0] else "combined"
        line = self._format(scope, name, directive)
        options = self._options(scope, directive, words)
        if "$" in path and not path.startswith("syslog:"):
            if "buffer" in options:
                raise ConfError("buffered logs cannot have variables in name", directive.place)
            where = compile_value(scope.build.path(path), scope.build.variables, directive.place)
            made = PathLog(where, line, **options)
            self._by_path.append((made, scope))
            own.append(made)
            return
        syslog = path.startswith("syslog:")
        if syslog and "buffer" in options:
            raise ConfError("logs to syslog cannot be buffered", directive.place)
        file = SyslogLog(parse_syslog(path, directive.place)) if syslog else self._file(scope, path)
        log = AccessLog(file, line, **options)
        if log.buffer:
            self.buffered.append(log)
        own.append(log)

    def _pipeline_log(self, scope: Scope, directive: Directive, words: list[str]) -> PipelineLog:
        tag = directive.args[0].partition(":")[2]
        if not tag:
            raise ConfError(f'no tag in "{directive.args[0]}" of "access_log"', directive.place)
        line = self._format(scope, words.pop(0), directive) if words and "=" not in words[0] else None
        options = self._options(scope, directive, words)
        if "buffer" in options:
            raise refused(directive, 'access_log to the pipeline with "buffer"')
        self.bridged.append(directive)
        return PipelineLog(tag, line, **options)

    @staticmethod
    def _options(scope: Scope, directive: Directive, words: list[str]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name == "if":
                options["condition"] = compile_value(value, scope.build.variables, directive.place)
            elif name == "buffer":
                options["buffer"] = parse_size(value)
                if not options["buffer"]:
                    raise ConfError(f'invalid buffer size "{value}"', directive.place)
            elif name == "flush":
                options["flush"] = parse_time(value)
                if not options["flush"]:
                    raise ConfError(f'invalid flush time "{value}"', directive.place)
            elif name == "gzip":
                options["gzip"] = int(value or 1) if (value or "1") in _LEVELS else 0
                if not options["gzip"]:
                    raise ConfError(f'invalid compression level "{value}"', directive.place)
                options.setdefault("buffer", DEFAULT_BUFFER)
            else:
                raise ConfError(f'invalid parameter "{word}"', directive.place)
        if "flush" in options and "buffer" not in options:
            raise ConfError(f'no buffer is defined for access_log "{directive.args[0]}"', directive.place)
        return options

    @staticmethod
    def _do_open_log_file_cache(scope: Scope, directive: Directive) -> None:
        if directive.args == ("off",):
            scope.set_once(directive, None)
            return
        values: dict[str, Any] = {}
        for word in directive.args:
            name, _, text = word.partition("=")
            key = {"max": "most", "min_uses": "least", "inactive": "inactive", "valid": "valid"}.get(name)
            value = parse_time(text) if name in ("inactive", "valid") else int(text) if text.isdigit() else None
            if key is None or not value:
                raise ConfError(f'invalid "open_log_file_cache" parameter "{word}"', directive.place)
            values[key] = value
        if "most" not in values:
            raise ConfError('"open_log_file_cache" must have "max" parameter', directive.place)
        scope.set_once(directive, LogCache(**values))

    @staticmethod
    def _do_log_subrequest(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Set the error log and the access logs in force."""
        for made, at in self._by_path:
            made.cache = at.get("open_log_file_cache")
        location.log_subrequest = scope.get("log_subrequest", False)
        location.error_log = self.error_log(scope)
        logs: list[AccessLog | PathLog | PipelineLog] | None = scope.get("access_log")
        if logs is None:
            path = scope.build.path("logs/access.log")
            if path not in self._default:
                self._default[path] = AccessLog(self.logs.file(path), self._format(scope, "combined", None))
            logs = [self._default[path]]
        for log in logs:
            location.add_log(log.log)
