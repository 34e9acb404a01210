"""Parser `regexp` (docs.fluentd.org, Parser Plugins, regexp): the named groups of a pattern are the fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import boolean, literal_of, regexp
from headrace.conf.ruby_regexp import compile_ruby, group_names
from headrace.plugins.pattern_parser import PatternParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.plugins.pattern_parser import One


class RegexpParser(PatternParser):
    """Reads by a pattern. A group that takes no part in the match is left out."""

    expression = regexp(doc="The pattern, in Ruby's syntax, with named groups")
    ignorecase = boolean(default=False, deprecated="write /pattern/i", doc="Upper and lower case are the same")
    multiline = boolean(default=False, deprecated="write /pattern/m", doc="A dot matches a newline too")
    time_key = PatternParser.time_key.with_default("time")

    quick: ClassVar[re.Pattern[str] | None] = None
    """For the built-in pattern of a subclass: one that knows only its usual lines, and reads them alike."""

    def validate(self, problems: Problems) -> None:
        """Compile the pattern with the old flags."""
        self._pattern = self.expression
        given = list(self.directive.children("expression")) if self.directive else []
        if (self.ignorecase or self.multiline) and given:
            text = str(literal_of(given[-1]))
            body = text[1 : text.rfind("/")] if text.startswith("/") else text
            self._pattern = compile_ruby(body, "i" * self.ignorecase + "m" * self.multiline)
        if given:
            self.__dict__["quick"] = None
        self._names = tuple(name for name, _ in group_names(self._pattern))
        if not self._names:
            problems.error(
                'parameter "expression" has no named group', self.place_of("expression"), hint="(?<name>...)"
            )
            return
        super().validate(problems)

    def one(self) -> One:
        """Everything that a line needs, bound once. With named groups there are no others in Ruby."""
        search, names, event = self._pattern.search, self._names, self.event
        quick = self.quick.fullmatch if self.quick is not None else None

        def read(text: bytes) -> tuple[int | None, Record] | None:
            line = text.decode("utf-8", "surrogateescape")
            match = (quick is not None and quick(line)) or search(line)
            if not match:
                return None
            values = match.groups()
            pairs = zip(names, values, strict=True)
            return event({name: value for name, value in pairs if value is not None} if None in values else dict(pairs))

        return read
