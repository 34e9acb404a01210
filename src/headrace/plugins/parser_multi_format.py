"""Parser `multi_format` (github.com/repeatedly/fluent-plugin-multi-format-parser): the first parser that can."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.conf.params import literal_of, raw_section, reserved, string
from headrace.conf.tree import Directive
from headrace.pipeline.plugin import Parser
from headrace.plugins.parsing import ParserError

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.plugins.parsing import Parsed


class MultiFormatParser(Parser):
    """Tries parsers in turn. One that gives no time does not count, as one that does not match."""

    format_key = string(default=None, doc="Field for the name of the format that matched")
    patterns = raw_section(
        name="pattern", multi=True, doc="A parser: format TYPE, or @type, and its parameters; format_name is its name"
    )
    formats = raw_section(name="format", multi=True, doc="The same under an older name")

    @classmethod
    def hint_for(cls, name: str) -> str:
        """Parameters of parsers stand in the sections."""
        return "parameters of a parser stand in its <pattern> section"

    def validate(self, problems: Problems) -> None:
        """Something must be there to try."""
        super().validate(problems)
        if not (self.patterns or self.formats):
            problems.error("a <pattern> section is required", self.place)

    def provision(self, context: Context) -> None:
        """Make the parsers, in the order of their sections."""
        sections = [
            child for child in (self.directive.block if self.directive else None) or () if child.block is not None
        ]
        self._parsers: list[tuple[str, Parser]] = []
        for index, section in enumerate(sections):
            name = _given(section, "format_name")
            kind = reserved(section, "@type") or _given(section, "format")
            if kind is None:
                context.problems.error(f"<{section.name}> needs a format", section.place)
                continue
            given = kind
            left = tuple(
                child
                for child in section.block or ()
                if child.name not in {"format_name", "format"} or child.block is not None
            )
            if len(kind) > 1 and kind[0] == kind[-1] == "/":
                expression = Directive("expression", (kind,), section.file, section.line, values=(kind,))
                kind, left = "regexp", (*left, expression)
            made: Parser | None = context.make("parser", replace(section, block=left), default_type=kind)
            if made is not None:
                self._parsers.append((name or f"{given}#{index}", made))

    def parse(self, text: bytes) -> Parsed:
        """Parse by the first that can."""
        for name, parser in self._parsers:
            try:
                for time, record in parser.parse(text):
                    if time is not None and record is not None:
                        if self.format_key is not None:
                            record[self.format_key] = name
                        return [(time, record)]
            except ParserError:
                continue
        return [(None, None)]


def _given(section: Directive, name: str) -> str | None:
    found = [child for child in section.children(name) if child.block is None]
    return str(literal_of(found[-1])) if found else None
