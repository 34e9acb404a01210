"""Parser `regexp` (docs.fluentd.org, Parser Plugins, regexp): the named groups of a pattern are the fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.conf.params import boolean, regexp
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.plugins.parsing import Parsed


class RegexpParser(RecordParser):
    """Reads by a pattern. A group that takes no part in the match is left out."""

    expression = regexp(doc="The pattern, in Ruby's syntax, with named groups")
    ignorecase = boolean(default=False, deprecated="write /pattern/i", doc="Upper and lower case are the same")
    multiline = boolean(default=False, deprecated="write /pattern/m", doc="A dot matches a newline too")
    time_key = RecordParser.time_key.with_default("time")

    def validate(self, problems: Problems) -> None:
        """Compile the pattern with the old flags."""
        super().validate(problems)
        flags = (re.IGNORECASE if self.ignorecase else 0) | (re.DOTALL if self.multiline else 0)
        self._pattern = re.compile(self.expression.pattern, self.expression.flags | flags)
        if not self._pattern.groupindex:
            problems.error(
                'parameter "expression" has no named group', self.place_of("expression"), hint="(?<name>...)"
            )

    def read(self, text: bytes) -> Parsed:
        """Parse one text."""
        match = self._pattern.search(text.decode("utf-8", "surrogateescape"))
        if match is None:
            return [(None, None)]
        return [self.event({name: value for name, value in match.groupdict().items() if value is not None})]
