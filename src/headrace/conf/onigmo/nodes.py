"""What a pattern is made of. Options (ignore case, dot matches newline) are resolved into the nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.conf.onigmo.classes import Class


class Node:
    """A part of a pattern."""

    __slots__ = ()


@dataclass(slots=True)
class Text(Node):
    """Characters that stand for themselves."""

    text: str
    icase: bool = False


@dataclass(slots=True)
class Any(Node):
    """A dot."""

    newline: bool = False


@dataclass(slots=True)
class Set(Node):
    """One character of a class."""

    cls: Class
    icase: bool = False


@dataclass(slots=True)
class Sequence(Node):
    """One after the other."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Choice(Node):
    """The first that fits."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Group(Node):
    """Parentheses.

    kind: "" (none but grouping), "capture", ">" (atomic), "=", "!", "<=", "<!". name: of a named capture.
    """

    kind: str
    item: Node
    name: str = ""


@dataclass(slots=True)
class Repeat(Node):
    """A quantifier; most: None is without limit. mode: "" (greedy), "?" (lazy), "+" (possessive)."""

    item: Node
    least: int
    most: int | None
    mode: str = ""


@dataclass(slots=True)
class Anchor(Node):
    r"""A place: ^ $ \A \z \Z \b \B \G \K."""

    kind: str


@dataclass(slots=True)
class Special(Node):
    r"""\R and \X."""

    kind: str


@dataclass(slots=True)
class Absent(Node):
    """(?~text): the longest that does not hold the text."""

    text: str
    icase: bool = False


@dataclass(slots=True)
class Reference(Node):
    r"""\1, \k<name>: what a group matched."""

    target: int | str
    icase: bool = False


@dataclass(slots=True)
class Call(Node):
    r"""\g<name>: a group once more."""

    target: int | str


@dataclass(slots=True)
class Condition(Node):
    """(?(1)yes|no)."""

    target: int | str
    yes: Node
    no: Node | None


def least_width(node: Node) -> int:
    """The least number of characters that a node takes."""
    match node:
        case Text(text):
            return len(text)
        case Any() | Set():
            return 1
        case Special():
            return 1
        case Sequence(items):
            return sum(map(least_width, items))
        case Choice(items):
            return min(map(least_width, items), default=0)
        case Group(kind, item):
            return 0 if kind in {"=", "!", "<=", "<!"} else least_width(item)
        case Repeat(item, least):
            return least_width(item) * least if least else 0
    return 0
