"""srcache_fetch, srcache_store: answers kept where another location keeps them.

https://github.com/openresty/srcache-nginx-module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import HSL, HSLI, MANY, BaseFamily, flag, flag_of, size_of, spec, table, time_of
from headrace.edge.srcache import HIDDEN, METHODS, VARIABLES, Caching, Way
from headrace.edge.values import compile_value, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

_FLAGS: Final = {
    "srcache_request_cache_control": "request_control",
    "srcache_response_cache_control": "response_control",
    "srcache_store_private": "store_private",
    "srcache_store_no_store": "store_no_store",
    "srcache_store_no_cache": "store_no_cache",
    "srcache_store_ranges": "store_ranges",
    "srcache_ignore_content_encoding": "ignore_encoding",
}
_TIMES: Final = {"srcache_default_expire": "default_expire", "srcache_max_expire": "max_expire"}
_FIELDS: Final = {**_FLAGS, **_TIMES, "srcache_store_max_size": "max_size", "srcache_store_statuses": "statuses"}
"""Directive -> the setting of Caching."""


class SrcacheFamily(BaseFamily):
    """The srcache module."""

    specs = table(
        spec("srcache_fetch", HSLI, 2, 3),
        spec("srcache_store", HSLI, 2, 3),
        spec("srcache_fetch_skip", HSLI, 1),
        spec("srcache_store_skip", HSLI, 1),
        spec("srcache_store_max_size", HSLI, 1),
        spec("srcache_store_statuses", HSLI, 1, MANY),
        spec("srcache_store_hide_header", HSLI, 1),
        spec("srcache_store_pass_header", HSLI, 1),
        spec("srcache_methods", HSL, 1, MANY),
        *(spec(name, HSLI, 1) for name in _TIMES),
        *(flag(name, HSLI) for name in _FLAGS),
        spec("srcache_header_buffer_size", HSLI, 1),
        spec("srcache_buffer", HSLI, 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        if name in _FLAGS:
            scope.set_once(directive, flag_of(directive))
        elif name in _TIMES:
            scope.set_once(directive, time_of(directive))
        elif name in ("srcache_buffer", "srcache_header_buffer_size"):
            size_of(directive)
            scope.build.means_nothing(directive)
        else:
            super().apply(scope, directive)
        return None

    @staticmethod
    def _way(scope: Scope, directive: Directive) -> None:
        method = directive.args[0].upper()
        if method not in METHODS:
            raise ConfError(f'"{directive.name}" specifies bad HTTP method {directive.args[0]}', directive.place)
        texts = [compile_value(text, scope.build.variables, directive.place) for text in directive.args[1:]]
        scope.set_once(directive, Way(to_bytes(method), texts[0], texts[1] if len(texts) > 1 else None))

    _do_srcache_fetch = _do_srcache_store = _way

    @staticmethod
    def _skip(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, compile_value(directive.args[0], scope.build.variables, directive.place))

    _do_srcache_fetch_skip = _do_srcache_store_skip = _skip

    @staticmethod
    def _do_srcache_store_max_size(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, size_of(directive))

    @staticmethod
    def _do_srcache_store_statuses(scope: Scope, directive: Directive) -> None:
        for word in directive.args:
            if not word.isdigit():
                raise ConfError(f'status code "{word}" is an invalid number', directive.place)
        scope.set_once(directive, frozenset(int(word) for word in directive.args))

    @staticmethod
    def _do_srcache_methods(scope: Scope, directive: Directive) -> None:
        for word in directive.args:
            if word not in METHODS:
                raise ConfError(f'invalid value "{word}"', directive.place)
        scope.set_once(directive, frozenset(to_bytes(word) for word in directive.args))

    @staticmethod
    def _name(scope: Scope, directive: Directive) -> None:
        scope.add(directive.name, to_bytes(directive.args[0]).lower())

    _do_srcache_store_hide_header = _do_srcache_store_pass_header = _name

    def compose(self, scope: Scope, location: Location) -> None:
        """Look behind the access phase; keep what the filters of scripts have let through."""
        if location.kind == "server":
            for name, getter in VARIABLES:
                scope.build.variables.define(name, getter)
        caching = Caching(fetch=scope.get("srcache_fetch"), store=scope.get("srcache_store"))
        if caching.fetch is None and caching.store is None:
            return
        caching.fetch_skip, caching.store_skip = scope.get("srcache_fetch_skip"), scope.get("srcache_store_skip")
        for name, setting in _FIELDS.items():
            value = scope.get(name)
            if value is not None:
                setattr(caching, setting, value)
        caching.methods |= scope.get("srcache_methods", frozenset())
        hidden = HIDDEN | set(scope.get("srcache_store_hide_header", ()))
        caching.hidden = hidden - set(scope.get("srcache_store_pass_header", ()))
        location.add(phases.POST_ACCESS, caching.look)
        if caching.store is not None:
            location.add_header_filter("keep", caching.header)
