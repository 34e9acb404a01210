"""The upstream of a location with proxy_pass: HTTP/1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core.http1.frame import LAST_CHUNK
from headrace.edge.upstream.ask import Ask, body_length, chunked, request_uri, safe_method, safe_target, unparsed
from headrace.edge.upstream.prompt import begin
from headrace.edge.upstream.reply import HttpReader
from headrace.edge.upstream.routing import PassService
from headrace.edge.upstream.visit import Visit
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import FieldPlan
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.prompt import Known
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.service import Route
    from headrace.edge.upstream.settings import Settings

KEPT: Final = 512
LONG: Final = 256
"""URIs that are remembered, and how long they may be (bytes)."""


class HttpService(PassService):
    """See service.Service. version, method, body, location: of the directives."""

    version: bytes = b"1.0"
    method: Value | None = None
    body: Value | None = None
    location: bytes = b""
    prompt = False
    """Nothing is configured that needs more than prompt.PromptVisit knows."""

    def __init__(self, settings: Settings, plan: FieldPlan, groups: dict[str, Group]) -> None:
        super().__init__(settings, groups)
        self.plan = self.cache_plan = plan
        self.known: dict[bytes, Known] = {}
        self._uris: dict[tuple[bytes, bytes, bytes], bytes] = {}

    def may_stream(self, request: Request) -> bool:
        """See Service. Chunks need HTTP/1.1; a body that the configuration makes is not the client's."""
        return (
            self.body is None
            and self.settings.pass_body
            and (not request.exchange.head.chunked or self.version == b"1.1")
        )

    def handle(self, request: Request) -> Awaitable[int | None] | int:
        """The content handler."""
        if self.prompt and self._route is not None:
            return begin(request, self, self._route)
        return Visit(request, self).run()

    def bodyless_ask(self, request: Request, route: Route) -> Ask | None:
        """As `ask`, of a request that is sent on as it is and has no body; None when it is not such a one."""
        fields = request.exchange.head.fields
        if (
            self.body is not None
            or self.method is not None
            or fields.content_length is not None
            or fields.expect_continue
            or request.headers_in_changed
        ):
            return None
        uri = self._uri(request, route)
        ask = request.upstream.ask = Ask(request.method, uri)
        lines = self.plan.bodyless_lines(request)
        ask.head = b"%b %b HTTP/%b\r\n%b\r\n" % (request.method, uri, self.version, lines)
        return ask

    def _uri(self, request: Request, route: Route) -> bytes:
        if route.literal:
            return safe_target(route.uri)
        if self.target is not None:
            return safe_target(unparsed(request) or request_uri(request, b"", b""))
        if request.internal or request.uri_replaced or request.parent is not None:
            return request_uri(request, route.uri, self.location)
        key = (request.exchange.head.target, request.uri, request.args)
        found = self._uris.get(key)
        if found is None:
            found = request_uri(request, route.uri, self.location)
            if len(found) < LONG:
                if len(self._uris) >= KEPT:
                    self._uris.clear()
                self._uris[key] = found
        return found

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
