"""The memcached module: answers from memcached, by $memcached_key; and memc, with all its commands.

https://nginx.org/en/docs/http/ngx_http_memcached_module.html
https://github.com/openresty/memc-nginx-module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, HSLI, MANY, flag, flag_of, number_of, spec, table
from headrace.edge.families.passing import PASS_CONTEXTS, PassFamily, common_specs, group_for, use_resolver, value_of
from headrace.edge.upstream.address import parse_url
from headrace.edge.upstream.memc import COMMANDS, MemcService
from headrace.edge.upstream.memcached import MemcachedService
from headrace.edge.upstream.settings import ERROR, INVALID_HEADER, TIMEOUT
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope
    from headrace.edge.upstream.routing import PassService
    from headrace.edge.values import Value

_COMMON = frozenset(
    "memcached_" + name
    for name in (
        "bind", "buffer_size", "connect_timeout", "next_upstream", "next_upstream_timeout", "next_upstream_tries",
        "read_timeout", "send_timeout", "socket_keepalive", "force_ranges",
    )
)  # fmt: skip


_NEXT: Final = {
    "error": ERROR, "timeout": TIMEOUT, "invalid_response": INVALID_HEADER, "not_found": "http_404", "off": "off",
}  # fmt: skip
"""A word of ..._next_upstream -> the kind of failure."""


class TextFamily(PassFamily):
    """What protocols of lines have in common: the names of failures."""

    def _do_next_upstream(self, scope: Scope, directive: Directive) -> None:
        words = [word for word in directive.args if word not in _NEXT]
        if words:
            raise ConfError(f'invalid value "{words[0]}"', directive.place)
        kinds = frozenset(_NEXT[word] for word in directive.args)
        scope.set_once(directive, frozenset() if "off" in kinds else kinds)


class MemcachedFamily(TextFamily):
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
        lead(scope, service, directive, target)
        location.content = service.handle


class MemcFamily(TextFamily):
    """memc_pass and its kind."""

    prefix = "memc"
    specs = table(
        spec("memc_pass", PASS_CONTEXTS[:2], 1),
        *(
            one
            for one in common_specs("memc")
            if one.name.removeprefix("memc_") in ("buffer_size", "connect_timeout", "read_timeout", "send_timeout")
        ),
        spec("memc_next_upstream", HSL, 1, MANY),
        spec("memc_cmds_allowed", HSLI, 1, MANY),
        flag("memc_flags_to_last_modified", PASS_CONTEXTS[:2]),
        flag("memc_ignore_client_abort", PASS_CONTEXTS[:2]),
    )

    def _do_pass(self, scope: Scope, directive: Directive) -> None:
        if "memc_pass" in scope.settings:
            raise ConfError('"memc_pass" directive is duplicate', directive.place)
        for name in ("cmd", "key", "value", "flags", "exptime"):
            scope.build.variables.declare(f"memc_{name}", directive.place)
        text = directive.args[0]
        scope.settings["memc_pass"] = (directive, value_of(scope, directive) if "$" in text else text)

    @staticmethod
    def _do_cmds_allowed(scope: Scope, directive: Directive) -> None:
        words = frozenset(word.encode() for word in directive.args)
        unknown = sorted(words - COMMANDS)
        if unknown:
            raise ConfError(f'unknown command "{unknown[0].decode()}" in "memc_cmds_allowed"', directive.place)
        scope.set_once(directive, words)

    @staticmethod
    def _do_flags_to_last_modified(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where memc_pass stands in it."""
        found = scope.own("memc_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.intercept_404 = settings.intercept_errors = True
        service = MemcService(settings, scope.build.upstreams)
        service.allowed = scope.get("memc_cmds_allowed", COMMANDS)
        service.dated = scope.get("memc_flags_to_last_modified", False)
        lead(scope, service, directive, target)
        location.content = service.handle


def lead(scope: Scope, service: PassService, directive: Directive, target: str | Value) -> None:
    """Tell a service of such a protocol where it leads to."""
    if isinstance(target, str):
        url = parse_url(target, 0, "upstream", directive.place)
        if url.unix is None and not url.explicit and url.host.lower() not in scope.build.upstreams:
            raise ConfError(f'no port in upstream "{target}"', directive.place)
        service.fix(service.scheme, url, group_for(scope, url, directive))
    else:
        service.target = target
    use_resolver(scope, service)
