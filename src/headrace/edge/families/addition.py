"""add_before_body, add_after_body: answers of subrequests around an answer.

https://nginx.org/en/docs/http/ngx_http_addition_module.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, MANY, BaseFamily, spec, table
from headrace.edge.families.sub_filter import of_type
from headrace.edge.filters import changed_body
from headrace.edge.postpone import Postponed, place, postponed
from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.edge.values import to_bytes

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class AdditionFamily(BaseFamily):
    """What stands around a body."""

    specs = table(spec("add_before_body", HSL, 1), spec("add_after_body", HSL, 1), spec("addition_types", HSL, 1, MANY))

    @staticmethod
    def apply(scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name == "addition_types":
            scope.set_once(directive, frozenset(to_bytes(word).lower() for word in directive.args))
        else:
            scope.set_once(directive, to_bytes(directive.args[0]))
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter; it starts what is needed for an answer of the types."""
        before, after = scope.get("add_before_body", b""), scope.get("add_after_body", b"")
        if before or after:
            types: frozenset[bytes] = scope.get("addition_types", frozenset())
            location.add_header_filter("addition", Around(before, after, types | {b"text/html"}).header)
            location.add_header_filter("postpone", place)


@dataclass(frozen=True)
class Around:
    """The URIs of one location; b"": none."""

    before: bytes
    after: bytes
    types: frozenset[bytes]

    def header(self, request: Request) -> None:
        """The header filter."""
        if request.status != 200 or request.parent is not None or not of_type(request, self.types):
            return
        changed_body(request, dated=True)
        parts = postponed(request)
        first = True

        def body(request: Request, data: bytes, last: bool) -> bytes:
            nonlocal first
            if first and self.before:
                begin(parts, request, self.before)
            first = False
            if last and self.after:
                if data:
                    filters = request.body_filters
                    for body_filter in filters[filters.index(body) + 1 : -1]:
                        data = body_filter(request, data, False)
                    parts.put(data)
                begin(parts, request, self.after)
                return b""
            return data

        request.body_filters = (*request.body_filters, body)


def begin(parts: Postponed, request: Request, target: bytes) -> None:
    """Start a subrequest whose answer stands here."""
    made = Subrequest(request, normalise(target), b"", done=lambda _made: parts.settle())
    made.share_vars(request)
    parts.begin(made)
