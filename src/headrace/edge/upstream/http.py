"""The upstream of a location with proxy_pass: HTTP/1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.names import literal
from headrace.edge.upstream.address import Url, group_of, parse_url
from headrace.edge.upstream.ask import Ask, body_length, request_uri, safe_method, safe_target, unparsed
from headrace.edge.upstream.reply import HttpReader
from headrace.edge.upstream.service import Route, Unroutable
from headrace.edge.upstream.visit import Visit
from headrace.edge.values import Value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import FieldPlan
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.settings import Settings

PORTS = {"http": 80, "https": 443}


class HttpService:
    """See visit.Service. version, method, body, location: of the directives; target: a URL with variables."""

    version: bytes = b"1.0"
    method: Value | None = None
    body: Value | None = None
    location: bytes = b""
    target: Value | None = None

    def __init__(self, settings: Settings, plan: FieldPlan, groups: dict[str, Group]) -> None:
        self.settings = settings
        self.plan = plan
        self.groups = groups
        self._route: Route | None = None

    def fix(self, scheme: str, url: Url, group: Group) -> None:
        """All requests go to one group."""
        self._route = _route(scheme, url, group)

    def handle(self, request: Request) -> Awaitable[int | None]:
        """The content handler."""
        return Visit(request, self).run()

    def route(self, request: Request) -> Route:
        """See Service."""
        if self._route is not None:
            return self._route
        assert self.target is not None
        text = evaluate(self.target, request).decode("utf-8", "surrogateescape")
        scheme, mark, rest = text.partition("://")
        scheme = scheme.lower()
        if not mark or scheme not in PORTS:
            raise Unroutable(b'invalid URL prefix in "%b"' % text.encode("utf-8", "surrogateescape"), 500)
        try:
            url = parse_url(rest, PORTS[scheme], "upstream")
        except ConfError as error:
            raise Unroutable(error.message.encode("utf-8", "surrogateescape"), 500) from error
        group = None if url.unix is not None or url.explicit else self.groups.get(url.host.lower())
        if group is None:
            key = f"{url.host.lower()}:{url.port}" if url.unix is None else "unix:" + url.unix
            group = self.groups.get(key)
        if group is None:
            if url.unix is None and literal(url.host, url.port) is None:
                raise Unroutable(b"no resolver defined to resolve %b" % url.host.encode("utf-8", "surrogateescape"))
            group = group_of(url, "upstream")
        route = _route(scheme, url, group)
        route.literal = bool(url.uri)
        return route

    def may_stream(self, request: Request) -> bool:
        """See Service. Chunks need HTTP/1.1; a body that the configuration makes is not the client's."""
        return (
            self.body is None
            and self.settings.pass_body
            and (not request.exchange.head.chunked or self.version == b"1.1")
        )

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """See Service."""
        method = request.method if self.method is None else safe_method(self.method, request) or request.method
        if route.literal:
            uri = safe_target(route.uri)
        elif self.target is not None:
            uri = safe_target(unparsed(request) or request_uri(request, b"", b""))
        else:
            uri = request_uri(request, route.uri, self.location)
        ask = request.upstream.ask = Ask(method, uri)
        if self.body is not None:
            ask.body = evaluate(self.body, request)
            ask.length = len(ask.body)
        elif stream:
            ask.stream = True
            ask.chunked = request.exchange.head.chunked
            ask.length = request.exchange.head.content_length
        else:
            ask.length = body_length(request)
            if self.settings.pass_body:
                if request.body_file is not None:
                    ask.file = request.body_file
                else:
                    ask.body = request.body or b""
        line = b"%b %b HTTP/%b\r\n" % (method, uri, self.version)
        ask.head = b"%b%b\r\n" % (line, self.plan.lines(request))
        return ask

    def reader(self, _request: Request, ask: Ask) -> Reader:
        """See Service."""
        return HttpReader(ask.method, self.settings.buffer_size)


def _route(scheme: str, url: Url, group: Group) -> Route:
    port = b"" if url.unix is not None else b"%d" % url.port
    return Route(group, f"{scheme}://".encode(), url.default_host, port, url.uri, tls=scheme == "https")
