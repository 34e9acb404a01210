"""ssi: pages with commands; see edge.ssi.

https://nginx.org/en/docs/http/ngx_http_ssi_module.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, HSLI, MANY, BaseFamily, flag, flag_of, size_of, spec, table
from headrace.edge.families.sub_filter import of_type
from headrace.edge.filters import changed_body
from headrace.edge.postpone import place
from headrace.edge.ssi.page import DATE, Page, Shared, date
from headrace.edge.values import to_bytes

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

INERT = ("ssi_min_file_chunk", "ssi_ignore_recycled_buffers")


class SsiFamily(BaseFamily):
    """ssi and what it may be told."""

    specs = table(
        flag("ssi", HSLI),
        flag("ssi_silent_errors", HSL),
        flag("ssi_last_modified", HSL),
        flag("ssi_ignore_recycled_buffers", HSL),
        spec("ssi_min_file_chunk", HSL, 1),
        spec("ssi_value_length", HSL, 1),
        spec("ssi_types", HSL, 1, MANY),
        spec("subrequest_output_buffer_size", HSL, 1),
    )

    @staticmethod
    def apply(scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        if name in ("ssi_min_file_chunk", "ssi_value_length", "subrequest_output_buffer_size"):
            scope.set_once(directive, size_of(directive))
        elif name == "ssi_types":
            scope.set_once(directive, frozenset(to_bytes(word).lower() for word in directive.args))
        else:
            scope.set_once(directive, flag_of(directive))
        if name in INERT:
            scope.build.means_nothing(directive)
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter; it adds the body filter to pages."""
        for name in ("date_local", "date_gmt"):
            scope.build.variables.define(name, _date(name == "date_gmt"))
        if scope.get("ssi", False):
            types: frozenset[bytes] = scope.get("ssi_types", frozenset())
            rules = Rules(
                types | {b"text/html"},
                silent=scope.get("ssi_silent_errors", False),
                longest=scope.get("ssi_value_length", 256),
                dated=scope.get("ssi_last_modified", False),
            )
            location.add_header_filter("ssi", rules.header)
            location.add_header_filter("postpone", place)


def _date(gmt: bool) -> Callable[[Request], bytes]:
    def get(request: Request) -> bytes:
        form = DATE if request.page is None else request.page.time_format
        return date(form, gmt=gmt)

    return get


@dataclass(frozen=True)
class Rules:
    """What holds for one location."""

    types: frozenset[bytes]
    silent: bool
    longest: int
    dated: bool

    def header(self, request: Request) -> None:
        """The header filter."""
        if request.content_length == 0 or not of_type(request, self.types):
            return
        changed_body(request, dated=self.dated)
        outer = request.parent
        while outer is not None and outer.page is None:
            outer = outer.parent
        shared = outer.page.shared if outer is not None and outer.page is not None else Shared()
        request.page = Page(request, shared, silent=self.silent, longest=self.longest)
        request.body_filters = (*request.body_filters, request.page.body)
