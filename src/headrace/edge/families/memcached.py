"""The memcached module: answers from memcached, by $memcached_key.

https://nginx.org/en/docs/http/ngx_http_memcached_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, number_of, spec, table
from headrace.edge.families.passing import PASS_CONTEXTS, PassFamily, common_specs, group_for, use_resolver, value_of
from headrace.edge.upstream.address import parse_url
from headrace.edge.upstream.memcached import MemcachedService
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

_COMMON = frozenset(
    "memcached_" + name
    for name in (
        "bind", "buffer_size", "connect_timeout", "next_upstream", "next_upstream_timeout", "next_upstream_tries",
        "read_timeout", "send_timeout", "socket_keepalive",
    )
)  # fmt: skip


class MemcachedFamily(PassFamily):
    """memcached_pass and its kind."""

    prefix = "memcached"
    specs = table(
        spec("memcached_pass", PASS_CONTEXTS[:2], 1),
        *(one for one in common_specs("memcached") if one.name in _COMMON),
        spec("memcached_gzip_flag", HSL, 1),
    )

    def _do_pass(self, scope: Scope, directive: Directive) -> None:
        if "memcached_pass" in scope.settings:
            raise ConfError('"memcached_pass" directive is duplicate', directive.place)
        scope.build.variables.declare("memcached_key", directive.place)
        text = directive.args[0]
        scope.settings["memcached_pass"] = (directive, value_of(scope, directive) if "$" in text else text)

    @staticmethod
    def _do_gzip_flag(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, number_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where memcached_pass stands in it."""
        found = scope.own("memcached_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.intercept_404 = True
        service = MemcachedService(settings, scope.build.upstreams)
        service.flag = scope.get("memcached_gzip_flag", 0)
        if isinstance(target, str):
            url = parse_url(target, 0, "upstream", directive.place)
            if url.unix is None and not url.explicit and url.host.lower() not in scope.build.upstreams:
                raise ConfError(f'no port in upstream "{target}"', directive.place)
            service.fix("memcached", url, group_for(scope, url, directive))
        else:
            service.target = target
        use_resolver(scope, service)
        location.content = service.handle
