"""A page of the manual, generated from the declarations of a class."""

from __future__ import annotations

import inspect
import re
from typing import Any

from headrace.conf.declare import Configurable, Param, Section, declared_params, declared_sections
from headrace.conf.values import to_json

_DEPTH_MAX = 4


def manual(cls: type[Configurable], title: str, *, level: int = 1) -> str:
    """Return the Markdown page of `cls`: its docstring, a table of its parameters, then its sections.

    level: the level of the title. Parameters that are removed are left out.
    """
    parts = ["#" * level + " " + title]
    if cls.__doc__:
        parts.append(inspect.cleandoc(cls.__doc__))
    rows = [_row(item) for item in declared_params(cls) if item.obsoleted is None]
    if rows:
        parts.append("\n".join(("| parameter | type | default | meaning |", "|---|---|---|---|", *rows)))
    parts += [_section(item, level + 1) for item in declared_sections(cls)]
    return "\n\n".join(parts).rstrip() + ("\n" if level == 1 else "")


def _row(item: Param[Any]) -> str:
    names = " or ".join(f"`{key}`" for key in item.keys)
    return "| " + " | ".join(_cell(text) for text in (names, item.type_name, _default(item), _meaning(item))) + " |"


def _default(item: Param[Any]) -> str:
    if item.required:
        return "required"
    if item.default is None:
        return ""
    return f"`{spelling(item.default, item.type_name)}`"


def spelling(value: object, type_name: str = "") -> str:
    """Return how a configuration would write `value`: 8m, 10s, true, JSON, /pattern/."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if type_name == "size" and isinstance(value, int) and value > 0:
        for unit, letter in ((1 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
            if value % unit == 0:
                return f"{value // unit}{letter}"
    if type_name == "time" and isinstance(value, float):
        for unit, letter in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
            if value >= unit and value % unit == 0:
                return f"{int(value // unit)}{letter}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, dict)):
        return to_json(value)
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/"
    return '""' if value == "" else str(value)


def _meaning(item: Param[Any]) -> str:
    notes = [item.doc.rstrip(".")]
    if item.placeholders:
        notes.append("may hold placeholders")
    if item.secret:
        notes.append("secret: never printed")
    if item.deprecated is not None:
        notes.append(f"deprecated: {item.deprecated.rstrip('.')}")
    return ". ".join(note[:1].upper() + note[1:] for note in notes if note) + "."


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _section(item: Section[Any], level: int) -> str:
    argument = f" {item.argument.upper()}" if item.argument else ""
    marks = [mark for mark, given in (("required", item.required), ("may be repeated", item.multi)) if given]
    title = f"`<{item.key}{argument}>`" + (f" ({', '.join(marks)})" if marks else "")
    doc = f"\n\n{item.doc}" if item.doc else ""
    if item.cls is None or level > _DEPTH_MAX:
        return "#" * level + " " + title + doc
    page = manual(item.cls, title, level=level)
    head, _, rest = page.partition("\n\n")
    return head + doc + (f"\n\n{rest}" if rest else "")
