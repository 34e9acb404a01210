"""Directives with one simple value: times, sizes, flags, numbers; and those of nginx that mean nothing here.

https://nginx.org/en/docs/http/ngx_http_core_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.http1.settings import ServerSettings, ServerStats
from headrace.edge import names
from headrace.edge.families.common import (
    HSL,
    HSLI,
    BaseFamily,
    flag,
    flag_of,
    invalid,
    number_of,
    parse_time,
    size_of,
    spec,
    table,
    time_of,
)
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

HS = ("http", "server")

TIMES = {
    "client_header_timeout": HS,
    "client_body_timeout": HSL,
    "send_timeout": HSL,
    "lingering_time": HSL,
    "lingering_timeout": HSL,
    "keepalive_time": HSL,
}
SIZES = {
    "client_max_body_size": HSL,
    "client_header_buffer_size": HS,
    "client_body_buffer_size": HSL,
    "postpone_output": HSL,
}
NUMBERS = {"keepalive_requests": HSL}
FLAGS = {
    "ignore_invalid_headers": HS,
    "underscores_in_headers": HS,
    "merge_slashes": HS,
    "absolute_redirect": HSL,
    "server_name_in_redirect": HSL,
    "port_in_redirect": HSL,
    "chunked_transfer_encoding": HSL,
    "recursive_error_pages": HSL,
    "log_not_found": HSL,
    "sendfile": HSLI,
    "etag": HSL,
}
INERT: dict[str, tuple[tuple[str, ...], int, int]] = {
    "aio": (HSL, 1, 1),
    "aio_write": (HSL, 1, 1),
    "connection_pool_size": (HS, 1, 1),
    "directio": (HSL, 1, 1),
    "directio_alignment": (HSL, 1, 1),
    "msie_padding": (HSL, 1, 1),
    "open_file_cache": (HSL, 1, 2),
    "open_file_cache_errors": (HSL, 1, 1),
    "open_file_cache_min_uses": (HSL, 1, 1),
    "open_file_cache_valid": (HSL, 1, 1),
    "output_buffers": (HSL, 2, 2),
    "read_ahead": (HSL, 1, 1),
    "referer_hash_bucket_size": (("server", "location"), 1, 1),
    "referer_hash_max_size": (("server", "location"), 1, 1),
    "postpone_gzipping": (HSL, 1, 1),
    "gzip_window": (HSL, 1, 1),
    "gzip_hash": (HSL, 1, 1),
    "gzip_no_buffer": (HSL, 1, 1),
    "request_pool_size": (HS, 1, 1),
    "reset_timedout_connection": (HSL, 1, 1),
    "send_lowat": (HSL, 1, 1),
    "sendfile_max_chunk": (HSL, 1, 1),
    "server_names_hash_bucket_size": (("http",), 1, 1),
    "server_names_hash_max_size": (("http",), 1, 1),
    "tcp_nodelay": (HSL, 1, 1),
    "tcp_nopush": (HSL, 1, 1),
    "types_hash_bucket_size": (HSL, 1, 1),
    "types_hash_max_size": (HSL, 1, 1),
    "variables_hash_bucket_size": (("http",), 1, 1),
    "variables_hash_max_size": (("http",), 1, 1),
}
"""Tuning of nginx's own memory and files: the value changes nothing here, and one notice says so for all."""


class SettingsFamily(BaseFamily):
    """One value each, with nginx's inheritance."""

    specs = table(
        *(spec(name, contexts, 1) for group in (TIMES, SIZES, NUMBERS) for name, contexts in group.items()),
        *(flag(name, contexts) for name, contexts in FLAGS.items()),
        *(spec(name, contexts, least, most) for name, (contexts, least, most) in INERT.items()),
        spec("large_client_header_buffers", HS, 2),
        spec("keepalive_timeout", HSL, 1, 2),
        spec("lingering_close", HSL, 1),
        spec("server_tokens", HSL, 1),
        spec("default_type", HSL, 1),
        spec("client_body_temp_path", HSL, 1, 4),
        spec("client_body_in_file_only", HSL, 1),
        flag("client_body_in_single_buffer", HSL),
    )

    def __init__(self) -> None:
        self._http: dict[tuple[Any, ...], ServerSettings] = {}
        self.stats = ServerStats()
        """Counters of all connections of the gateway."""

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        if name in INERT:
            scope.build.means_nothing(directive)
            return None
        parsers: tuple[tuple[dict[str, Any], Callable[[Directive], object]], ...] = (
            (TIMES, time_of),
            (SIZES, size_of),
            (NUMBERS, number_of),
            (FLAGS, flag_of),
        )
        for group, parse in parsers:
            if name in group:
                scope.set_once(directive, parse(directive))
                return None
        scope.set_once(directive, getattr(self, f"_{name}")(scope, directive))
        return None

    @staticmethod
    def _large_client_header_buffers(_scope: Scope, directive: Directive) -> tuple[int, int]:
        number = directive.args[0]
        if not number.isascii() or not number.isdigit() or int(number) == 0:
            raise invalid(directive)
        return int(number), size_of(directive, 1)

    @staticmethod
    def _keepalive_timeout(_scope: Scope, directive: Directive) -> tuple[float, int]:
        seconds = [parse_time(text) for text in directive.args]
        if None in seconds:
            raise invalid(directive)
        return float(seconds[0] or 0.0), int(seconds[1] or 0) if len(seconds) > 1 else 0

    @staticmethod
    def _lingering_close(_scope: Scope, directive: Directive) -> bool:
        if directive.args[0] not in ("off", "on", "always"):
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        return directive.args[0] != "off"

    @staticmethod
    def _server_tokens(_scope: Scope, directive: Directive) -> bytes:
        tokens = {"on": names.SERVER_FULL, "off": names.SERVER, "build": names.SERVER_BUILD}
        if directive.args[0] not in tokens:
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        return tokens[directive.args[0]]

    @staticmethod
    def _default_type(_scope: Scope, directive: Directive) -> bytes:
        return to_bytes(directive.args[0])

    @staticmethod
    def _client_body_in_file_only(_scope: Scope, directive: Directive) -> str:
        if directive.args[0] not in ("on", "off", "clean"):
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        return directive.args[0]

    @staticmethod
    def _client_body_in_single_buffer(_scope: Scope, directive: Directive) -> bool:
        return flag_of(directive)  # a body in memory always is one piece here

    @staticmethod
    def _client_body_temp_path(scope: Scope, directive: Directive) -> str:
        return scope.build.path(directive.args[0])

    def compose(self, scope: Scope, location: Location) -> None:
        """Put the values in force where requests read them."""
        get = scope.get
        location.max_body = get("client_max_body_size", 1 << 20)
        location.body_buffer = get("client_body_buffer_size", 16384)
        location.body_temp = get("client_body_temp_path", scope.build.body_temp)
        location.body_in_file = get("client_body_in_file_only", "off")
        scope.build.temp_folders.add(location.body_temp)
        location.send_timeout = get("send_timeout", 60.0)
        location.postpone_output = get("postpone_output", 1460)
        location.server_token = get("server_tokens", names.SERVER_FULL)
        location.default_type = get("default_type", b"text/plain")
        location.chunked = get("chunked_transfer_encoding", True)
        location.absolute_redirect = get("absolute_redirect", True)
        location.server_name_in_redirect = get("server_name_in_redirect", False)
        location.port_in_redirect = get("port_in_redirect", True)
        location.recursive_error_pages = get("recursive_error_pages", False)
        location.log_not_found = get("log_not_found", True)
        location.merge_slashes = get("merge_slashes", True)
        location.sendfile = get("sendfile", True)
        location.etag = get("etag", True)
        header = get("keepalive_timeout", (75.0, 0))[1]
        location.keepalive_header = b"Keep-Alive: timeout=%d\r\n" % header if header else b""
        location.http = self.http_settings(scope)

    def http_settings(self, scope: Scope) -> ServerSettings:
        """What the connections of a level are told; the same object for equal values."""
        get = scope.get
        values: dict[str, Any] = {
            "header_timeout": get("client_header_timeout", 60.0),
            "body_timeout": get("client_body_timeout", 60.0),
            "send_timeout": get("send_timeout", 60.0),
            "keepalive_timeout": get("keepalive_timeout", (75.0, 0))[0],
            "keepalive_requests": get("keepalive_requests", 1000),
            "keepalive_time": get("keepalive_time", 3600.0),
            "header_buffer": get("client_header_buffer_size", 1024),
            "large_headers": get("large_client_header_buffers", (4, 8192)),
            "max_body": get("client_max_body_size", 1 << 20),
            "ignore_invalid_headers": get("ignore_invalid_headers", True),
            "underscores_in_headers": get("underscores_in_headers", False),
            "lingering_close": get("lingering_close", True),
            "lingering_time": get("lingering_time", 30.0),
            "lingering_timeout": get("lingering_timeout", 5.0),
            "http2_streams": get("http2_max_concurrent_streams", 128),
            "http2_preread": get("http2_body_preread_size", 65536),
            "http2_chunk": get("http2_chunk_size", 8192),
        }
        key = tuple(values.values())
        if key not in self._http:
            self._http[key] = ServerSettings(**values, stats=self.stats)
        return self._http[key]
