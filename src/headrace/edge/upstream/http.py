"""The upstream of a location with proxy_pass: HTTP/1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.http1.frame import LAST_CHUNK
from headrace.edge.upstream.ask import Ask, body_length, chunked, request_uri, safe_method, safe_target, unparsed
from headrace.edge.upstream.reply import HttpReader
from headrace.edge.upstream.routing import PassService
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import FieldPlan
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.service import Route
    from headrace.edge.upstream.settings import Settings


class HttpService(PassService):
    """See service.Service. version, method, body, location: of the directives."""

    version: bytes = b"1.0"
    method: Value | None = None
    body: Value | None = None
    location: bytes = b""

    def __init__(self, settings: Settings, plan: FieldPlan, groups: dict[str, Group]) -> None:
        super().__init__(settings, groups)
        self.plan = self.cache_plan = plan

    def may_stream(self, request: Request) -> bool:
        """See Service. Chunks need HTTP/1.1; a body that the configuration makes is not the client's."""
        return (
            self.body is None
            and self.settings.pass_body
            and (not request.exchange.head.chunked or self.version == b"1.1")
        )

    def _uri(self, request: Request, route: Route) -> bytes:
        if route.literal:
            return safe_target(route.uri)
        if self.target is not None:
            return safe_target(unparsed(request) or request_uri(request, b"", b""))
        return request_uri(request, route.uri, self.location)

    def cache_key(self, request: Request, route: Route) -> bytes:
        """See Service: the URL that is asked."""
        return b"%b%b%b" % (route.scheme, route.host, self._uri(request, route))

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """See Service."""
        method = request.method if self.method is None else safe_method(self.method, request) or request.method
        cached = request.upstream.cacher is not None and request.upstream.cacher.store
        if cached and method == b"HEAD" and request.upstream.cacher.settings.convert_head:
            method = b"GET"
        uri = self._uri(request, route)
        ask = request.upstream.ask = Ask(method, uri)
        if self.body is not None:
            ask.body = evaluate(self.body, request)
            ask.length = len(ask.body)
        elif stream:
            ask.stream = True
            ask.chunked = request.exchange.head.chunked
            ask.length = request.exchange.head.content_length
            if ask.chunked:
                ask.wrap, ask.tail = chunked, LAST_CHUNK
        else:
            ask.length = body_length(request)
            if self.settings.pass_body:
                if request.body_file is not None:
                    ask.file = request.body_file
                else:
                    ask.body = request.body or b""
        line = b"%b %b HTTP/%b\r\n" % (method, uri, self.version)
        ask.head = b"%b%b\r\n" % (line, (self.cache_plan if cached else self.plan).lines(request))
        return ask

    def reader(self, _request: Request, ask: Ask) -> Reader:
        """See Service."""
        return HttpReader(ask.method, self.settings.buffer_size)
