"""limit_rate, limit_rate_after: how fast answers go to a client.

https://nginx.org/en/docs/http/ngx_http_core_module.html#limit_rate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge.families.common import HSLI, BaseFamily, spec, table
from headrace.edge.pace import bytes_of, pace
from headrace.edge.values import Value, compile_value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class RateFamily(BaseFamily):
    """The rate of answers; 0 is no limit. `set $limit_rate 4k` goes before the directive."""

    specs = table(spec("limit_rate", HSLI, 1), spec("limit_rate_after", HSLI, 1))

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See registry.Family."""
        value = compile_value(directive.args[0], scope.build.variables, directive.place)
        if isinstance(value, bytes) and bytes_of(value) is None:
            raise ConfError(f'"{directive.name}" directive invalid value', directive.place)
        scope.set_once(directive, value)

    def compose(self, scope: Scope, location: Location) -> None:
        """The exchange is paced when the header is decided."""
        rate, after = scope.get("limit_rate"), scope.get("limit_rate_after")
        if rate is not None or after is not None:
            location.add_header_filter("pace", _filter(rate, after))


def _filter(rate: Value | None, after: Value | None) -> Callable[[Request], None]:
    def start(request: Request) -> None:
        pace(request, _size(rate, request), after=_size(after, request) or 0)

    return start


def _size(value: Value | None, request: Request) -> int | None:
    """Bytes; None for what is not given or no size."""
    return None if value is None else bytes_of(evaluate(value, request))
