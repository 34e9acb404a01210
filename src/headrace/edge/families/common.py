"""What the directive families share: specs in a compact form, and nginx's types of arguments with its messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace.conf.check import UNBOUNDED, Spec
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

HSL: Final = ("http", "server", "location")
HSLI: Final = ("http", "server", "location", "if in location")
MAIN_HSL: Final = ("main", "http", "server", "location")

_SIZE: Final = re.compile(r"([0-9]+)([kKmMgG]?)")
_TIME_PART: Final = re.compile(r" *([0-9]+)(ms|y|M|w|d|h|m|s|)")
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_UNITS: Final = {
    "ms": 0.001,
    "": 1.0,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "M": 2592000.0,
    "y": 31536000.0,
}
MANY: Final = UNBOUNDED


class BaseFamily:
    """A family that dispatches to a method per directive: `_do_NAME(scope, directive)`."""

    specs: dict[str, Spec] = {}  # noqa: RUF012 - each family sets its own table

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        found: Scope | None = getattr(self, f"_do_{directive.name}")(scope, directive)
        return found

    def compose(self, scope: Scope, location: Location) -> None:
        """See registry.Family; nothing by default."""


def spec(name: str, contexts: Iterable[str], least: int, most: int | None = None) -> Spec:
    """A plain directive; most defaults to least."""
    return Spec(name, frozenset(contexts), least, least if most is None else most)


def flag(name: str, contexts: Iterable[str]) -> Spec:
    """A directive whose argument is `on` or `off`."""
    return Spec(name, frozenset(contexts), 1, 1, flag=True)


def block(name: str, contexts: Iterable[str], least: int, most: int | None = None, *, data: bool = False) -> Spec:
    """A directive with a block; data: its children are data, not directives."""
    return Spec(name, frozenset(contexts), least, least if most is None else most, "block", data=data)


def table(*specs: Spec) -> dict[str, Spec]:
    """Specs by name."""
    return {item.name: item for item in specs}


def flag_of(directive: Directive) -> bool:
    """`on` or `off` (checked by the spec)."""
    return directive.args[0].lower() == "on"


def parse_size(text: str) -> int | None:
    """Bytes of a size like 8k; None when it is none."""
    match = _SIZE.fullmatch(text)
    return int(match.group(1)) * _SIZE_UNITS[match.group(2).lower()] if match else None


def parse_time(text: str) -> float | None:
    """Seconds of a time like 1h30m or 500ms; None when it is none."""
    position, total = 0, 0.0
    while position < len(text):
        match = _TIME_PART.match(text, position)
        if match is None:
            return None
        total += int(match.group(1)) * _TIME_UNITS[match.group(2)]
        position = match.end()
    return total if text.strip() else None


def size_of(directive: Directive, index: int = 0) -> int:
    """A size argument in bytes."""
    size = parse_size(directive.args[index])
    if size is None:
        raise invalid(directive)
    return size


def time_of(directive: Directive, index: int = 0) -> float:
    """A time argument in seconds."""
    seconds = parse_time(directive.args[index])
    if seconds is None:
        raise invalid(directive)
    return seconds


def number_of(directive: Directive, index: int = 0) -> int:
    """A number argument."""
    text = directive.args[index]
    if not text.isascii() or not text.isdigit():
        raise ConfError(f'"{directive.name}" directive invalid number', directive.place)
    return int(text)


def invalid(directive: Directive) -> ConfError:
    """The error for an argument that is not of its type."""
    return ConfError(f'"{directive.name}" directive invalid value', directive.place)


def invalid_parameter(directive: Directive, text: str) -> ConfError:
    """The error for a word that a directive does not know."""
    return ConfError(f'invalid parameter "{text}"', directive.place)


def refused(directive: Directive, what: str) -> ConfError:
    """The error for something that nginx has and headrace has not."""
    return ConfError(f"{what} is not supported by headrace", directive.place)
