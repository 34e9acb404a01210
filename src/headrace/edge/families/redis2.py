"""redis2: commands of the configuration for Redis, whose replies are the answer as they are.

https://github.com/openresty/redis2-nginx-module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, MANY, spec, table
from headrace.edge.families.memcached import TextFamily, lead
from headrace.edge.families.passing import PASS_CONTEXTS, common_specs, value_of
from headrace.edge.upstream.redis2 import RedisService
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

_COMMON: Final = ("redis2_buffer_size", "redis2_connect_timeout", "redis2_read_timeout", "redis2_send_timeout")
_LOCATION: Final = PASS_CONTEXTS[:2]


class Redis2Family(TextFamily):
    """redis2_pass and its kind."""

    prefix = "redis2"
    specs = table(
        spec("redis2_pass", _LOCATION, 1),
        spec("redis2_query", _LOCATION, 1, MANY),
        spec("redis2_raw_query", _LOCATION, 1),
        spec("redis2_raw_queries", _LOCATION, 2),
        spec("redis2_literal_raw_query", _LOCATION, 1),
        spec("redis2_next_upstream", HSL, 1, MANY),
        *(one for one in common_specs("redis2") if one.name in _COMMON),
    )

    def _do_pass(self, scope: Scope, directive: Directive) -> None:
        if "redis2_pass" in scope.settings:
            raise ConfError('"redis2_pass" directive is duplicate', directive.place)
        text = directive.args[0]
        scope.settings["redis2_pass"] = (directive, value_of(scope, directive) if "$" in text else text)

    @staticmethod
    def _do_query(scope: Scope, directive: Directive) -> None:
        scope.add("redis2_query", tuple(value_of(scope, directive, at) for at in range(len(directive.args))))

    @staticmethod
    def _do_raw_query(scope: Scope, directive: Directive) -> None:
        _set_raw(scope, directive, (b"1", value_of(scope, directive)))

    @staticmethod
    def _do_raw_queries(scope: Scope, directive: Directive) -> None:
        _set_raw(scope, directive, (value_of(scope, directive), value_of(scope, directive, 1)))

    @staticmethod
    def _do_literal_raw_query(scope: Scope, directive: Directive) -> None:
        _set_raw(scope, directive, (b"1", to_bytes(directive.args[0])))

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where redis2_pass stands in it."""
        found = scope.own("redis2_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.buffering = False
        service = RedisService(settings, scope.build.upstreams)
        raw = scope.get("redis2_raw")
        queries = scope.get("redis2_query", ())
        if raw is not None and queries:
            raise ConfError('"redis2_query" cannot be used with a raw query', directive.place)
        service.raw, service.queries = raw, tuple(queries)
        lead(scope, service, directive, target)
        location.content = service.handle


def _set_raw(scope: Scope, directive: Directive, raw: object) -> None:
    if "redis2_raw" in scope.settings:
        raise ConfError(f'"{directive.name}" directive is duplicate', directive.place)
    scope.settings["redis2_raw"] = raw
