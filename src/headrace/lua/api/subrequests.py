"""Subrequests of a script: made here, run by the edge, told to the VM when they have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.server import Server
    from headrace.lua.api.headers import HeadersApi

FORWARD_BODY: Final = 1
COPY_VARS: Final = 2
SHARE_VARS: Final = 4
KEPT: Final = 512
"""URIs of scripts that are remembered for a server."""
NESTED: Final = 4
"""So deep may subrequests run within the run of their parent; deeper ones have turns of the loop of their own."""
_WITH_BODY: Final = frozenset({b"PUT", b"POST"})


class Place:
    """Where a URI of a script leads. location: None when more than the URI decides; then the search runs each time.

    constant: it answers the same to everybody, and has no filter: answer, once there is one.
    """

    __slots__ = ("answer", "constant", "location", "path", "steps")

    def __init__(self, path: bytes, location: Location | None) -> None:
        self.path = path
        self.location = location
        self.steps = steps = location.inner_steps if location is not None else None
        self.answer: tuple[int, int, bytes, bytes] | None = None
        self.constant = (
            location is not None
            and steps is not None
            and len(steps) > 0
            and getattr(steps[0][1], "constant", False)
            and not (location.script_filters or location.body_filters or location.log_subrequest)
        )


def _place(server: Server, uri: bytes) -> Place | None:
    """None: a URI that cannot be."""
    if uri.startswith(b"@"):
        return Place(uri, None)
    try:
        path = normalise(uri)
    except HttpError:
        return None
    tree = server.tree
    if tree is None or server.steps or not tree.pure:
        return Place(path, None)
    location = tree.find(path, None) or server.location
    return Place(path, location if location.limited is None else None)


class SubrequestApi:
    """requests: live requests by handle. ended(id, status, truncated, body, fields): the VM's entry for the end."""

    def __init__(self, requests: Mapping[int, Request], headers: HeadersApi) -> None:
        self.requests = requests
        self.headers = headers
        self._known: dict[Server, dict[bytes, Place]] = {}
        self.ended: Callable[[int, int, int, bytes, bytes], None] = lambda *_: None

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {
            "capture": self.capture,
            "capture_plain": self.capture_plain,
            "subrequest": self.subrequest,
            "subrequest_var": self.subrequest_var,
            "subrequest_start": self.subrequest_start,
            "is_subrequest": self.is_subrequest,
        }

    def capture_plain(self, request_id: int, *uris: bytes) -> tuple[Any, ...] | int:
        """As `capture`, of plain GETs: no arguments, no options."""
        parent = self.requests[request_id]
        if isinstance(parent, Subrequest) or parent.headers_in_changed or parent.exchange.body is not None:
            queries: list[Any] = []
            for uri in uris:
                queries += (uri, b"", b"GET", 0, None)
            return self.capture(request_id, *queries)
        known = self._known.get(parent.server)
        if known is None:
            known = self._known[parent.server] = {}
        out: list[Any] = []
        for uri in uris:
            place = known.get(uri)
            if place is None:
                place = _place(parent.server, uri)
                if place is None:
                    return len(out) // 4 + 1
                if len(known) >= KEPT:
                    known.clear()
                known[uri] = place
            if place.answer is not None:
                out += place.answer
                continue
            one = Subrequest(parent, place.path, b"", bare=True, done=self._done)
            location = place.location
            if location is not None:
                one.location, one.exchange.settings = location, location.http
            if one.run_now(place.steps):
                body = one.collected[0] if len(one.collected) == 1 else one.answer
                answer = (one.status, 1 if one.truncated else 0, body, self.headers.fields_of(one))
                if place.constant:
                    place.answer = answer
                out += answer
            else:
                parent.on_cleanup(one.cancel)
                out += (one.id, -1, None, None)
        return tuple(out)

    def capture(self, request_id: int, *queries: Any) -> tuple[Any, ...] | int:
        """Make and run those of (uri, args, method, flags, body)...; the number of a query whose URI cannot be.

        Returns for each (status, truncated, body, fields), when it has ended at once; (handle, -1, None, None) for
        one that waits, whose end is told by `ended`.
        """
        parent = self.requests[request_id]
        step = 5
        made: list[Subrequest] = []
        for at in range(0, len(queries), step):
            one = self._make(parent, *queries[at : at + step])
            if one is None:
                return at // step + 1
            made.append(one)
        out: list[Any] = []
        if isinstance(parent, Subrequest) and parent.depth >= NESTED:
            for one in made:
                parent.on_cleanup(one.cancel)
                out += (one.id, -1, None, None)
                one.start()
            return tuple(out)
        for one in made:
            if one.run_now():
                body = one.collected[0] if len(one.collected) == 1 else one.answer
                out += (one.status, 1 if one.truncated else 0, body, self.headers.fields_of(one))
            else:
                parent.on_cleanup(one.cancel)
                out += (one.id, -1, None, None)
        return tuple(out)

    def subrequest(
        self, request_id: int, uri: bytes, args: bytes, method: bytes, flags: int, body: bytes | None = None
    ) -> int | None:
        """Make one that does not run yet; returns its handle, None for a URI that cannot be."""
        parent = self.requests[request_id]
        made = self._make(parent, uri, args, method, flags, body)
        if made is None:
            return None
        parent.on_cleanup(made.cancel)
        return made.id

    def _make(
        self, parent: Request, uri: bytes, args: bytes, method: bytes, flags: int, body: bytes | None
    ) -> Subrequest | None:
        try:
            path = uri if uri.startswith(b"@") else normalise(uri)
        except HttpError:
            return None
        made = Subrequest(parent, path, args, method=method, bare=True, done=self._done)
        if body is not None:
            made.give_body(body)
        elif int(flags) & FORWARD_BODY or method in _WITH_BODY:
            if parent.body_read and (parent.body or parent.body_file):
                made.give_body(parent.body, parent.body_file)
        elif parent.header_in(b"content-length") not in (None, b"0"):
            made.give_body(None)
        if int(flags) & SHARE_VARS:
            made.share_vars(parent)
        elif int(flags) & COPY_VARS:
            made.copy_vars(parent)
        return made

    def subrequest_var(self, request_id: int, name: bytes, value: bytes) -> bytes | None:
        """Set a variable of one; returns why that cannot be."""
        made = self.requests[request_id]
        try:
            made.set_var(name, value)
        except KeyError:
            return b'variable "%b" cannot be assigned a value (maybe you forgot to define it first?) ' % name
        except ValueError:
            return b'variable "%b" not changeable' % name
        return None

    def subrequest_start(self, request_id: int) -> None:
        """Let one run, from the loop's next turn on."""
        made = self.requests[request_id]
        assert isinstance(made, Subrequest)
        made.start()

    def is_subrequest(self, request_id: int) -> int:
        """1 for a subrequest."""
        return 1 if isinstance(self.requests[request_id], Subrequest) else 0

    def _done(self, made: Subrequest) -> None:
        body = made.answer
        self.ended(made.handle, made.status, 1 if made.truncated else 0, body, self.headers.fields_of(made))
