"""Parser `apache2` (docs.fluentd.org, Parser Plugins, apache2): Apache's access log, common or combined."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.ruby_regexp import compile_ruby
from headrace.plugins.casts import to_integer
from headrace.plugins.parsing import ParserError, make_time_parser
from headrace.plugins.pattern_parser import PatternParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.plugins.pattern_parser import One

_EXACT: Final = compile_ruby(
    r'^(?<host>[^ ]*) [^ ]* (?<user>[^ ]*) \[(?<time>[^\]]*)\] "(?<method>\S+)'
    r'(?: +(?<path>(?:[^\"]|\\")*?)(?: +\S*)?)?" (?<code>[^ ]*) (?<size>[^ ]*)'
    r'(?: "(?<referer>(?:[^\"]|\\")*)" "(?<agent>(?:[^\"]|\\")*)")?$'
)
_QUICK: Final = re.compile(
    r'([^ \n]*) [^ \n]* ([^ \n]*) \[([^\]\n]*)\] "([^\s"\\]+)'
    r'(?: ([^ "\\\n]*)(?: [^\s"\\]*)?)" ([^ "\n]*) ([^ "\n]*)'
    r'(?: "([^"\\\n]*)" "([^"\\\n]*)")?'
)
"""Lines with a path, without an escape, or a quote or space where none belongs: the same groups, without steps back."""
_OWN: Final = "this parser has its own way to read the time"


class Apache2Parser(PatternParser):
    """Reads lines of Apache's access log. A "-" is null, code and size are integers."""

    time_key = PatternParser.time_key.with_default("time")
    time_type = PatternParser.time_type.with_default("string")
    time_format = PatternParser.time_format.with_default("%d/%b/%Y:%H:%M:%S %z")

    def validate(self, problems: Problems) -> None:
        """Say what has no effect: the format of the time belongs to the parser, as in Fluentd."""
        for key in ("time_key", "time_type", "time_format", "time_format_fallbacks", "estimate_current_event"):
            if self.directive and any(self.directive.children(key)):
                problems.warn(f'parameter "{key}" has no effect with apache2', self.place_of(key), hint=_OWN)
        for name in ("time_key", "time_type", "time_format", "time_format_fallbacks"):
            self.__dict__.pop(name, None)
        super().validate(problems)

    def one(self) -> One:
        """Everything that a line needs, bound once."""
        quick, exact, keep = _QUICK.fullmatch, _EXACT.search, self.keep_time_key
        convert = self._convert if self._converts else None
        time_of = make_time_parser("string", self.time_format, self.zone, self._now)
        codes: dict[str, int | None] = {}

        def code_of(text: str) -> int | None:
            if len(codes) > 1000:
                codes.clear()
            found = codes[text] = to_integer(text) or None
            return found

        def read(text: bytes) -> tuple[int | None, Record] | None:
            line = text.decode("utf-8", "surrogateescape")
            match = quick(line) or exact(line)
            if match is None:
                return None
            host, user, at, method, path, code, size, referer, agent = match.groups()
            try:
                moment = time_of(at)
            except ValueError as error:
                raise ParserError(f"invalid time: {error}") from error
            record: dict[str, Any] = {
                "host": None if host == "-" else host,
                "user": None if user == "-" else user,
                "method": method,
                "path": path,
                "code": codes[code] if code in codes else code_of(code),
                "size": None if size == "-" else int(size) if size.isdecimal() and size.isascii() else to_integer(size),
                "referer": None if referer == "-" else referer,
                "agent": None if agent == "-" else agent,
            }
            if keep:
                record["time"] = at
            if convert is not None:
                convert(record)
            return moment, record

        return read
