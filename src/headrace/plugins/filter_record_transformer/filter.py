"""Filter `record_transformer` (docs.fluentd.org, Filter Plugins, record_transformer): adds, changes and removes fields.

Everything that the parameters say becomes one compiled function over a batch. A record whose expression fails goes to
@ERROR; the others go on. `enable_ruby` and `enable_python` are whitelists of syntax: docs/record_transformer.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import array, boolean, raw_section, string
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Filter
from headrace.plugins.expressions.fields import PLAIN, PYTHON, RUBY, Fields
from headrace.plugins.expressions.variables import Program
from headrace.plugins.guard import guard
from headrace.plugins.nested_fields import without
from headrace.plugins.time_parse import parse_float

if TYPE_CHECKING:
    from typing import Any

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Event, Record
    from headrace.plugins.expressions.variables import Run

_TURN = 2000
"""Events between two looks of the clock at patterns that take for ever."""


class RecordTransformerFilter(Filter):
    """Makes records anew."""

    enable_ruby = boolean(default=False, doc="Ruby expressions in ${...}, those of docs/record_transformer.md")
    enable_python = boolean(default=False, doc="Python expressions in ${...}, those of docs/record_transformer.md")
    auto_typecast = boolean(default=True, doc="A value that is one ${...} keeps its type; false: all are texts")
    renew_record = boolean(default=False, doc="Begin with an empty record")
    renew_time_key = string(default=None, doc="Field whose value, in seconds, becomes the time of the event")
    keep_keys = array(default=None, doc="With renew_record: fields to keep")
    remove_keys = array(default=None, doc="Fields to remove at the end; $.a.b for nested ones")
    record_sections = raw_section(name="record", multi=True, doc="The fields: NAME VALUE")

    def validate(self, problems: Problems) -> None:
        """Check what belongs together."""
        super().validate(problems)
        if self.keep_keys and not self.renew_record:
            problems.error("keep_keys needs renew_record true", self.place_of("keep_keys"))
        if self.enable_ruby and self.enable_python:
            problems.error("enable_ruby and enable_python exclude each other", self.place_of("enable_python"))
        self._removed: list[Accessor] = []
        for text in self.remove_keys or ():
            try:
                self._removed.append(Accessor(text))
            except ValueError as error:
                problems.error(f'parameter "remove_keys": {error}', self.place_of("remove_keys"))

    def provision(self, context: Context) -> None:
        """Compile."""
        language = RUBY if self.enable_ruby else PYTHON if self.enable_python else PLAIN
        program = Program(
            hostname=context.hostname,
            worker_id=context.worker_id,
            now=lambda: context.clock.wall_ns(),  # noqa: PLW0108 - there is no clock yet
            language=language,
        )
        fields = Fields(program, context.problems, language, typecast=self.auto_typecast)
        space = program.space
        body = ["new = {}" if self.renew_record else "new = record.copy()"]
        for key in self.keep_keys or ():
            name = space.constant(key)
            body += [f"if {name} in record:", f"    new[{name}] = record[{name}]"]
        body += fields.lines(self.record_sections)
        if self.renew_time_key is not None:
            name = space.constant(self.renew_time_key)
            body += [f"if {name} in new:", f"    time = {space.function(_seconds)}(new[{name}])"]
        for accessor in self._removed:
            if len(accessor.path) == 1:
                body.append(f"new.pop({space.constant(accessor.path[0])}, None)")
            else:
                body.append(f"new = {space.function(without)}(new, {space.constant(accessor)})")
        self._run: Run = program.function(body)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Transform the records."""
        events = batch.events()
        if len(events) <= _TURN:
            return Batch.of(_guarded((self, tag, events)))
        out: list[Event] = []
        for at in range(0, len(events), _TURN):
            out += _guarded((self, tag, events[at : at + _TURN]))
        return Batch.of(out)

    def run(self, tag: str, events: Any) -> list[Event]:
        """Transform some."""
        return self._run(tag, events, self._failed)

    def _failed(self, tag: str, time: int, record: Record, error: Exception) -> None:
        self.router.emit_error_event(tag, time, record, error)


def _seconds(value: Any) -> int:
    if value is None:
        return 0
    return parse_float(value)


def _one(some: tuple[RecordTransformerFilter, str, Any]) -> list[Event]:
    return some[0].run(some[1], some[2])


def _none(_some: tuple[RecordTransformerFilter, str, Any]) -> list[Event]:
    return []


_guarded = guard.guarded(_one, _none)
"""Within an event an alarm is that event's error; between two it cannot ring."""
