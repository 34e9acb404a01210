"""What some browsers need: msie_refresh, keepalive_disable.

https://nginx.org/en/docs/http/ngx_http_core_module.html#msie_refresh, #keepalive_disable
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, MANY, BaseFamily, flag, flag_of, spec, table
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.filters import HeaderFilter
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

_MSIE6: Final = re.compile(rb"MSIE [45]\.|MSIE 6\.(?!.*SV1)")


def _is_msie6(request: Request) -> bool:
    return request.method == b"POST" and _MSIE6.search(request.header_in(b"user-agent") or b"") is not None


def _is_safari(request: Request) -> bool:
    agent = request.header_in(b"user-agent") or b""
    return b"Safari/" in agent and b"Mac OS X" in agent and b"Chrome/" not in agent


_BROWSERS: Final = {"msie6": _is_msie6, "safari": _is_safari}


class OldClientsFamily(BaseFamily):
    """Both directives."""

    specs = table(flag("msie_refresh", HSL), spec("keepalive_disable", HSL, 1, MANY))

    @staticmethod
    def _do_msie_refresh(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    @staticmethod
    def _do_keepalive_disable(scope: Scope, directive: Directive) -> None:
        for word in directive.args:
            if word not in ("none", *_BROWSERS):
                raise ConfError(f'invalid value "{word}"', directive.place)
        scope.set_once(directive, tuple(word for word in directive.args if word != "none"))

    def compose(self, scope: Scope, location: Location) -> None:
        """See registry.Family."""
        location.msie_refresh = scope.get("msie_refresh", False)
        words: tuple[str, ...] = scope.get("keepalive_disable", ())
        if words:
            location.add_header_filter("headers", _closer(words))


def _closer(words: tuple[str, ...]) -> HeaderFilter:
    tests = tuple(_BROWSERS[word] for word in words)

    def close(request: Request) -> None:
        if any(test(request) for test in tests):
            request.exchange.keep_alive = False

    return close
