"""allow, deny, satisfy: who may.

https://nginx.org/en/docs/http/ngx_http_access_module.html
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from headrace.edge import log, phases
from headrace.edge.connection import client_text
from headrace.edge.families.common import HSL, BaseFamily, spec, table, time_of
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Rule = tuple[bool, Network | str]


class AccessFamily(BaseFamily):
    """Rules by address: the first that matches decides."""

    specs = table(
        spec("allow", (*HSL, "limit_except"), 1),
        spec("deny", (*HSL, "limit_except"), 1),
        spec("satisfy", HSL, 1),
        spec("auth_delay", HSL, 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        text = directive.args[0]
        if directive.name == "satisfy":
            if text not in ("all", "any"):
                raise ConfError(f'invalid value "{text}"', directive.place)
            scope.set_once(directive, text)
            return None
        if directive.name == "auth_delay":
            scope.set_once(directive, time_of(directive))
            return None
        what: Network | str = text
        if text not in ("all", "unix:"):
            try:
                what = ipaddress.ip_network(text, strict=False)
            except ValueError:
                raise ConfError(f'invalid parameter "{text}"', directive.place) from None
            if what.with_prefixlen != text and "/" in text and what.network_address != ipaddress.ip_interface(text).ip:
                scope.build.problems.warn(f"low address bits of {text} are meaningless", directive.place)
        scope.add("access_rules", (directive.name == "allow", what))
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Check in the access phase, before scripts do."""
        location.auth_delay = scope.get("auth_delay", 0.0)
        location.satisfy_any = scope.get("satisfy") == "any"
        rules: list[Rule] | None = scope.get("access_rules")
        if rules:
            location.add(phases.ACCESS, _checker(tuple(rules), quiet=location.satisfy_any))


def _checker(rules: tuple[Rule, ...], *, quiet: bool) -> Handler:
    def check(request: Request) -> int | None:
        peer = client_text(request).decode()
        address = None if peer == "unix:" else ipaddress.ip_address(peer.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            address = mapped
        for allow, what in rules:
            if what == "all" or (what == "unix:" and address is None):
                found = True
            else:
                found = not isinstance(what, str) and address is not None and address in what
            if found:
                if allow:
                    return phases.OK
                if not quiet:
                    request.log_error(log.ERR, b"access forbidden by rule")
                return 403
        return None

    return check
