"""Parameters from before Fluentd 0.14, which stand in a plugin's section and not in a section of their own.

They belong in <buffer>, <parse>, <format> and <inject> now (docs.fluentd.org, API: compat_parameters). A plugin
says in `old_style` which of the four it had. A section that is written out wins: then nothing is converted for
it, and what is left over is an unknown parameter. Nothing is taken over that the section's plugin does not
declare, so an old parameter works or is reported, as any other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.conf.declare import declared_params, literal_of
from headrace.conf.params import reserved
from headrace.conf.tree import Directive
from headrace.conf.values import as_boolean
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Lookup
    from headrace.pipeline.plugin import Plugin

BUFFER: Final[Mapping[str, str]] = {
    "buffer_type": "@type",
    "buffer_path": "path",
    "num_threads": "flush_thread_count",
    "flush_interval": "flush_interval",
    "try_flush_interval": "flush_thread_interval",
    "queued_chunk_flush_interval": "flush_thread_burst_interval",
    "disable_retry_limit": "retry_forever",
    "retry_limit": "retry_max_times",
    "max_retry_wait": "retry_max_interval",
    "buffer_chunk_limit": "chunk_limit_size",
    "buffer_queue_limit": "queue_limit_length",
    "buffer_queue_full_action": "overflow_action",
    "flush_at_shutdown": "flush_at_shutdown",
    "time_slice_wait": "timekey_wait",
    "timezone": "timekey_zone",
}
PARSE: Final[Mapping[str, str]] = {
    "keys": "keys",
    "time_key": "time_key",
    "time_format": "time_format",
    "delimiter": "delimiter",
    "keep_time_key": "keep_time_key",
    "null_empty_string": "null_empty_string",
    "null_value_pattern": "null_value_pattern",
    "json_parser": "json_parser",
    "label_delimiter": "label_delimiter",
    "format_firstline": "format_firstline",
    **{f"format{number}": f"format{number}" for number in range(1, 21)},
    "message_key": "message_key",
    "with_priority": "with_priority",
    "message_format": "message_format",
    "rfc5424_time_format": "rfc5424_time_format",
}
FORMAT: Final[Mapping[str, str]] = {
    "format": "@type",
    **{
        name: name
        for name in (
            "delimiter",
            "force_quotes",
            "keys",
            "fields",
            "json_parser",
            "label_delimiter",
            "output_time",
            "output_tag",
            "localtime",
            "utc",
            "timezone",
            "message_key",
            "add_newline",
            "output_type",
        )
    },
}
INJECT: Final[Mapping[str, str]] = {
    "time_key": "time_key",
    "time_format": "time_format",
    "timezone": "timezone",
    "tag_key": "tag_key",
}
EXTRACT: Final[Mapping[str, str]] = {
    "tag_key": "tag_key",
    "time_key": "time_key",
    "time_format": "time_format",
    "timezone": "timezone",
}
_SLICES: Final = (("%S", "1"), ("%M", "60"), ("%H", "3600"), ("%d", "86400"))
_TABLES: Final = {"buffer": BUFFER, "parse": PARSE, "format": FORMAT, "inject": INJECT, "extract": EXTRACT}
_EXTRA: Final = {
    "buffer": ("time_slice_format",),
    "parse": ("format", "types", "types_delimiter", "types_label_delimiter", "localtime", "utc"),
    "format": ("time_as_epoch",),
    "inject": ("include_time_key", "include_tag_key", "time_as_epoch", "localtime", "utc"),
    "extract": ("time_as_epoch", "localtime", "utc"),
}
"""What makes a section, or changes it, in a way of its own."""
_KINDS: Final = {"buffer": "buffer", "parse": "parser", "format": "formatter"}


@dataclass
class _Section:
    """A section in the making. parts: its parameters, each with the old one it comes from.

    flags: old parameters that went into it without being one of its own.
    """

    name: str
    argument: str = ""
    parts: list[tuple[Directive, str]] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)

    @property
    def used(self) -> set[str]:
        """The old parameters that went into it."""
        return {old for _child, old in self.parts} | self.flags

    def put(self, name: str, source: Directive, value: str | None = None) -> None:
        """Add a parameter, at the place of the old one that means it; value: other than that one's."""
        if value is None:
            made = replace(source, name=name)
        else:
            made = replace(source, name=name, args=(value,), values=(value,))
        self.parts.append((made, source.name))

    def has(self, name: str) -> bool:
        """Whether a parameter is there."""
        return any(child.name == name for child, _old in self.parts)

    def only(self, wanted: Callable[[str], bool]) -> None:
        """Leave out the parameters with other names."""
        self.parts = [(child, old) for child, old in self.parts if wanted(child.name)]

    def directive(self, owner: Directive) -> Directive:
        """The section, as if it were written at the beginning of its owner."""
        arguments = (self.argument,) if self.argument else ()
        return Directive(self.name, arguments, owner.file, owner.line, block=tuple(child for child, _ in self.parts))


def converted(cls: type[Plugin], directive: Directive, lookup: Lookup, problems: Problems) -> Directive:
    """Return a plugin's section with its old parameters moved to where they belong now."""
    if not cls.old_style:
        return directive
    old = {child.name: child for child in directive.block or () if child.block is None}
    there = {child.name for child in directive.block or () if child.block is not None}
    made: list[_Section] = []
    for name, detail in cls.old_style.items():
        if name in there or old.keys().isdisjoint((*_TABLES[name], *_EXTRA[name])):
            continue
        section = _Section(name, detail if name == "buffer" else "")
        try:
            _MAKERS[name](section, old)
        except ValueError as error:
            problems.error(str(error), directive.place)
            continue
        default = getattr(cls, "buffer_defaults", {}).get("@type", "memory") if name == "buffer" else detail
        _only_declared(section, directive, default, lookup)
        if section.used:
            made.append(section)
    if not made:
        return directive
    used = {name for section in made for name in section.used}
    gone = used - {key for item in declared_params(cls) for key in item.keys}
    block = tuple(child for child in directive.block or () if child.block is not None or child.name not in gone)
    return replace(directive, block=block + tuple(section.directive(directive) for section in made))


def hint_for(name: str, within: str = "") -> str:
    """Where an old parameter that nothing took belongs; "" for any other. within: the section that it stands in."""
    if within:
        now = _TABLES[within].get(name)
        return f"write {now}" if now not in {None, name} else ""
    for section, table in _TABLES.items():
        if (now := table.get(name)) is not None:
            return f"write it in <{section}>" + (f", as {now}" if now != name else "")
    return ""


def _only_declared(section: _Section, owner: Directive, default: str, lookup: Lookup) -> None:
    """Leave out what the plugin of the section does not know."""
    kind = _KINDS.get(section.name)
    if kind is None:
        return
    try:
        cls = lookup(kind, reserved(section.directive(owner), "@type") or default)
    except ConfError:
        return  # reported when the section is read
    known = {key for item in declared_params(cls) for key in item.keys}
    section.only(known.__contains__)


def _copy(section: _Section, old: Mapping[str, Directive]) -> None:
    for before, now in _TABLES[section.name].items():
        if before in old:
            section.put(now, old[before])


def _flag(old: Mapping[str, Directive], name: str) -> bool:
    if name not in old:
        return False
    try:
        return bool(as_boolean(literal_of(old[name])))
    except ValueError as error:
        raise ValueError(f'parameter "{name}": {error}') from None


def _zone(old: Mapping[str, Directive]) -> tuple[Directive, bool] | None:
    """Which of localtime and utc is given, and whether it means local time."""
    if "localtime" in old and "utc" in old:
        if _flag(old, "localtime") == _flag(old, "utc"):
            raise ValueError("localtime and utc contradict each other: use one of them")
        return old["localtime"], _flag(old, "localtime")
    if "localtime" in old:
        return old["localtime"], _flag(old, "localtime")
    return (old["utc"], not _flag(old, "utc")) if "utc" in old else None


def _text(value: bool) -> str:
    return "true" if value else "false"


def _buffer(section: _Section, old: Mapping[str, Directive]) -> None:
    _copy(section, old)
    full = old.get("buffer_queue_full_action")
    if full is not None and literal_of(full) == "exception":
        section.only(lambda name: name != "overflow_action")
        section.put("overflow_action", full, "throw_exception")
    slices = old.get("time_slice_format")
    if slices is not None:
        section.argument = "time"
        format_ = str(literal_of(slices))
        timekey = next((seconds for part, seconds in _SLICES if part in format_), None)
        if timekey is None:
            raise ValueError("time_slice_format with only %Y or %m is too long")
        section.put("timekey", slices, timekey)
        zone = _zone(old)
        if zone is not None:
            section.put("timekey_use_utc", zone[0], _text(not zone[1]))
    elif section.argument == "time" and section.parts:
        first, before = section.parts[0]
        section.parts.append((replace(first, name="timekey", args=("86400",), values=("86400",)), before))


def _parse(section: _Section, old: Mapping[str, Directive]) -> None:
    _copy(section, old)
    format_ = old.get("format")
    if format_ is not None:
        text = str(literal_of(format_))
        if text.startswith("/") and text.endswith("/") and len(text) > 1:
            section.put("@type", format_, "regexp")
            section.put("expression", format_)
        else:
            section.put("@type", format_)
    types = old.get("types")
    if types is not None:
        between = str(literal_of(old["types_delimiter"])) if "types_delimiter" in old else ","
        label = str(literal_of(old["types_label_delimiter"])) if "types_label_delimiter" in old else ":"
        pairs = (pair.partition(label) for pair in str(literal_of(types)).split(between))
        section.put("types", types, json.dumps({name: kind for name, _, kind in pairs}))
        section.flags |= {"types_delimiter", "types_label_delimiter"} & old.keys()
    zone = _zone(old)
    if zone is not None:
        section.put("localtime", zone[0], _text(zone[1]))


def _format(section: _Section, old: Mapping[str, Directive]) -> None:
    _copy(section, old)
    if _flag(old, "time_as_epoch"):
        section.put("time_type", old["time_as_epoch"], "unixtime")


def _inject(section: _Section, old: Mapping[str, Directive]) -> None:
    _copy(section, old)
    for name in ("include_time_key", "include_tag_key"):
        if name in old:
            section.flags.add(name)
    if _flag(old, "include_time_key"):
        source = old["include_time_key"]
        if not section.has("time_key"):
            section.put("time_key", source, "time")
        if not _flag(old, "time_as_epoch"):
            section.put("time_type", source, "string")
    if _flag(old, "time_as_epoch"):
        if not section.has("time_key"):
            section.put("time_key", old["time_as_epoch"], "time")
        section.put("time_type", old["time_as_epoch"], "unixtime")
    zone = _zone(old)
    if zone is not None and section.has("time_key"):
        section.put("localtime", zone[0], _text(zone[1]))
    if _flag(old, "include_tag_key") and not section.has("tag_key"):
        section.put("tag_key", old["include_tag_key"], "tag")
    if not section.has("time_key"):
        section.only(lambda name: name not in {"time_format", "timezone"})


def _extract(section: _Section, old: Mapping[str, Directive]) -> None:
    _copy(section, old)
    if _flag(old, "time_as_epoch"):
        if not section.has("time_key"):
            section.put("time_key", old["time_as_epoch"], "time")
        section.put("time_type", old["time_as_epoch"], "unixtime")
    elif "time_format" in old:
        section.put("time_type", old["time_format"], "string")
    zone = _zone(old)
    if zone is not None and section.has("time_key"):
        section.put("localtime", zone[0], _text(zone[1]))
    if not section.has("time_key"):
        section.only(lambda name: name == "tag_key")


_MAKERS: Final[Mapping[str, Callable[[_Section, Mapping[str, Directive]], None]]] = {
    "buffer": _buffer,
    "parse": _parse,
    "format": _format,
    "inject": _inject,
    "extract": _extract,
}
