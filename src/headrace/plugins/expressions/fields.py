"""The values of a <record> section -> pieces of a program: texts with `${...}`, arrays and hashes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import literal_of
from headrace.conf.values import USE_DEFAULT, from_json
from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_collections import dig, slice_list
from headrace.plugins.expressions.ruby_emit import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.errors import Place
    from headrace.plugins.expressions.variables import Program

PLAIN: Final = "plain"
RUBY: Final = "ruby"
PYTHON: Final = "python"

_PLACEHOLDER: Final = re.compile(r"\$\{[^}]+\}|__[A-Z_]+__")
_TAG_PART: Final = re.compile(r"(tag_parts|tag_prefix|tag_suffix)\[(-?\d{1,4})\]")
_RECORD: Final = re.compile(r"""record((?:\[(?:"[^"]*"|'[^']*'|-?\d{1,6})\])+)""")
_DIG: Final = re.compile(
    r"""record\.dig\(\s*((?:"[^"]*"|'[^']*'|-?\d{1,6})(?:\s*,\s*(?:"[^"]*"|'[^']*'|-?\d{1,6}))*)\s*\)"""
)
_STEP: Final = re.compile(r"""\[?(?:"([^"]*)"|'([^']*)'|(-?\d+))\]?\s*,?\s*""")


class Fields:
    """Reads fields into a program. typecast: a value that is one placeholder keeps its type."""

    def __init__(self, program: Program, problems: Problems, language: str, *, typecast: bool) -> None:
        self.program = program
        self.problems = problems
        self.language = language
        self.typecast = typecast

    def lines(self, sections: list[Directive], target: str = "new") -> Iterator[str]:
        """The lines that set the fields of <record> sections; what is wrong goes to problems."""
        for section in sections:
            for child in section.block or ():
                if child.block is not None:
                    self.problems.unknown(f"unknown section <{child.name}>", child.place)
                    continue
                try:
                    key = self.program.use(self.key(child.name, child.place))
                    value = self.program.use(self.value(self.parsed(literal_of(child)), child.place))
                except Refused as error:
                    where = f", at character {error.at + 1}" if error.at >= 0 else ""
                    self.problems.error(f'field "{child.name}": {error.message}{where}', child.place, hint=error.hint)
                    continue
                yield f"{target}[{key}] = {value}"

    @staticmethod
    def parsed(literal: object) -> object:
        """JSON in quotes is JSON as well. Raises Refused."""
        if literal is USE_DEFAULT:
            raise Refused("use_default means nothing here: a field has no default")
        if isinstance(literal, str) and literal.startswith(("{", "[")):
            try:
                found: object = from_json(literal)
            except ValueError:
                return literal
            return found
        return literal

    def key(self, text: str, place: Place) -> Piece:
        """A field's name, which may have placeholders."""
        return self.program.text(self.text(text, place, keep=False)) if "${" in text else self.program.constant(text)

    def value(self, value: Any, place: Place) -> Piece:
        """A field's value."""
        if isinstance(value, str):
            return self.text(value, place, keep=self.typecast)
        if isinstance(value, dict):
            inner = [f"{self.key(key, place).code}: {self.value(item, place).code}" for key, item in value.items()]
            return Piece("{" + ", ".join(inner) + "}")
        if isinstance(value, list):
            return Piece(f"[{', '.join([self.value(item, place).code for item in value])}]")
        return self.program.constant(value)

    def text(self, text: str, place: Place, *, keep: bool) -> Piece:
        """A text with placeholders. keep: the type of one that stands alone."""
        if self.language == RUBY:
            if keep and text.count("${") == 1 and text.startswith("${") and text.endswith("}"):
                return self.program.ruby(text[2:-1])
            return self.program.ruby_text(text.replace("${", "#{"))
        split = self._python if self.language == PYTHON else self._plain
        pieces = list(split(text, place))
        if len(pieces) == 1 and (keep or pieces[0].text is not None):
            return pieces[0]
        return self.program.joined(pieces) if pieces else self.program.constant("")

    def _plain(self, text: str, place: Place) -> Iterator[Piece]:
        at = 0
        for match in _PLACEHOLDER.finditer(text):
            if match.start() > at:
                yield self.program.constant(text[at : match.start()])
            at = match.end()
            found = self.placeholder(match[0][2:-1]) if match[0].startswith("$") else None
            if found is None:
                hint = "it is empty: set enable_ruby true for an expression" if match[0][0] == "$" else "it is empty"
                self.problems.warn(f"unknown placeholder {match[0]}", place, hint=hint)
            yield found if found is not None else Piece("None", fixed=True)
        if at < len(text):
            yield self.program.constant(text[at:])

    def placeholder(self, name: str) -> Piece | None:
        """What may stand in ${} without enable_ruby."""
        program = self.program
        if name == "time":
            return program.moment_text()
        if name in {"tag", "hostname", "worker_id"}:
            return program.variables[name]
        if match := _TAG_PART.fullmatch(name):
            function = program.space.function(slice_list)
            return Piece(f"{function}({match[1]}, {int(match[2])})", fixed=True)
        if match := _RECORD.fullmatch(name) or _DIG.fullmatch(name):
            steps: list[object] = [
                int(number) if number else double or single for double, single, number in _STEP.findall(match[1])
            ]
            if isinstance(steps[0], int):
                return None
            names = [program.space.constant(step) for step in steps]
            if len(steps) == 1:
                return Piece(f"record.get({names[0]})")
            return Piece(f"{program.space.function(_walk)}(record, {', '.join(names)})")
        return None

    def _python(self, text: str, _place: Place) -> Iterator[Piece]:
        at = 0
        while (begin := text.find("${", at)) >= 0:
            if begin > at:
                yield self.program.constant(text[at:begin])
            end = closing(text, begin + 2)
            yield self.program.python(text[begin + 2 : end])
            at = end + 1
        if at < len(text):
            yield self.program.constant(text[at:])


def _walk(record: Any, *path: Any) -> Any:
    try:
        return dig(record, *path)
    except Exception:  # noqa: BLE001 - a placeholder that leads nowhere is empty
        return None


def closing(text: str, at: int) -> int:
    """Where the } is that ends the expression at `at`. Raises Refused."""
    depth, quote = 0, ""
    for index in range(at, len(text)):
        char = text[index]
        if quote:
            if char == quote and text[index - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in ")]}":
            if char == "}" and depth == 0:
                return index
            depth -= 1
    raise Refused("${ has no }", at)
