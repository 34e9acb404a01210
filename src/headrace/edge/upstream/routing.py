"""Where the requests of a location go: one group for all of them, or what variables say."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from headrace.core.connect import Target
from headrace.core.dns import NotResolved
from headrace.core.names import literal
from headrace.edge.upstream.address import Url, group_of, parse_url, peer_name
from headrace.edge.upstream.body import send_ask
from headrace.edge.upstream.peers import Group, Peer
from headrace.edge.upstream.service import Route, Unroutable
from headrace.edge.upstream.visit import Visit
from headrace.edge.values import Value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from headrace.core.dns import Resolver
    from headrace.core.stream import Stream
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import Ask
    from headrace.edge.upstream.reply import Reader
    from headrace.edge.upstream.service import Pump
    from headrace.edge.upstream.settings import Settings

_turns: Final = itertools.count()
HTTP: Final = {"http": 80, "https": 443}


class PassService:
    """The part of visit.Service that all protocols share.

    target: an address with variables. schemes: those that an address may begin with, with their ports; an address
    without one is of `scheme`, and names its port.
    """

    target: Value | None = None
    schemes: Mapping[str, int] = HTTP
    scheme = ""
    resolver: Resolver | None = None
    resolver_timeout = 30.0

    def __init__(self, settings: Settings, groups: dict[str, Group]) -> None:
        self.settings = settings
        self.groups = groups
        self._route: Route | None = None

    def fix(self, scheme: str, url: Url, group: Group) -> None:
        """All requests go to one group."""
        self._route = make_route(scheme, url, group)

    def handle(self, request: Request) -> Awaitable[int | None] | int:
        """The content handler."""
        return Visit(request, self).run()

    def route(self, request: Request) -> Route | Awaitable[Route]:
        """See Service."""
        if self._route is not None:
            return self._route
        assert self.target is not None
        text = evaluate(self.target, request).decode("utf-8", "surrogateescape")
        scheme, mark, rest = text.partition("://")
        scheme = scheme.lower()
        if not mark and self.scheme:
            scheme, rest = self.scheme, text
        elif not mark or scheme not in self.schemes:
            raise Unroutable(b'invalid URL prefix in "%b"' % text.encode("utf-8", "surrogateescape"), 500)
        return self._find(scheme, rest)

    def _find(self, scheme: str, text: str) -> Route | Awaitable[Route]:
        try:
            url = parse_url(text, self.schemes.get(scheme, 0), "upstream")
        except ConfError as error:
            raise Unroutable(error.message.encode("utf-8", "surrogateescape"), 500) from error
        group = None if url.unix is not None or url.explicit else self.groups.get(url.host.lower())
        if group is None:
            group = self.groups.get(key_of(url))
        shown = url.host.encode("utf-8", "surrogateescape")
        if group is None:
            if url.unix is None and not url.port:
                raise Unroutable(b'no port in upstream "%b"' % shown, 500)
            if url.unix is None and literal(url.host, url.port) is None:
                if self.resolver is None:
                    raise Unroutable(b"no resolver defined to resolve %b" % shown)
                return self._resolve(scheme, url, self.resolver)
            group = group_of(url, "upstream")
        return _literal(scheme, url, group)

    async def _resolve(self, scheme: str, url: Url, resolver: Resolver) -> Route:
        """A host that only a name server knows: a group of its own, for this request."""
        try:
            found = await resolver.resolve(url.host, self.resolver_timeout)
        except NotResolved as error:
            raise Unroutable(str(error).encode("utf-8", "surrogateescape")) from error
        peers = [Peer(peer_name((one, url.port)), Target(one, url.port), server=url.shown) for one in found]
        first = next(_turns) % len(peers)
        return _literal(scheme, url, Group(url.shown, peers[first:] + peers[:first]))

    def cache_key(self, request: Request, route: Route) -> bytes:
        """See Service."""
        return b"%b%b%b?%b" % (route.scheme, route.host, request.uri, request.args)

    def may_stream(self, _request: Request) -> bool:
        """See Service."""
        return False

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """See Service."""
        raise NotImplementedError

    def talk(self, visit: Visit, stream: Stream) -> tuple[Pump | None, Reader]:
        """See Service."""
        return send_ask(visit, stream), self.reader(visit.request, visit.ask)

    def reader(self, request: Request, ask: Ask) -> Reader:
        """What reads the answer."""
        raise NotImplementedError


def _literal(scheme: str, url: Url, group: Group) -> Route:
    route = make_route(scheme, url, group)
    route.literal = bool(url.uri)
    return route


def key_of(url: Url) -> str:
    """The name of the group that a host stands for which no `upstream` names."""
    return f"{url.host.lower()}:{url.port}" if url.unix is None else "unix:" + url.unix


def make_route(scheme: str, url: Url, group: Group) -> Route:
    """The route to a group."""
    port = b"" if url.unix is not None else b"%d" % url.port
    tls = scheme in ("https", "suwsgi", "grpcs")
    return Route(group, f"{scheme}://".encode(), url.default_host, port, url.uri, tls=tls)
