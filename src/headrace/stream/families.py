"""The directives of stream {}.

https://nginx.org/en/docs/stream/ngx_stream_core_module.html and the stream modules behind it. What means the same as
in http (maps, addresses, upstreams, logs, TLS) is edge's family with the contexts of this block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.edge.families.access import AccessFamily
from headrace.edge.families.common import (
    MANY,
    BaseFamily,
    block,
    flag,
    flag_of,
    number_of,
    size_of,
    spec,
    table,
    time_of,
)
from headrace.edge.families.geo import GeoFamily
from headrace.edge.families.http import server_name
from headrace.edge.families.limit_conn import LimitConnFamily
from headrace.edge.families.logs import LogFamily
from headrace.edge.families.maps import MapFamily, variable_name
from headrace.edge.families.proxy_tls import PROXY_TLS_SPECS, apply_tls, tls_settings
from headrace.edge.families.realip import RealipFamily
from headrace.edge.families.resolver import TIMEOUT, ResolverFamily
from headrace.edge.families.tls import TlsFamily, server_tls
from headrace.edge.families.tls_ocsp import OCSP_NAMES
from headrace.edge.families.upstream import UpstreamFamily
from headrace.edge.listen import parse_listen
from headrace.edge.scope import Build, Scope
from headrace.edge.upstream.address import group_of, parse_url
from headrace.edge.upstream.routing import key_of
from headrace.edge.values import compile_value
from headrace.edge.variables import Variables
from headrace.errors import ConfError
from headrace.stream.ports import Ports
from headrace.stream.service import StreamServer, StreamService
from headrace.stream.steps import answer, setter
from headrace.stream.variables import CORE, PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.registry import Family
    from headrace.stream.settings import ProxySettings

SS: Final = ("stream", "stream server")
SERVER: Final = ("stream server",)
_MOVED: Final = {"http": "stream", "server": "stream server", "upstream": "stream upstream"}
_TIMES: Final = (
    "proxy_timeout", "proxy_connect_timeout", "proxy_next_upstream_timeout", "preread_timeout",
    "proxy_protocol_timeout", "ssl_handshake_timeout",
)  # fmt: skip
_FLAGS: Final = (
    "proxy_protocol", "proxy_half_close", "proxy_next_upstream", "proxy_ssl", "proxy_socket_keepalive", "ssl_preread",
)  # fmt: skip
_HASHES: Final = tuple(
    f"{kind}_hash_{what}_size" for kind in ("variables", "server_names") for what in ("max", "bucket")
)
_NOT_UDP: Final = ("backlog", "ssl", "so_keepalive", "proxy_protocol", "deferred", "fastopen")


def moved(specs: Mapping[str, Spec], *without: str) -> dict[str, Spec]:
    """Directives of http with their meaning in this block."""
    found: dict[str, Spec] = {}
    for name, one in specs.items():
        contexts = frozenset(_MOVED[context] for context in one.contexts if context in _MOVED)
        if contexts and name not in without:
            inside = "stream upstream" if name == "upstream" else one.inside
            found[name] = replace(one, contexts=contexts, inside=inside)
    return found


class _Borrowed:
    """A family of edge in this block: http's locations are not its matter."""

    def compose(self, scope: Scope, location: Location) -> None:
        """See registry.Family: nothing in http."""

    def compose_server(self, scope: Scope, server: StreamServer) -> None:
        """What the family does to a location of http it does to a server of this block."""
        above: Any = super()
        above.compose(scope, server)


class _Maps(_Borrowed, MapFamily):
    specs = moved(MapFamily.specs)


class _Geo(_Borrowed, GeoFamily):
    specs = moved(GeoFamily.specs)


class _Upstreams(_Borrowed, UpstreamFamily):
    specs = moved(
        UpstreamFamily.specs, "ip_hash", "keepalive", "keepalive_requests", "keepalive_timeout", "keepalive_time"
    )


class _Access(_Borrowed, AccessFamily):
    specs = moved(AccessFamily.specs, "satisfy", "auth_delay")


class _Realip(_Borrowed, RealipFamily):
    specs = moved(RealipFamily.specs, "real_ip_header", "real_ip_recursive")

    def compose_server(self, scope: Scope, server: StreamServer) -> None:
        """See _Borrowed; addresses come by the PROXY protocol."""
        scope.settings["real_ip_header"] = b"proxy_protocol"
        super().compose_server(scope, server)


class _Limits(_Borrowed, LimitConnFamily):
    specs = moved(LimitConnFamily.specs, "limit_conn_status")


class _Logs(_Borrowed, LogFamily):
    specs = moved(LogFamily.specs, "log_subrequest")

    def compose_server(self, scope: Scope, server: StreamServer) -> None:
        """See _Borrowed; without access_log there is none here."""
        if scope.get("access_log") is None:
            scope.settings["access_log"] = []
        super().compose_server(scope, server)


class _Resolver(_Borrowed, ResolverFamily):
    specs = moved(ResolverFamily.specs)


class _Tls(_Borrowed, TlsFamily):
    specs = moved(TlsFamily.specs, "ssl_early_data", "ssl_buffer_size", *OCSP_NAMES) | table(
        spec("ssl_alpn", SS, 1, MANY)
    )


class Script(Protocol):
    """A family of a language: it adds steps and content to servers when all else is known of them."""

    def before_tls(self, scope: Scope) -> None:
        """Say what the handshakes of the level run (edge.families.tls.server_tls takes it)."""
        ...

    def compose_server(self, scope: Scope, server: StreamServer) -> None:
        """Add what the level's directives say."""
        ...


def stream_families(scripts: Sequence[Script] = ()) -> list[Family]:
    """Fresh instances of all families of the block, the block's own first. scripts: those of languages."""
    kinds = (_Realip, _Limits, _Access, _Maps, _Geo, _Upstreams, _Logs, _Tls, _Resolver)
    borrowed: tuple[Any, ...] = tuple(kind() for kind in kinds)
    return [StreamFamily(borrowed, scripts), *borrowed]


class StreamFamily(BaseFamily):
    """`stream`, its servers, and what they do with a connection."""

    specs = table(
        replace(block("stream", ("main",), 0), inside="stream"),
        replace(block("server", ("stream",), 0), inside="stream server"),
        spec("listen", SERVER, 1, 1 << 30),
        spec("proxy_pass", SERVER, 1),
        spec("return", SERVER, 1),
        spec("server_name", SERVER, 1, 1 << 30),
        *(spec(name, ("stream",), 1) for name in _HASHES),
        spec("set", SERVER, 2),
        *(spec(name, SS, 1) for name in _TIMES),
        *(flag(name, SS) for name in _FLAGS),
        spec("proxy_buffer_size", SS, 1),
        spec("proxy_upload_rate", SS, 1),
        spec("proxy_download_rate", SS, 1),
        spec("proxy_bind", SS, 1, 2),
        spec("proxy_next_upstream_tries", SS, 1),
        spec("proxy_requests", SS, 1),
        spec("proxy_responses", SS, 1),
        spec("preread_buffer_size", SS, 1),
        spec("tcp_nodelay", SS, 1),
        *(replace(one, contexts=frozenset(SS)) for one in PROXY_TLS_SPECS),
    )

    def __init__(self, borrowed: Iterable[Any], scripts: Sequence[Script] = ()) -> None:
        self._borrowed = tuple(borrowed)
        self._scripts = tuple(scripts)
        self._servers: list[Scope] = []
        self._service = StreamService()

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name = directive.name
        if name in _TIMES:
            scope.set_once(directive, time_of(directive))
        elif name in _FLAGS:
            scope.set_once(directive, flag_of(directive))
        elif name.startswith("proxy_ssl_"):
            apply_tls(scope, directive, "proxy")
        elif name in ("proxy_buffer_size", "preread_buffer_size"):
            scope.set_once(directive, size_of(directive))
        elif name in ("proxy_upload_rate", "proxy_download_rate"):
            if "$" not in directive.args[0]:
                size_of(directive)
            scope.set_once(directive, compile_value(directive.args[0], scope.build.variables, directive.place))
        elif name in ("proxy_next_upstream_tries", "proxy_requests", "proxy_responses"):
            scope.set_once(directive, number_of(directive))
        elif name == "tcp_nodelay" or name in _HASHES:
            scope.build.problems.warn(f'"{name}" means nothing here: its value is not used', directive.place)
        else:
            return super().apply(scope, directive)
        return None

    def _do_stream(self, scope: Scope, directive: Directive) -> Scope:
        if "stream" in scope.settings:
            raise ConfError('"stream" directive is duplicate', directive.place)
        scope.settings["stream"] = True
        outer = scope.build
        variables = Variables(CORE, PREFIXES, {})
        inner = Build(outer.prefix, outer.conf_dir, outer.problems, variables)
        for family in self._borrowed:
            if isinstance(family, LogFamily):
                family.logs, family.buffered = outer.logs, outer.buffered
        opened = Scope("stream", directive, scope, inner)
        outer.finishers.append(lambda: self._finish(opened, outer))
        return opened

    def _do_server(self, scope: Scope, directive: Directive) -> Scope:
        inner = Scope("server", directive, scope, scope.build)
        self._servers.append(inner)
        return inner

    @staticmethod
    def _do_listen(scope: Scope, directive: Directive) -> None:
        udp = "udp" in directive.args[1:]
        for word in directive.args[1:]:
            if word in ("http2", "quic"):
                raise ConfError(
                    f'the "{word}" parameter of "listen" is not supported by headrace in "stream"', directive.place
                )
            if udp and word.partition("=")[0] in _NOT_UDP:
                raise ConfError(f'"{word.partition("=")[0]}" parameter is incompatible with "udp"', directive.place)
        plain = replace(directive, args=tuple(word for word in directive.args if word != "udp")) if udp else directive
        for found in parse_listen(plain):
            if udp and isinstance(found.address, str):
                raise ConfError(f'"udp" parameter is incompatible with "{found.text}"', directive.place)
            scope.add("listens", (replace(found, udp=udp), directive.place))

    @staticmethod
    def _do_server_name(scope: Scope, directive: Directive) -> None:
        for text in directive.args:
            scope.add("server_names", server_name(scope, directive, text))

    @staticmethod
    def _do_proxy_pass(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, directive)

    @staticmethod
    def _do_return(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, compile_value(directive.args[0], scope.build.variables, directive.place))

    @staticmethod
    def _do_set(scope: Scope, directive: Directive) -> None:
        name = variable_name(directive, directive.args[0])
        if name in CORE:
            raise ConfError(f'the duplicate "{name}" variable', directive.place)
        scope.build.variables.declare(name, directive.place)
        value = compile_value(directive.args[1], scope.build.variables, directive.place)
        scope.add("sets", (name.encode(), value))

    @staticmethod
    def _do_proxy_bind(scope: Scope, directive: Directive) -> None:
        if len(directive.args) > 1:
            raise ConfError('the "transparent" parameter of "proxy_bind" is not supported by headrace', directive.place)
        text = directive.args[0]
        if text != "off" and "$" not in text:
            parse_url(text, 0, "proxy_bind", directive.place)
        value = None if text == "off" else compile_value(text, scope.build.variables, directive.place)
        scope.set_once(directive, value)

    def _finish(self, scope: Scope, outer: Build) -> None:
        """Make the servers, when all of the block is read."""
        build = scope.build
        for finish in build.finishers:
            finish()
        service = self._service
        ports = Ports()
        for inner in self._servers:
            server = self._server(inner)
            listens = inner.own("listens", [])
            if not listens:
                raise ConfError('no "listen" is defined for server in stream', inner.place)
            for found, place in listens:
                ports.add(found, server, place)
        service.ports = ports.made(build.problems)
        service.groups = build.upstreams
        for name, where in build.variables.unknown():
            raise ConfError(f'unknown "{name}" variable', where)
        outer.services.append(service)

    def _server(self, scope: Scope) -> StreamServer:
        get = scope.get
        made = StreamServer(scope.build.variables, tuple(scope.own("server_names", ())), scope.place)
        for family in self._borrowed:
            family.compose_server(scope, made)
        made.error_log = next(f for f in self._borrowed if isinstance(f, LogFamily)).error_log(scope, at_need=True)
        made.preread_buffer = get("preread_buffer_size", 16384)
        made.preread_timeout = get("preread_timeout", 30.0)
        made.proxy_protocol_timeout = get("proxy_protocol_timeout", 30.0)
        made.handshake_timeout = get("ssl_handshake_timeout", 60.0)
        for family in self._scripts:
            family.before_tls(scope)
        made.tls = server_tls(scope, "stream", get("ssl_alpn", ()))
        self._proxy(scope, made.proxy)
        made.preread = (*(setter(*one) for one in scope.own("sets", [])), *made.preread)
        made.reads_hello = get("ssl_preread", False)
        if scope.own("return") is not None:
            made.content = answer(scope.own("return"))
        for family in self._scripts:
            family.compose_server(scope, made)
        if made.content is None and scope.own("proxy_pass") is None:
            raise ConfError("no handler for server", scope.place)
        return made

    @staticmethod
    def _proxy(scope: Scope, made: ProxySettings) -> None:
        get = scope.get
        made.timeout = get("proxy_timeout", 600.0)
        made.connect_timeout = get("proxy_connect_timeout", 60.0)
        made.buffer = get("proxy_buffer_size", 16384)
        made.upload_rate = get("proxy_upload_rate", b"0")
        made.download_rate = get("proxy_download_rate", b"0")
        made.header = get("proxy_protocol", False)
        made.half_close = get("proxy_half_close", False)
        made.keepalive = get("proxy_socket_keepalive", False)
        made.next_upstream = get("proxy_next_upstream", True)
        made.next_timeout = get("proxy_next_upstream_timeout", 0.0)
        made.requests, made.responses = get("proxy_requests", 0), get("proxy_responses")
        made.next_tries = get("proxy_next_upstream_tries", 0)
        made.bind = get("proxy_bind")
        made.resolver, made.resolver_timeout = get("resolver"), get("resolver_timeout", TIMEOUT)
        if get("proxy_ssl", False):
            made.tls = tls_settings(scope, "proxy")
        directive: Directive | None = scope.own("proxy_pass")
        if directive is None:
            return
        text, groups = directive.args[0], scope.build.upstreams
        made.groups = groups
        if "$" in text:
            made.target = compile_value(text, scope.build.variables, directive.place)
            return
        found = groups.get(text.lower())
        if found is None:
            url = parse_url(text, 0, "upstream", directive.place)
            if url.unix is None and not url.port:
                raise ConfError(f'no port in upstream "{text}"', directive.place)
            found = groups.setdefault(key_of(url), group_of(url, "upstream", directive.place))
        made.group = found
