"""What the directives of proxy, fastcgi, uwsgi, scgi and memcached have in common: a table by the name's second part.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.edge.families.caching import apply_cache, cache_specs
from headrace.edge.families.common import (
    HSL,
    MANY,
    BaseFamily,
    flag,
    flag_of,
    invalid,
    number_of,
    parse_size,
    refused,
    size_of,
    spec,
    time_of,
)
from headrace.edge.upstream.address import Url, group_of
from headrace.edge.upstream.routing import key_of
from headrace.edge.upstream.settings import HIDDEN, IGNORABLE, NEXT_WORDS, Settings
from headrace.edge.values import Value, compile_value, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.routing import PassService

PASS_CONTEXTS: Final = ("location", "if in location", "limit_except")
_ACCESS: Final = {"r": 4, "w": 2, "rw": 6}


def value_of(scope: Scope, directive: Directive, index: int = 0) -> Value:
    """An argument that may hold variables."""
    return compile_value(directive.args[index], scope.build.variables, directive.place)


class PassFamily(BaseFamily):
    """The common directives of one prefix. `common(...)` makes the specs; `settings_of` reads what is in force."""

    prefix = "proxy"

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if apply_cache(scope, directive, self.prefix):
            return None
        short = directive.name.removeprefix(self.prefix + "_")
        own = getattr(self, f"_do_{short}", None)
        if own is not None:
            own(scope, directive)
            return None
        parse = SIMPLE.get(short)
        if parse is not None:
            scope.set_once(directive, parse(directive))
            return None
        scope.build.means_nothing(directive)
        return None

    def _do_buffers(self, scope: Scope, directive: Directive) -> None:
        number, size = number_of(directive), size_of(directive, 1)
        if number < 2:
            raise ConfError(f'there must be at least 2 "{directive.name}"', directive.place)
        scope.set_once(directive, number * size)

    def _do_limit_rate(self, scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        if "$" in text:
            scope.set_once(directive, value_of(scope, directive))
            return
        size = parse_size(text)
        if size is None:
            raise invalid(directive)
        scope.set_once(directive, b"%d" % size)

    def _do_next_upstream(self, scope: Scope, directive: Directive) -> None:
        words = [word for word in directive.args if word not in NEXT_WORDS]
        if words:
            raise ConfError(f'invalid value "{words[0]}"', directive.place)
        scope.set_once(directive, frozenset() if "off" in directive.args else frozenset(directive.args))

    @staticmethod
    def _do_hide_header(scope: Scope, directive: Directive) -> None:
        scope.add(directive.name, to_bytes(directive.args[0]).lower())

    @staticmethod
    def _do_pass_header(scope: Scope, directive: Directive) -> None:
        scope.add(directive.name, to_bytes(directive.args[0]).lower())

    @staticmethod
    def _do_ignore_headers(scope: Scope, directive: Directive) -> None:
        known = {name.lower() for name in IGNORABLE}
        for word in directive.args:
            if word.lower() not in known:
                raise ConfError(f'invalid value "{word}"', directive.place)
        scope.set_once(directive, frozenset(to_bytes(word).lower() for word in directive.args))

    def _do_bind(self, scope: Scope, directive: Directive) -> None:
        if len(directive.args) > 1:
            if directive.args[1] != "transparent":
                raise ConfError(f'invalid parameter "{directive.args[1]}"', directive.place)
            raise refused(directive, f'the "transparent" parameter of "{directive.name}"')
        scope.set_once(directive, None if directive.args[0] == "off" else value_of(scope, directive))

    def _do_store(self, scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        if text == "off":
            scope.set_once(directive, None)
        elif text == "on":
            scope.set_once(directive, b"")
        else:
            path = text if text.startswith(("/", "$")) else scope.build.path(text)
            scope.set_once(directive, compile_value(path, scope.build.variables, directive.place))

    @staticmethod
    def _do_store_access(scope: Scope, directive: Directive) -> None:
        mode = 0o600
        for word in directive.args:
            who, _, what = word.partition(":")
            if what not in _ACCESS or who not in ("user", "group", "all"):
                raise ConfError(f'invalid value "{word}"', directive.place)
            bits = _ACCESS[what]
            mode |= bits << 6 if who == "user" else bits << 3 if who == "group" else bits << 3 | bits
        scope.set_once(directive, mode)

    @staticmethod
    def _do_temp_path(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, scope.build.path(directive.args[0]))

    def common(self, scope: Scope) -> Settings:
        """The settings in force on a level."""
        prefix = self.prefix

        def get(short: str, default: Any) -> Any:
            return scope.get(f"{prefix}_{short}", default)

        buffer_size = get("buffer_size", 4096)
        temp = get("temp_path", scope.build.path(f"{prefix}_temp"))
        if get("buffering", True) or get("store", None) is not None:
            scope.build.temp_folders.add(temp)
        hidden = (HIDDEN[prefix] | set(get("hide_header", ()))) - set(get("pass_header", ()))
        return Settings(
            prefix=prefix,
            connect_timeout=get("connect_timeout", 60.0),
            send_timeout=get("send_timeout", 60.0),
            read_timeout=get("read_timeout", 60.0),
            buffering=get("buffering", True),
            request_buffering=get("request_buffering", True),
            buffer_size=buffer_size,
            buffers_total=get("buffers", 8 * 4096) + buffer_size,
            max_temp=get("max_temp_file_size", 1 << 30),
            temp_path=temp,
            ignore_abort=get("ignore_client_abort", False),
            intercept_errors=get("intercept_errors", False),
            pass_headers=get("pass_request_headers", True),
            pass_body=get("pass_request_body", True),
            limit_rate=get("limit_rate", None),
            next_upstream=get("next_upstream", frozenset(("error", "timeout"))),
            next_timeout=get("next_upstream_timeout", 0.0),
            next_tries=get("next_upstream_tries", 0),
            hidden=frozenset(hidden),
            own_server=bool({b"server", b"date"} & HIDDEN[prefix] - hidden),
            ignored=get("ignore_headers", frozenset()),
            bind=get("bind", None),
            keepalive_socket=get("socket_keepalive", False),
            store=get("store", None),
            force_ranges=get("force_ranges", False),
            store_access=get("store_access", 0o600),
        )


SIMPLE: Final[dict[str, Callable[[Directive], Any]]] = {
    "connect_timeout": time_of,
    "send_timeout": time_of,
    "read_timeout": time_of,
    "next_upstream_timeout": time_of,
    "next_upstream_tries": number_of,
    "buffer_size": size_of,
    "max_temp_file_size": size_of,
    "buffering": flag_of,
    "request_buffering": flag_of,
    "ignore_client_abort": flag_of,
    "intercept_errors": flag_of,
    "pass_request_headers": flag_of,
    "pass_request_body": flag_of,
    "socket_keepalive": flag_of,
    "force_ranges": flag_of,
}

_FLAGS: Final = (
    "buffering", "ignore_client_abort", "intercept_errors", "pass_request_headers", "pass_request_body",
    "request_buffering", "socket_keepalive", "force_ranges",
)  # fmt: skip


def common_specs(prefix: str) -> tuple[Spec, ...]:
    """The directives that all of them have, under one prefix."""
    one = ("connect_timeout", "send_timeout", "read_timeout", "next_upstream_timeout", "next_upstream_tries",
           "buffer_size", "max_temp_file_size", "limit_rate", "hide_header", "pass_header", "store",
           "busy_buffers_size", "temp_file_write_size", "send_lowat")  # fmt: skip
    return (
        *(flag(f"{prefix}_{name}", HSL) for name in _FLAGS),
        *(spec(f"{prefix}_{name}", HSL, 1) for name in one),
        spec(f"{prefix}_buffers", HSL, 2),
        spec(f"{prefix}_next_upstream", HSL, 1, MANY),
        spec(f"{prefix}_ignore_headers", HSL, 1, MANY),
        spec(f"{prefix}_bind", HSL, 1, 2),
        spec(f"{prefix}_store_access", HSL, 1, 3),
        spec(f"{prefix}_temp_path", HSL, 1, 4),
        *cache_specs(prefix),
    )


def group_for(scope: Scope, url: Url, directive: Directive) -> Group:
    """The upstream of that name, or the group of a host's addresses."""
    groups: dict[str, Group] = scope.build.upstreams
    name = url.host.lower()
    if url.unix is None and name in groups:
        if url.explicit:
            raise ConfError(f'upstream "{url.host}" may not have port {url.port}', directive.place)
        return groups[name]
    key = key_of(url)
    if key not in groups:
        groups[key] = group_of(url, "upstream", directive.place)
    return groups[key]


def use_resolver(scope: Scope, service: PassService) -> None:
    """Let names that come from variables be asked for."""
    service.resolver = scope.get("resolver")
    service.resolver_timeout = scope.get("resolver_timeout", 30.0)
