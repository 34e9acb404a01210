"""Output `rewrite_tag_filter` (github.com/fluent/fluent-plugin-rewrite-tag-filter): events go on under another tag.

The first <rule> whose pattern matches the field gives the tag, and perhaps the label. What matches no rule, and what
would keep its tag in the same label, is left out, so that nothing goes round for ever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, boolean, enum, regexp, section, string
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.plugin import Output
from headrace.plugins.guard import OverdueError, guard
from headrace.plugins.reemit import emit_all
from headrace.plugins.ruby_text import scrub, to_s

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch, Event, Record
    from headrace.pipeline.router import Router

_PLACEHOLDER: Final = re.compile(r"\$\{[a-z_]+(?:\[[0-9]+\])?\}|__[A-Z_]+(?:\[[0-9]+\])?__")
_BACK: Final = re.compile(r"\$(\d+)")
_RANGE: Final = re.compile(r"\$\{tag_parts\[\d\.\.\.?\d\]\}|__TAG_PARTS\[\d\.\.\.?\d\]__")
_KNOWN: Final = re.compile(r"\$\{(?:tag|hostname|tag_parts\[\d+\])\}|__(?:TAG|HOSTNAME|TAG_PARTS\[\d+\])__")
_OLD: Final = re.compile(r"rewriterule\d+")
_TAGS_MAX: Final = 4096


class Rule(Configurable):
    """A pattern and what follows from it."""

    key = string(doc="The field; $.a.b for a nested one")
    pattern = regexp(doc="The pattern, in Ruby's syntax")
    tag = string(doc="The new tag: $1 is a group, ${tag}, ${tag_parts[0]}, ${hostname} and __TAG__ are filled in")
    label = string(default=None, doc="The label in which events go on")
    invert = boolean(default=False, doc="The rule is for what does not match")

    router: Router

    def validate(self, problems: Problems) -> None:
        """Read the field and the tag."""
        try:
            self.get = Accessor(self.key).get
        except ValueError as error:
            problems.error(f'parameter "key": {error}', self.place_of("key"))
        if _RANGE.search(self.tag):
            problems.error("${tag_parts[n]} takes no range", self.place_of("tag"))
        for name in _PLACEHOLDER.findall(self.tag):
            if not _KNOWN.fullmatch(name):
                problems.warn(f"unknown placeholder {name} is empty", self.place_of("tag"))
        if self.invert and _BACK.search(self.tag):
            problems.warn("with invert there are no groups: $1 stays as it is", self.place_of("tag"))
        self.grouped = _BACK.search(self.tag) is not None and not self.invert
        self.filled = _PLACEHOLDER.search(self.tag) is not None


class RewriteTagFilterOutput(Output):
    """Gives events other tags."""

    routes = True
    takes_label = True

    capitalize_regex_backreference = boolean(default=False, doc="Groups begin with a capital letter in the tag")
    remove_tag_prefix = string(default=None, doc="Take this, and a dot, from the tag before it is filled in")
    remove_tag_regexp = regexp(default=None, doc="Take what matches from the tag before it is filled in")
    hostname_command = string(
        default=None,
        obsoleted="no command is run here: the name of this machine is filled in",
        doc="Not supported",
    )
    emit_mode = enum(("record", "batch"), default="batch", doc="record: one by one; batch: together for each tag")
    rules = section(Rule, name="rule", multi=True, doc="What to look for, in order")

    @classmethod
    def hint_for(cls, name: str) -> str:
        """The old spelling."""
        return "use a <rule> section" if _OLD.fullmatch(name) else super().hint_for(name)

    def validate(self, problems: Problems) -> None:
        """Check the rules together."""
        super().validate(problems)
        if not self.rules:
            problems.error("a <rule> section is required", self.place)
        if self.remove_tag_prefix is not None and self.remove_tag_regexp is not None:
            problems.error(
                "remove_tag_prefix and remove_tag_regexp exclude each other", self.place_of("remove_tag_regexp")
            )
        seen: set[tuple[str, bool, str]] = set()
        for rule in self.rules:
            mark = (rule.key, rule.invert, rule.pattern.pattern)
            if mark in seen:
                problems.error(f'there is a second rule for "{rule.key}" with the same pattern', rule.place)
            seen.add(mark)

    def provision(self, context: Context) -> None:
        """Find the labels."""
        for rule in self.rules:
            rule.router = context.label(rule.label, rule.place_of("label")) if rule.label else self.router
        self._hostname = context.hostname
        self._filled: dict[tuple[int, str], str] = {}

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Send a batch on, in parts."""
        groups: dict[tuple[int, str], tuple[Router, list[Event]]] = {}
        if not guard.armed:
            guard.arm()
        for event in batch.events():
            guard.turn += 1
            try:
                guard.busy = True
                found = self._rewritten(tag, event[1])
            except OverdueError as error:
                guard.busy = False
                self.router.emit_error_event(tag, event[0], event[1], error)
                continue
            finally:
                guard.busy = False
            if found is None:
                continue
            rule, new = found
            if new == tag and rule.label is None:
                continue
            mark = (id(rule.router), new) if self.emit_mode == "batch" else (len(groups), new)
            groups.setdefault(mark, (rule.router, []))[1].append(event)
        return emit_all(
            (router, new, batch.onward(events, f"rewrite {number} {new}"))
            for number, ((_, new), (router, events)) in enumerate(groups.items())
        )

    def _rewritten(self, tag: str, record: Record) -> tuple[Rule, str] | None:
        for number, rule in enumerate(self.rules):
            value = to_s(rule.get(record))
            if not value and not rule.invert:
                continue
            if not value.isascii():
                value = scrub(value.encode("utf-8", "surrogateescape"), "?").decode()
            match = rule.pattern.search(value)
            if (match is None) != rule.invert:
                continue
            if not rule.grouped or match is None:
                return rule, self._fill(tag, rule, number) if rule.filled else rule.tag
            return rule, self._expand(self._grouped(rule.tag, match.groups()), tag)
        return None

    def _grouped(self, text: str, groups: tuple[str | None, ...]) -> str:
        """The tag with $1 and its kind filled in."""

        def one(found: re.Match[str]) -> str:
            number = int(found[1])
            group = (groups[number - 1] or "") if 0 < number <= len(groups) else ""
            return group[:1].upper() + group[1:].lower() if self.capitalize_regex_backreference else group

        return _BACK.sub(one, text)

    def _fill(self, tag: str, rule: Rule, number: int) -> str:
        """The tag of a rule without groups, which is the same for every event of a tag."""
        found = self._filled.get((number, tag))
        if found is None:
            if len(self._filled) >= _TAGS_MAX:
                self._filled.clear()
            found = self._filled[number, tag] = self._expand(rule.tag, tag)
        return found

    def _expand(self, text: str, tag: str) -> str:
        if self.remove_tag_prefix is not None and tag.startswith(self.remove_tag_prefix):
            tag = tag.removeprefix(self.remove_tag_prefix).removeprefix(".")
        elif self.remove_tag_regexp is not None:
            tag = self.remove_tag_regexp.sub("", tag, 1)
        parts = tag.split(".")

        def one(match: re.Match[str]) -> str:
            name = match[0].strip("${}_").lower()
            if name == "tag":
                return tag
            if name == "hostname":
                return self._hostname
            at = name.removeprefix("tag_parts[").removesuffix("]")
            return parts[int(at)] if at.isdecimal() and int(at) < len(parts) else ""

        return _PLACEHOLDER.sub(one, text)
