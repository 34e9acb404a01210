"""Filter `grep` (docs.fluentd.org, Filter Plugins, grep): keeps the records whose fields match patterns.

Top-level <regexp> sections must all match, and of the top-level <exclude> sections none may; <and> and <or> say so
for the sections within. A field that is absent is an empty text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import Configurable, literal_of, regexp, section, string
from headrace.conf.tree import Directive
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Filter
from headrace.plugins.guard import guard
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Event, Record

    Test = Callable[[Record], Any]

_OLD: Final = re.compile(r"(regexp|exclude)([1-9]|1\d|20)")


class Condition(Configurable):
    """A field and a pattern."""

    key = string(doc="The field; $.a.b for a nested one")
    pattern = regexp(doc="The pattern, in Ruby's syntax")

    test: Test

    def validate(self, problems: Problems) -> None:
        """Make the test."""
        try:
            get = Accessor(self.key).get
        except ValueError as error:
            problems.error(f'parameter "key": {error}', self.place_of("key"))
            return
        search = self.pattern.search

        def test(record: Record) -> Any:
            value = get(record)
            return search(value if type(value) is str else to_s(value)) is not None

        self.test = test


class Group(Configurable):
    """Conditions of one kind."""

    regexps = section(Condition, name="regexp", multi=True, doc="What a record must match")
    excludes = section(Condition, name="exclude", multi=True, doc="What a record must not match")

    def validate(self, problems: Problems) -> None:
        """Refuse a mixture."""
        if self.regexps and self.excludes:
            assert self.directive is not None
            problems.error(f"<{self.directive.name}> cannot have <regexp> and <exclude> both", self.place)


class GrepFilter(Filter):
    """Keeps what matches."""

    regexps = section(Condition, name="regexp", multi=True, doc="What a record must match; all of them")
    excludes = section(Condition, name="exclude", multi=True, doc="What a record must not match; none of them")
    ands = section(Group, name="and", multi=True, doc="All within must match; excluded is what matches all within")
    ors = section(Group, name="or", multi=True, doc="One within must match; excluded is what matches one within")

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Take the old parameters regexp1 to regexp20 and exclude1 to exclude20 as sections."""
        children = [self._modern(child, problems) for child in directive.block or ()]
        super().configure(replace(directive, block=tuple(children)), problems)

    @staticmethod
    def _modern(child: Directive, problems: Problems) -> Directive:
        old = _OLD.fullmatch(child.name) if child.block is None else None
        if old is None:
            return child
        problems.warn(f'parameter "{child.name}" is deprecated', child.place, hint=f"use a <{old[1]}> section")
        key, _, pattern = str(literal_of(child)).partition(" ")
        pairs = (("key", key), ("pattern", pattern))
        block = tuple(Directive(name, (text,), child.file, child.line, values=(text,)) for name, text in pairs if text)
        return Directive(old[1], (), child.file, child.line, block=block)

    def validate(self, problems: Problems) -> None:
        """Collect the tests; one key may stand once in each kind of condition."""
        super().validate(problems)
        self._all = self._tests([*self.regexps, *_of(self.ands, "regexps")], problems)
        self._any = self._tests(_of(self.ors, "regexps"), problems)
        self._not_all = self._tests(_of(self.ands, "excludes"), problems)
        self._none = self._tests([*self.excludes, *_of(self.ors, "excludes")], problems)
        self._keeps = self._judge()

    @staticmethod
    def _tests(conditions: list[Condition], problems: Problems) -> list[Test]:
        seen: set[str] = set()
        for condition in conditions:
            if condition.key in seen:
                problems.error(
                    f'the key "{condition.key}" has two conditions of one kind',
                    condition.place,
                    hint="make one pattern of them: /this|that/",
                )
            seen.add(condition.key)
        return [condition.test for condition in conditions]

    def _judge(self) -> Test:
        """One function of a record: whether it is kept."""
        all_, any_, not_all, none = self._all, self._any, self._not_all, self._none
        if len(all_) == 1 and not (any_ or not_all or none):
            return all_[0]

        def keeps(record: Record) -> bool:
            return (
                all(test(record) for test in all_)
                and (not any_ or any(test(record) for test in any_))
                and not (not_all and all(test(record) for test in not_all))
                and not any(test(record) for test in none)
            )

        return keeps

    def filter(self, tag: str, time: int, record: Record) -> Record | None:
        """Return the record if it is kept."""
        return record if self._keeps(record) else None

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Return what is kept; the batch itself when that is all of it."""
        kept: list[Event] = []
        add, keeps, watch = kept.append, self._keeps, guard
        if not watch.armed:
            watch.arm()
        try:
            for event in batch.events():
                watch.turn += 1
                watch.busy = True
                try:
                    if keeps(event[1]):
                        add(event)
                except Exception as error:  # noqa: BLE001 - whatever goes wrong belongs to its record
                    watch.busy = False
                    self.router.emit_error_event(tag, event[0], event[1], error)
        finally:
            watch.busy = False
        return batch if len(kept) == batch.count else Batch.of(kept)


def _of(groups: list[Group], kind: str) -> list[Condition]:
    return [condition for group in groups for condition in getattr(group, kind)]
