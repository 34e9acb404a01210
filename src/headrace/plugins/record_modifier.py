"""What the filter and the output `record_modifier` share (github.com/repeatedly/fluent-plugin-record-modifier).

Fields are set one after the other, so that one sees what those before it set; then fields are removed, texts replaced,
and encodings changed. Expressions in ${...} are the Ruby subset of docs/record_transformer.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import Configurable, array, raw_section, regexp, section, string
from headrace.conf.values import as_string
from headrace.errors import Place
from headrace.pipeline.accessor import Accessor
from headrace.plugins.expressions.fields import RUBY, Fields
from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_text_methods import substitute
from headrace.plugins.expressions.variables import Program
from headrace.plugins.in_tail import encodings
from headrace.plugins.nested_fields import without

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.plugins.expressions.ruby_emit import Piece
    from headrace.plugins.expressions.variables import Run


class Replace(Configurable):
    """A replacement in a field."""

    key = string(doc="The field")
    expression = regexp(doc="What to replace, in Ruby's syntax")
    replace = string(doc=r"The text for it; \1 and \k<name> are groups")


class Modifying(Configurable):
    """The parameters."""

    prepare_value = string(
        default=None,
        obsoleted="Ruby code of one's own cannot run here; write the values in <record>",
        doc="Not supported",
    )
    char_encoding = string(default=None, doc="FROM: what texts are in; FROM:TO converts them")
    remove_keys = array(default=None, doc="Fields to remove; $.a.b for nested ones")
    whitelist_keys = array(default=None, doc="The only fields to keep, beside those of <record>")
    record_sections = raw_section(name="record", multi=True, doc="The fields: NAME VALUE")
    replaces = section(Replace, name="replace", multi=True, doc="Replacements in texts")

    def validate(self, problems: Problems) -> None:
        """Check what excludes each other."""
        super().validate(problems)
        if self.remove_keys and self.whitelist_keys:
            problems.error("remove_keys and whitelist_keys exclude each other", self.place_of("whitelist_keys"))
        self._removed: list[Accessor] = []
        for text in self.remove_keys or ():
            try:
                self._removed.append(Accessor(text))
            except ValueError as error:
                problems.error(f'parameter "remove_keys": {error}', self.place_of("remove_keys"))
        self._convert: Callable[[Any], Any] | None = None
        if self.char_encoding is not None:
            try:
                self._convert = converter(self.char_encoding)
            except ValueError as error:
                problems.error(f'parameter "char_encoding": {error}', self.place_of("char_encoding"))

    def compiled(self, context: Context, tag: str | None = None) -> Run:
        """The function over a batch; with a tag that has placeholders it gives (tag, record) instead of the record."""
        program = Program(
            hostname=context.hostname,
            worker_id=context.worker_id,
            now=lambda: context.clock.wall_ns(),  # noqa: PLW0108 - there is no clock yet
        )
        fields = _Fixed(program, context.problems, RUBY, typecast=True)
        space = program.space
        body = ["record = record.copy()", *fields.lines(self.record_sections, "record")]
        body += [f"record = {space.function(without)}(record, {space.constant(one)})" for one in self._removed]
        if self.whitelist_keys:
            given = [child.name for one in self.record_sections for child in one.block or ()]
            kept = dict.fromkeys([*self.whitelist_keys, *given])
            body.append(f"record = {space.function(_only)}(record, {space.constant(tuple(kept))})")
        for replace in self.replaces:
            args = ", ".join(map(space.constant, (replace.key, replace.expression, replace.replace)))
            body.append(f"{space.function(_replaced)}(record, {args})")
        if self._convert is not None:
            body.append(f"record = {space.constant(self._convert)}(record)")
        if tag is None or "${" not in tag:
            return program.function(body, result="record")
        place = self.place_of("tag") or Place("", 0)
        try:
            piece = program.text(fields.text(tag, place, keep=True))
        except Refused as error:
            context.problems.error(f'parameter "tag": {error.message}', place, hint=error.hint)
            piece = program.constant(tag)
        body.append(f"new = ({piece.code}, record)")
        return program.function(body)


class _Fixed(Fields):
    """Names of fields are fixed here, and JSON is a text like any other."""

    @staticmethod
    def parsed(literal: object) -> object:
        """The text."""
        return literal if literal is None else as_string(literal)

    def key(self, text: str, _place: Place) -> Piece:
        """The name as it stands."""
        return self.program.constant(text)


def _only(record: Record, keys: tuple[str, ...]) -> Record:
    return {key: record[key] for key in keys if key in record}


def _replaced(record: Record, key: str, pattern: Any, replacement: str) -> None:
    """The record is a copy already."""
    if key in record:
        value = record[key]
        if not isinstance(value, str):
            raise TypeError(f"the field {key} is no text")
        record[key] = substitute(value, pattern, replacement)


def converter(spec: str) -> Callable[[Any], Any] | None:
    """FROM or FROM:TO -> what it does to a value, texts within included. Raises ValueError."""
    source, _, target = spec.partition(":")
    change = encodings.converter(encodings.codec_of(source), encodings.codec_of(target)) if target else None
    if change is None:
        encodings.codec_of(source)  # bytes stay as they are: a name of what they are changes nothing
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return change(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        if isinstance(value, dict):
            return {key: convert(item) for key, item in value.items()}
        return [convert(item) for item in value] if isinstance(value, list) else value

    return convert
