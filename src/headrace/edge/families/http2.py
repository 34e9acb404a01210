"""http2 and its settings.

https://nginx.org/en/docs/http/ngx_http_v2_module.html, as of nginx 1.26: server push is gone, and limits that HTTP/1
has too are named once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, BaseFamily, flag, flag_of, number_of, size_of, spec, table
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

HS: Final = ("http", "server")
_GONE: Final = {
    "http2_idle_timeout": "keepalive_timeout",
    "http2_max_field_size": "large_client_header_buffers",
    "http2_max_header_size": "large_client_header_buffers",
    "http2_max_requests": "keepalive_requests",
    "http2_recv_timeout": "client_header_timeout",
    "http2_max_concurrent_pushes": None,
    "http2_push": None,
    "http2_push_preload": None,
}
"""Directives that nginx warns of and ignores, with those that took their place."""
_INERT: Final = ("http2_recv_buffer_size", "http2_pool_size", "http2_streams_index_size")
_MAX_PREREAD: Final = (1 << 31) - 1


class Http2Family(BaseFamily):
    """Which servers speak HTTP/2, and how."""

    specs = table(
        flag("http2", HS),
        spec("http2_max_concurrent_streams", HS, 1),
        spec("http2_body_preread_size", HS, 1),
        spec("http2_chunk_size", HSL, 1),
        spec("http2_recv_buffer_size", ("http",), 1),
        spec("http2_pool_size", HS, 1),
        spec("http2_streams_index_size", HS, 1),
        *(spec(name, HSL if name.startswith("http2_push") else HS, 1) for name in _GONE),
    )

    def __init__(self) -> None:
        self._noticed: set[str] = set()

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        if name in _GONE:
            instead = _GONE[name]
            advice = f', use the "{instead}" directive instead' if instead else ", ignored"
            scope.build.problems.warn(f'the "{name}" directive is obsolete{advice}', directive.place)
        elif name in _INERT:
            if name not in self._noticed:
                scope.build.problems.warn(f'"{name}" means nothing here: its value is not used', directive.place)
            self._noticed.add(name)
        elif name == "http2":
            scope.set_once(directive, flag_of(directive))
        elif name == "http2_max_concurrent_streams":
            scope.set_once(directive, number_of(directive))
        else:
            size = size_of(directive)
            if size > _MAX_PREREAD:
                raise ConfError(f"the maximum body preread buffer size is {_MAX_PREREAD}", directive.place)
            if name == "http2_chunk_size":
                if size == 0:
                    raise ConfError(f"the {directive.name} value cannot be zero", directive.place)
                size = min(size, (1 << 24) - 1)
            scope.set_once(directive, size)
        return None


def speaks_http2(scope: Scope) -> bool:
    """Whether the server of a scope has `http2 on`."""
    return bool(scope.get("http2", False))
