"""resolver, resolver_timeout: which servers are asked for the addresses of names that requests bring.

https://nginx.org/en/docs/http/ngx_http_core_module.html#resolver. The value is a core.dns.Resolver; servers that are
named themselves are looked up when the configuration is read.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from headrace.core.dns import AAAA, A, Resolver
from headrace.edge.families.common import HSL, MANY, BaseFamily, parse_time, spec, table, time_of
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

PORT = 53
TIMEOUT = 30.0
"""Seconds of resolver_timeout where there is none."""


class ResolverFamily(BaseFamily):
    """The family."""

    specs = table(spec("resolver", HSL, 1, MANY), spec("resolver_timeout", HSL, 1))

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See registry.Family."""
        if directive.name == "resolver_timeout":
            scope.set_once(directive, time_of(directive))
            return
        servers: list[tuple[str, int]] = []
        valid: float | None = None
        on = {"ipv4": True, "ipv6": True}
        for text in directive.args:
            name, mark, value = text.partition("=")
            if mark and name == "valid":
                valid = parse_time(value)
                if valid is None:
                    raise ConfError(f"invalid parameter: {text}", directive.place)
            elif mark and name in on:
                if value not in {"on", "off"}:
                    raise ConfError(f"invalid parameter: {text}", directive.place)
                on[name] = value == "on"
            elif mark:
                raise ConfError(f'invalid parameter "{text}" in "resolver" directive', directive.place)
            else:
                servers += _addresses(text, directive)
        kinds = [kind for kind, name in ((A, "ipv4"), (AAAA, "ipv6")) if on[name]]
        if not kinds:
            raise ConfError('"ipv4" and "ipv6" cannot both be "off"', directive.place)
        if not servers:
            raise ConfError("no name servers defined", directive.place)
        scope.set_once(directive, Resolver(servers, valid=valid, kinds=kinds))


def _addresses(text: str, directive: Directive) -> list[tuple[str, int]]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    try:
        number = int(port) if port else PORT
        if not 0 < number < 65536:
            raise ValueError(port)
        found = socket.getaddrinfo(host, number, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise ConfError(f'host not found in resolver "{text}"', directive.place) from error
    except ValueError as error:
        raise ConfError(f'invalid port in resolver "{text}"', directive.place) from error
    return list(dict.fromkeys((str(entry[4][0]), number) for entry in found))
