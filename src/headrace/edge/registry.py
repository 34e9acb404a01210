"""The directive families: who knows which directive.

A family is built before the fork and used by one build. The order of the table is the order of the handlers
within one phase; families registered by other rooms come after the built-in ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope


class Family(Protocol):
    """A group of directives.

    specs: the directives by name, checked for context and argument count before apply() sees them.
    """

    @property
    def specs(self) -> Mapping[str, Spec]:
        """Every directive of the family."""
        ...

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """Take one directive into the scope it stands in; raises ConfError with nginx's own text.

        Called in the order of the file. For a block the family opens `Scope(kind, directive, scope, scope.build)`
        and returns it: build.py then walks into it (blocks that are data, like `types`, are read here).
        """
        ...

    def compose(self, scope: Scope, location: Location) -> None:
        """Add what this family runs in a location.

        By `location.add(phase, handler)`, `location.content = handler`, `location.add_log(f)`,
        `location.add_header_filter(place, f)`, `location.add_body_filter(place, f)`. Called
        once for every location (also the one that stands for the bare server, and for each `if` block), when all
        directives are applied: scope.get() gives the values in force.
        """
        ...


_registered: list[Callable[[], Family]] = []


def register(family: Callable[[], Family]) -> None:
    """Add a family of another room: a factory, called for each build."""
    if family not in _registered:
        _registered.append(family)


def families() -> list[Family]:
    """Fresh instances of all families, in the order of their handlers."""
    from headrace.edge.families import builtin  # noqa: PLC0415 - the families import this module's neighbours

    return [*builtin(), *(make() for make in _registered)]
