"""sub_filter: texts of an answer replaced by others, across the pieces that it comes in.

https://nginx.org/en/docs/http/ngx_http_sub_module.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, MANY, BaseFamily, flag, flag_of, spec, table
from headrace.edge.filters import changed_body
from headrace.edge.values import Value, compile_value, evaluate, to_bytes

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class SubFamily(BaseFamily):
    """sub_filter and what it may be told."""

    specs = table(
        spec("sub_filter", HSL, 2),
        spec("sub_filter_types", HSL, 1, MANY),
        flag("sub_filter_once", HSL),
        flag("sub_filter_last_modified", HSL),
    )

    @staticmethod
    def apply(scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name == "sub_filter":
            variables, place = scope.build.variables, directive.place
            scope.add("sub_filter", tuple(compile_value(text, variables, place) for text in directive.args))
        elif directive.name == "sub_filter_types":
            scope.set_once(directive, frozenset(to_bytes(word).lower() for word in directive.args))
        else:
            scope.set_once(directive, flag_of(directive))
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter; it adds the body filter to the answers of the types."""
        pairs: list[tuple[Value, Value]] | None = scope.get("sub_filter")
        if pairs:
            types: frozenset[bytes] = scope.get("sub_filter_types", frozenset())
            rules = Rules(
                tuple(pairs),
                types | {b"text/html"},
                once=scope.get("sub_filter_once", True),
                dated=scope.get("sub_filter_last_modified", False),
            )
            location.add_header_filter("sub", rules.header)


@dataclass(frozen=True)
class Rules:
    """What holds for one location. dated: Last-Modified stays."""

    pairs: tuple[tuple[Value, Value], ...]
    types: frozenset[bytes]
    once: bool
    dated: bool

    def header(self, request: Request) -> None:
        """The header filter."""
        if request.content_length == 0 or not of_type(request, self.types):
            return
        found = [(evaluate(match, request), value) for match, value in self.pairs]
        pairs = [(match.lower(), value) for match, value in found if match]
        if not pairs:
            return
        changed_body(request, dated=self.dated)
        request.body_filters = (*request.body_filters, Replacing(pairs, once=self.once).body)


def of_type(request: Request, types: frozenset[bytes]) -> bool:
    """Whether the answer's type is one of these; `*` is any."""
    return b"*" in types or (request.content_type or b"").partition(b";")[0].strip().lower() in types


class Replacing:
    """One answer on its way. Of several texts at one place the one that was configured first counts."""

    def __init__(self, pairs: list[tuple[bytes, Value]], *, once: bool) -> None:
        self._pairs: dict[bytes, Value] = {}
        for match, value in pairs:
            self._pairs.setdefault(match, value)
        self._once = once
        self._held = b""
        self._compile()

    def _compile(self) -> None:
        words = list(self._pairs)
        self._longest = max((len(word) for word in words), default=0)
        self._pattern = re.compile(b"|".join(re.escape(word) for word in words), re.IGNORECASE) if words else None

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter: what may be the beginning of a text waits for the rest."""
        data = self._held + data
        self._held = b""
        out: list[bytes] = []
        at = 0
        while self._pattern is not None:
            match = self._pattern.search(data, at)
            if match is None:
                break
            word = match.group().lower()
            out += (data[at : match.start()], evaluate(self._pairs[word], request))
            at = match.end()
            if self._once:
                del self._pairs[word]
                self._compile()
        rest = data[at:] if at else data
        if not last and self._pattern is not None:
            keep = self._beginning(rest)
            if keep:
                self._held, rest = rest[-keep:], rest[:-keep]
        out.append(rest)
        return b"".join(out)

    def _beginning(self, rest: bytes) -> int:
        """How many of the last bytes may begin a text."""
        tail = rest[-(self._longest - 1) :].lower() if self._longest > 1 else b""
        for size in range(len(tail), 0, -1):
            end = tail[-size:]
            if any(word.startswith(end) for word in self._pairs):
                return size
        return 0
