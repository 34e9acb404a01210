"""Defaults that a plugin has for a section of its own, where the plugin of the section has others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.conf.declare import declared_params
from headrace.conf.params import reserved
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Lookup


def section_with(owner: Directive, name: str, given: Directive | None, values: Mapping[str, str | None]) -> Directive:
    """A section, present or not, with parameters that it does not have; None is nil. owner: where it stands."""
    section = given or replace(owner, name=name, args=(), values=(), block=())
    there = {child.name for child in section.block or ()}
    added = [
        replace(section, name=key, args=() if value is None else (value,), values=(value,), block=None)
        for key, value in values.items()
        if key not in there
    ]
    return replace(section, block=(*(section.block or ()), *added))


def with_texts_for_times(owner: Directive, *names: str) -> Directive:
    """A plugin's section; those within it that have time_format and no time_type read and write times as texts."""
    block = [
        section_with(owner, child.name, child, {"time_type": "string"})
        if child.name in names and child.block is not None and any(child.children("time_format"))
        else child
        for child in owner.block or ()
    ]
    return replace(owner, block=tuple(block))


def parse_section(
    owner: Directive, given: Directive | None, default_type: str, values: Mapping[str, str | None], lookup: Lookup
) -> Directive:
    """The <parse> section with defaults, as far as its parser knows them; time_format makes times texts."""
    section = given or section_with(owner, "parse", None, {})
    try:
        cls = lookup("parser", reserved(section, "@type") or default_type)
    except ConfError:
        return section  # reported when the parser is made
    known = {key for item in declared_params(cls) for key in item.keys}
    values = {key: value for key, value in values.items() if key in known}
    if "time_type" in values and any(child.name == "time_format" for child in section.block or ()):
        values["time_type"] = "string"
    return section_with(owner, "parse", section, values)
