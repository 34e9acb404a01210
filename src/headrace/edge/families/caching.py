"""The ..._cache_... directives of proxy, fastcgi, scgi and uwsgi.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.edge.families.common import (
    HSL,
    MANY,
    flag,
    flag_of,
    invalid,
    number_of,
    parse_size,
    parse_time,
    size_of,
    spec,
    time_of,
)
from headrace.edge.upstream.cache.cacher import CacheSettings
from headrace.edge.upstream.cache.zone import Zone
from headrace.edge.upstream.settings import NEXT_WORDS
from headrace.edge.values import compile_value
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

_FLAGS: Final = ("lock", "revalidate", "background_update")
_NUMBERS: Final = ("min_uses", "lock_timeout", "lock_age", "max_range_offset")
_METHODS: Final = ("GET", "HEAD", "POST")
_TUNING: Final = frozenset(
    ("use_temp_path", "manager_files", "manager_sleep", "manager_threshold", "loader_files", "loader_sleep",
     "loader_threshold")
)  # fmt: skip


def cache_specs(prefix: str) -> tuple[Spec, ...]:
    """The directives under one prefix."""
    return (
        spec(f"{prefix}_cache", HSL, 1),
        spec(f"{prefix}_cache_path", ("http",), 2, MANY),
        spec(f"{prefix}_cache_key", HSL, 1),
        spec(f"{prefix}_cache_valid", HSL, 1, MANY),
        spec(f"{prefix}_cache_use_stale", HSL, 1, MANY),
        spec(f"{prefix}_cache_bypass", HSL, 1, MANY),
        spec(f"{prefix}_no_cache", HSL, 1, MANY),
        spec(f"{prefix}_cache_purge", HSL, 1, MANY),
        spec(f"{prefix}_cache_methods", HSL, 1, MANY),
        *(spec(f"{prefix}_cache_{name}", HSL, 1) for name in _NUMBERS),
        *(flag(f"{prefix}_cache_{name}", HSL) for name in _FLAGS),
        *((flag("proxy_cache_convert_head", HSL),) if prefix == "proxy" else ()),
    )  # fmt: skip


def apply_cache(scope: Scope, directive: Directive, prefix: str) -> bool:
    """Take one of the directives; False when it is none of these. Raises ConfError."""
    name = directive.name.removeprefix(f"{prefix}_")
    if name not in {"no_cache", "cache"} and not name.startswith("cache_"):
        return False
    own = _OWN.get(name.removeprefix("cache_"))
    if own is not None:
        own(scope, directive)
    else:
        scope.set_once(directive, _SIMPLE.get(name.removeprefix("cache_"), flag_of)(directive))
    return True


def _cache(scope: Scope, directive: Directive) -> None:
    text = directive.args[0]
    scope.set_once(directive, compile_value(text, scope.build.variables, directive.place) if "$" in text else text)


def _predicate(scope: Scope, directive: Directive) -> None:
    for word in directive.args:
        scope.add(directive.name, compile_value(word, scope.build.variables, directive.place))


def _key(scope: Scope, directive: Directive) -> None:
    scope.set_once(directive, compile_value(directive.args[0], scope.build.variables, directive.place))


def _use_stale(directive: Directive) -> frozenset[str]:
    for word in directive.args:
        if word not in NEXT_WORDS or word in ("non_idempotent", "not_found"):
            raise ConfError(f'invalid value "{word}"', directive.place)
    return frozenset() if "off" in directive.args else frozenset(directive.args)


def _methods(directive: Directive) -> frozenset[bytes]:
    for word in directive.args:
        if word.upper() not in _METHODS:
            raise ConfError(f'invalid value "{word}"', directive.place)
    return frozenset(word.upper().encode() for word in directive.args) | {b"GET", b"HEAD"}


def _valid(scope: Scope, directive: Directive) -> None:
    *statuses, text = directive.args
    seconds = parse_time(text)
    if seconds is None:
        raise ConfError(f'invalid time value "{text}"', directive.place)
    table: dict[int, float] = scope.settings.setdefault(directive.name, {})
    for word in statuses or ("200", "301", "302"):
        if word == "any":
            table.setdefault(0, seconds)
        elif word.isdigit() and 100 <= int(word) <= 599:
            table.setdefault(int(word), seconds)
        else:
            raise ConfError(f'invalid status "{word}"', directive.place)


def _zone(scope: Scope, directive: Directive) -> None:
    path = scope.build.path(directive.args[0])
    values: dict[str, Any] = {}
    name = ""
    levels: tuple[int, ...] = ()
    for word in directive.args[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfError(f'invalid parameter "{word}"', directive.place)
        if key == "levels":
            digits = value.split(":")
            if len(digits) > 3 or any(digit not in ("1", "2") for digit in digits):
                raise ConfError(f'invalid "levels" "{word}"', directive.place)
            levels = tuple(int(digit) for digit in digits)
        elif key == "keys_zone":
            name, colon, size = value.partition(":")
            if not name or not colon or (parse_size(size) or 0) < 8192:
                raise ConfError(f'invalid keys zone size "{word}"', directive.place)
        elif key == "inactive":
            values["inactive"] = parse_time(value)
        elif key in ("max_size", "min_free"):
            values[key] = parse_size(value)
        elif key not in _TUNING:
            raise ConfError(f'invalid parameter "{word}"', directive.place)
        if None in values.values():
            raise ConfError(f'invalid {key} value "{word}"', directive.place)
    if not name:
        raise ConfError(f'"{directive.name}" must have "keys_zone" parameter', directive.place)
    if name in scope.build.cache_zones:
        raise ConfError(f'duplicate zone "{name}"', directive.place)
    scope.build.cache_zones[name] = Zone(name, path, levels, **values)
    scope.build.temp_folders.add(path)


_SIMPLE: Final[dict[str, Callable[[Directive], Any]]] = {
    "use_stale": _use_stale,
    "methods": _methods,
    "min_uses": number_of,
    "lock_timeout": time_of,
    "lock_age": time_of,
    "max_range_offset": size_of,
}
_OWN: Final[dict[str, Callable[[Scope, Directive], None]]] = {
    "path": _zone,
    "cache": _cache,
    "bypass": _predicate,
    "purge": _predicate,
    "no_cache": _predicate,
    "key": _key,
    "valid": _valid,
}


def cache_settings(scope: Scope, prefix: str, directive: Directive) -> CacheSettings | None:
    """What is in force on a level; None without a cache. Raises ConfError."""

    def get(short: str, default: Any = None) -> Any:
        return scope.get(f"{prefix}_{short}", default)

    name = get("cache", "off")
    if name == "off":
        return None
    zone = scope.build.cache_zones.get(name) if isinstance(name, str) else None
    if zone is None and isinstance(name, str):
        raise ConfError(f'"{prefix}_cache" zone "{name}" is unknown', directive.place)
    key = get("cache_key")
    if key is None and prefix != "proxy":
        raise ConfError(f'no "{prefix}_cache_key" for "{prefix}_cache"', directive.place)
    if get("cache_min_uses", 1) < 0:
        raise invalid(directive)
    return CacheSettings(
        name=None if isinstance(name, str) else name,
        zones=scope.build.cache_zones,
        zone=zone,
        key=key,
        valid=get("cache_valid", {}),
        methods=get("cache_methods", frozenset((b"GET", b"HEAD"))),
        bypass=tuple(get("cache_bypass", ())),
        no_cache=tuple(get("no_cache", ())),
        purge=tuple(get("cache_purge", ())),
        stale=get("cache_use_stale", frozenset()),
        min_uses=get("cache_min_uses", 1),
        lock=get("cache_lock", False),
        lock_timeout=get("cache_lock_timeout", 5.0),
        lock_age=get("cache_lock_age", 5.0),
        revalidate=get("cache_revalidate", False),
        background=get("cache_background_update", False),
        max_offset=get("cache_max_range_offset"),
        convert_head=get("cache_convert_head", True),
    )
