"""nginx.conf's tree against what each directive allows: name, context, block or `;`, number of arguments.

The messages are nginx's own; a hint with the nearest known name is added to an unknown directive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.conf.nginx import COMMAND_LINE
from headrace.conf.problems import Problems, near_miss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.conf.tree import Directive

UNBOUNDED = 1 << 30
"""max_args of a directive that takes any number of arguments."""


Failed = list[tuple["Directive", str]]
"""Directives that cannot be used, each with the context it stands in."""


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Directives that exist elsewhere, so that they are no typing errors, and what is said about them."""

    names: Collection[str] = frozenset()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a directive allows.

    contexts: names of the blocks in which it may stand ("main", "events", "http", "server", "location",
    "if in server", "if in location", "if" for both, "upstream", "limit_except", "stream", ...). kind: "plain" ends with
    `;`, "block" has children, "lua" has a verbatim Lua text (and does not count it as an argument).
    flag: its one argument is `on` or `off`. inside: the context of its children (its own name when
    None; `if` adds where it stands). data: the children are data, not directives (`types`, `map`).
    """

    name: str
    contexts: frozenset[str]
    min_args: int
    max_args: int
    kind: Literal["plain", "block", "lua"] = "plain"
    flag: bool = False
    inside: str | None = None
    data: bool = False


def check_nginx(
    tree: Iterable[Directive],
    specs: Mapping[str, Spec | Sequence[Spec]],
    problems: Problems,
    context: str = "main",
    *,
    unbuilt: Unbuilt = Unbuilt(),
) -> Failed:
    """Report every directive of `tree` that `specs` does not allow in `context`, and their children.

    specs: name -> its Spec, or several where a name means different things in different contexts
    (`server` in http and in upstream). Returns what was reported.
    """
    failed: Failed = []
    for directive in tree:
        before = len(problems.errors)
        spec = _check_one(directive, specs, problems, context, unbuilt)
        if len(problems.errors) > before:
            failed.append((directive, context))
        if spec and directive.block is not None and not spec.data:
            inside = spec.inside or (f"if in {context}" if spec.name == "if" else spec.name)
            failed += check_nginx(directive.block, specs, problems, inside, unbuilt=unbuilt)
    return failed


def _check_one(
    directive: Directive,
    specs: Mapping[str, Spec | Sequence[Spec]],
    problems: Problems,
    context: str,
    unbuilt: Unbuilt,
) -> Spec | None:
    """Report the first thing wrong, in nginx's order; return the spec when the children can be checked."""
    name = directive.name
    known = specs.get(name)
    if known is None:
        _report(problems, directive, f'unknown directive "{name}"', _hint(name, specs, context, unbuilt))
        return None
    spec = next((spec for spec in _several(known) if _allows(spec, context)), None)
    if spec is None:
        places = sorted({place for one in _several(known) for place in one.contexts})
        hint = f"it belongs in {', '.join(places)}" if places else ""
        _report(problems, directive, f'"{name}" directive is not allowed here', hint)
        return None
    opened = directive.block is not None or directive.text is not None
    if opened and spec.kind == "plain":
        _report(problems, directive, f'directive "{name}" is not terminated by ";"')
        return None
    if not opened and spec.kind != "plain":
        _report(problems, directive, f'directive "{name}" has no opening "{{"')
        return None
    count = len(directive.args)
    low, high = (1, 1) if spec.flag else (spec.min_args, spec.max_args)
    if not low <= count <= high:
        _report(problems, directive, f'invalid number of arguments in "{name}" directive', _wanted(low, high, count))
    elif spec.flag and directive.args[0].lower() not in {"on", "off"}:
        value = directive.args[0]
        _report(problems, directive, f'invalid value "{value}" in "{name}" directive, it must be "on" or "off"')
    return spec


def _hint(name: str, specs: Mapping[str, Spec | Sequence[Spec]], context: str, unbuilt: Unbuilt) -> str:
    if name in unbuilt.names:
        return unbuilt.hint
    allowed = (other for other, spec in specs.items() if any(_allows(one, context) for one in _several(spec)))
    hint = near_miss(name, allowed) or near_miss(name, specs)
    # The one that was meant may be unbuilt too: `proxy_pas` is not proxy_temp_path.
    elsewhere = near_miss(name, unbuilt.names)
    if elsewhere and near_miss(name, (quoted(hint), quoted(elsewhere))) == elsewhere:
        return f"{elsewhere} {unbuilt.hint}"
    return hint


def quoted(text: str) -> str:
    """The first word in quotes of a text, or ""."""
    return text.partition('"')[2].partition('"')[0]


def _allows(spec: Spec, context: str) -> bool:
    return context in spec.contexts or (context.startswith("if in ") and "if" in spec.contexts)


def _several(spec: Spec | Sequence[Spec]) -> Sequence[Spec]:
    return (spec,) if isinstance(spec, Spec) else spec


def _wanted(low: int, high: int, count: int) -> str:
    if low == high:
        return f"it takes {low}, not {count}"
    return f"it takes {low} to {high}, not {count}" if high < UNBOUNDED else f"it takes at least {low}, not {count}"


def _report(problems: Problems, directive: Directive, message: str, hint: str = "") -> None:
    if directive.file == COMMAND_LINE:
        problems.error(f"{message} in {COMMAND_LINE}", hint=hint)
    else:
        problems.error(message, directive.place, hint=hint)
