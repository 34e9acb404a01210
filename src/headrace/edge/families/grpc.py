"""The grpc module: requests handed on to gRPC servers, over HTTP/2.

https://nginx.org/en/docs/http/ngx_http_grpc_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, spec, table
from headrace.edge.families.passing import PassFamily, common_specs, group_for, use_resolver, value_of
from headrace.edge.families.proxy_tls import apply_tls, tls_settings, tls_specs
from headrace.edge.upstream.address import parse_url
from headrace.edge.upstream.ask import FieldPlan
from headrace.edge.upstream.grpc import GrpcService
from headrace.edge.values import Value, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

_COMMON: Final = frozenset(
    "grpc_" + name
    for name in (
        "bind", "buffer_size", "connect_timeout", "hide_header", "ignore_headers", "intercept_errors", "next_upstream",
        "next_upstream_timeout", "next_upstream_tries", "pass_header", "read_timeout", "send_timeout",
        "socket_keepalive",
    )
)  # fmt: skip
_HIDDEN: Final = (b"Connection", b"Transfer-Encoding", b"Keep-Alive", b"Proxy-Connection", b"Expect", b"Upgrade")


def _length(request: Request) -> bytes:
    length = request.upstream.ask.length
    return b"" if length is None else b"%d" % length


def _te(request: Request) -> bytes:
    """RFC 9113 8.2.2: the only word that TE may have."""
    words = (request.header_in(b"te") or b"").lower().split(b",")
    return b"trailers" if any(word.partition(b";")[0].strip() == b"trailers" for word in words) else b""


class GrpcFamily(PassFamily):
    """grpc_pass and its kind."""

    prefix = "grpc"
    specs = table(
        spec("grpc_pass", ("location", "if in location"), 1),
        *(one for one in common_specs("grpc") if one.name in _COMMON),
        *tls_specs("grpc"),
        spec("grpc_set_header", HSL, 2),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name.startswith("grpc_ssl_"):
            apply_tls(scope, directive, "grpc")
            return None
        return super().apply(scope, directive)

    @staticmethod
    def _do_pass(scope: Scope, directive: Directive) -> None:
        if "grpc_pass" in scope.settings:
            raise ConfError('"grpc_pass" directive is duplicate', directive.place)
        text = directive.args[0]
        scope.settings["grpc_pass"] = (directive, value_of(scope, directive) if "$" in text else text)

    @staticmethod
    def _do_set_header(scope: Scope, directive: Directive) -> None:
        scope.add(directive.name, (to_bytes(directive.args[0]), value_of(scope, directive, 1)))

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where grpc_pass stands in it."""
        found = scope.own("grpc_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.buffering = settings.request_buffering = False
        settings.pass_trailers = True
        own: list[tuple[bytes, Value]] = scope.get("grpc_set_header", [])
        named = {name.lower() for name, _ in own}
        default: list[tuple[bytes, Value]] = [(b"Content-Length", _length), (b"TE", _te), (b"Host", b"")]
        default += [(name, b"") for name in _HIDDEN]
        fields = own + [(name, value) for name, value in default if name.lower() not in named]
        service = GrpcService(settings, FieldPlan(fields, pass_headers=True), scope.build.upstreams)
        service.host = b"host" in named
        if callable(target) or target.lower().startswith("grpcs://"):
            settings.tls = tls_settings(scope, "grpc", alpn=("h2",))
        if isinstance(target, str):
            scheme, mark, rest = target.partition("://")
            scheme = scheme.lower()
            if not mark or scheme not in service.schemes:
                scheme, rest = "grpc", target
            url = parse_url(rest, 0, "upstream", directive.place)
            if url.uri:
                raise ConfError(f'invalid host in upstream "{rest}"', directive.place)
            if url.unix is None and not url.explicit and url.host.lower() not in scope.build.upstreams:
                raise ConfError(f'no port in upstream "{rest}"', directive.place)
            service.fix(scheme, url, group_for(scope, url, directive))
        else:
            service.target = target
        use_resolver(scope, service)
        location.content = service.handle
