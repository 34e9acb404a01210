"""Locations: what holds for a URI, and which one a URI belongs to.

The search is nginx's: the longest prefix first (an exact match ends it), within it the nested ones, then the
regular expressions of the level in their order unless the prefix said `^~`.
https://nginx.org/en/docs/http/ngx_http_core_module.html#location
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.settings import ServerSettings
from headrace.edge import names, phases
from headrace.edge.filters import BODY_ORDER, HEADER_ORDER, INNER_ORDER, SCRIPT_ORDER, BodyFilter, HeaderFilter
from headrace.edge.head import directory_target
from headrace.edge.log import ErrorLog
from headrace.edge.satisfy import any_of, delayed
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from headrace.edge.accesslog import AccessLog
    from headrace.edge.phases import Handler, Steps
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope
    from headrace.edge.special import ErrorPage


class Location:
    """What holds for the requests of one location (or of a bare server, or within an `if`).

    kind: "prefix", "exact", "noregex" (^~), "regex", "named", "server" or "if". settings: every value in force by
    directive name, for families of other rooms. Times are in seconds, sizes in bytes.
    """

    body_in_file: str = "off"
    """client_body_in_file_only: every body goes to a file, which stays ("on") or not ("clean")."""

    passes: bool = False
    """Requests go on to another server."""
    satisfy_any: bool = False
    auth_delay: float = 0.0
    log_subrequest: bool = False

    def __init__(self, kind: str, name: bytes, scope: Scope, pattern: re.Pattern[bytes] | None = None) -> None:
        self.kind = kind
        self.name = name
        self.scope = scope
        self.pattern = pattern
        self.tree: Tree | None = None
        self.settings: dict[str, Any] = {}
        # what runs
        self.steps: Steps = ()
        self.content: Handler | None = None
        self._handlers: dict[str, list[Handler]] = {}
        self._header_filters: dict[str, list[HeaderFilter]] = {}
        self._body_filters: dict[str, list[BodyFilter]] = {}
        self.header_filters: tuple[HeaderFilter, ...] = ()
        self.script_filters: tuple[HeaderFilter, ...] = ()
        """Those of the header filters that run for every subrequest."""
        self.inner_filters: tuple[HeaderFilter, ...] = ()
        """Those that run for subrequests whose answers are parts of another."""
        self.inner_steps: Steps = ()
        """What runs for subrequests: the steps without the access phase."""
        self.limited: Location | None = None
        """What holds for the methods that limit_except does not name."""
        self.open_methods: frozenset[bytes] = frozenset()
        self.body_filters: tuple[BodyFilter, ...] = ()
        self.log_handlers: tuple[Callable[[Request], None], ...] = ()
        # what they need
        self.internal = False
        self.root: Value = b"html"
        self.alias: Value | None = None
        self.alias_skip = 0
        """Bytes of the URI that the alias stands for; -1: all of it (in a regex location)."""
        self.types: dict[bytes, bytes] = {}
        self.default_type: bytes = b"text/plain"
        self.known_types: dict[bytes, bytes] = {}
        self.charset: bytes = b""
        self.charset_filter = False
        self.msie_refresh = False
        self.error_pages: dict[int, ErrorPage] = {}
        self.recursive_error_pages = False
        self.max_body = 1 << 20
        self.body_buffer = 16384
        self.body_temp = ""
        self.send_timeout = 60.0
        self.postpone_output = 1460
        self.server_token: bytes = names.SERVER_FULL
        self.keepalive_header: bytes = b""
        self.chunked = True
        self.absolute_redirect = True
        self.server_name_in_redirect = False
        self.port_in_redirect = True
        self.merge_slashes = True
        self.sendfile = True
        self.etag = True
        self.if_modified_since = "exact"
        self.max_ranges = 1 << 31
        self.http = ServerSettings()
        self.log_not_found = True
        self.warn_uninitialized = True
        self.rewrite_log = False
        self.access_logs: tuple[AccessLog, ...] = ()
        self.error_log = ErrorLog(())

    def add(self, phase: str, handler: Handler, *, first: bool = False) -> None:
        """Add a handler to a phase; within a phase they run in the order they were added (first: before those)."""
        handlers = self._handlers.setdefault(phase, [])
        handlers.insert(0 if first else len(handlers), handler)

    def add_header_filter(self, place: str, header_filter: HeaderFilter) -> None:
        """Add a header filter at a place of filters.HEADER_ORDER."""
        self._header_filters.setdefault(place, []).append(header_filter)

    def add_body_filter(self, place: str, body_filter: BodyFilter) -> None:
        """Add a body filter at a place of filters.BODY_ORDER."""
        self._body_filters.setdefault(place, []).append(body_filter)

    def add_log(self, handler: Callable[[Request], None]) -> None:
        """Add a handler to the log phase."""
        self.log_handlers = (*self.log_handlers, handler)

    def seal(self) -> None:
        """Make the flat lists that requests run through, when all families have composed the location."""
        access = self._handlers.get(phases.ACCESS, [])
        if self.satisfy_any and len(access) > 1:
            access = self._handlers[phases.ACCESS] = [any_of(tuple(access))]
        if self.auth_delay and access:
            self._handlers[phases.ACCESS] = [delayed(tuple(access), self.auth_delay)]
        steps = [(phase, h) for phase in phases.LOCATION_PHASES for h in self._handlers.get(phase, ())]
        if self.content is not None:
            steps = [step for step in steps if step[0] != phases.CONTENT]
            steps.append((phases.CONTENT, self.content))
        rewrites = len(self._handlers.get(phases.REWRITE, ()))
        if rewrites or self.kind == "if":
            steps.insert(rewrites, (phases.POST_REWRITE, post_rewrite))
        self.steps = tuple(steps)
        self.inner_steps = tuple(step for step in steps if step[0] != phases.ACCESS)
        self.header_filters = tuple(f for place in HEADER_ORDER for f in self._header_filters.get(place, ()))
        self.script_filters = tuple(f for place in SCRIPT_ORDER for f in self._header_filters.get(place, ()))
        self.inner_filters = tuple(f for place in INNER_ORDER for f in self._header_filters.get(place, ()))
        self.body_filters = tuple(f for place in BODY_ORDER for f in self._body_filters.get(place, ()))
        self.settings = self.scope.effective()

    def handlers(self, phase: str) -> list[Handler]:
        """The handlers of a phase of the server (post_read, server_rewrite)."""
        return self._handlers.get(phase, [])

    def content_type_of(self, uri: bytes) -> bytes:
        """The type by the extension of a path (types), or default_type."""
        dot = uri.rfind(b".")
        found = None if dot < 0 or b"/" in uri[dot:] else self.types.get(uri[dot + 1 :].lower())
        if found is None:
            found = self.default_type
        if len(self.known_types) < REMEMBERED and len(uri) < 256:
            self.known_types[uri] = found
        return found

    def root_of(self, request: Request) -> bytes:
        """`$document_root`: the folder that paths are looked up in."""
        return evaluate(self.root if self.alias is None else self.alias, request)

    def path_of(self, request: Request, uri: bytes | None = None) -> bytes:
        """The file that a path (by default the request's) stands for, by root or alias.

        It ends before a NUL, which no client can send and a script can set: nginx's system calls see no more, too.
        """
        uri = request.uri if uri is None else uri
        if self.alias is None:
            path = evaluate(self.root, request).rstrip(b"/") + uri
        else:
            path = evaluate(self.alias, request)
            if self.alias_skip >= 0:
                path += uri[self.alias_skip :]
            elif request.uri_behind_alias:
                path += uri
        end = path.find(b"\0")
        return path if end < 0 else path[:end]

    def tried(self, request: Request, name: bytes, *, made: bool) -> tuple[bytes, bytes]:
        """The file that a name of try_files stands for, and the URI that goes on when it exists.

        made: of variables, so it may begin with what the alias stands for.
        """
        if self.alias is None:
            return evaluate(self.root, request).rstrip(b"/") + name, name
        alias, skip = evaluate(self.alias, request), self.alias_skip
        if skip < 0:
            return alias + name, name
        begin = request.uri[:skip]
        rest = name[skip:] if made and name.startswith(begin) else name
        return alias + rest, begin + rest


def post_rewrite(request: Request) -> int | None:
    """After the rewrite phase: search the location anew when the URI was rewritten; at most ten times."""
    if not request.uri_changed:
        return None
    request.uri_changed = False
    request.rewrites += 1
    if request.rewrites > MAX_REWRITES:
        request.log_error(4, b'rewrite or internal redirection cycle while processing "%b"' % request.uri)
        return 500
    return phases.REFIND


MAX_REWRITES: Final = 10
REMEMBERED: Final = 512


class Tree:
    """The locations of one level."""

    def __init__(self, locations: list[Location]) -> None:
        self.exact = {loc.name: loc for loc in locations if loc.kind == "exact"}
        prefixes = [loc for loc in locations if loc.kind in ("prefix", "noregex")]
        for location in prefixes:
            if location.passes and len(location.name) > 1 and location.name.endswith(b"/"):
                self.exact.setdefault(location.name[:-1], _to_slash(location))
        self.prefixes = tuple(sorted(prefixes, key=lambda loc: -len(loc.name)))
        self.regexes = tuple(loc for loc in locations if loc.kind == "regex")
        self.pure: bool = not self.regexes and all(loc.tree is None or loc.tree.pure for loc in locations)
        """True when the URI alone decides: no captures, so that answers may be remembered."""

    def find(self, uri: bytes, request: Request | None) -> Location | None:
        """The location of a URI on this level and within; captures go to the request."""
        location, _ = self._find(uri, request)
        return location

    def _find(self, uri: bytes, request: Request | None) -> tuple[Location | None, bool]:
        exact = self.exact.get(uri)
        if exact is not None:
            return exact, True
        found: Location | None = None
        for location in self.prefixes:
            if uri.startswith(location.name):
                found = location
                break
        if found is not None and found.tree is not None:
            nested, final = found.tree._find(uri, request)  # noqa: SLF001 - the same class, one level down
            if final:
                return nested, True
        else:
            nested = None
        if found is None or found.kind != "noregex":
            for location in self.regexes:
                assert location.pattern is not None
                match = location.pattern.search(uri)
                if match is not None:
                    if request is not None:
                        take_captures(request, match)
                    if location.tree is not None:
                        inner, _ = location.tree._find(uri, request)  # noqa: SLF001 - as above
                        return inner or location, True
                    return location, True
        return nested or found, False


def _to_slash(location: Location) -> Location:
    """What answers for the name of a location without its slash, when that location passes requests on.

    https://nginx.org/en/docs/http/ngx_http_core_module.html#location (the 301 with the slash appended)
    """

    def redirect(request: Request) -> int:
        request.location_out = directory_target(request)
        return 301

    made = copy.copy(location)
    made.kind, made.name, made.limited = "exact", location.name[:-1], None
    made.steps = made.inner_steps = ((phases.CONTENT, redirect),)
    return made


def take_captures(request: Request, match: re.Match[bytes]) -> None:
    """Make the groups of a match the request's $1..$9 and its named captures variables."""
    request.captures = (match.group(), *match.groups())
    if match.re.groupindex:
        for name, value in match.groupdict().items():
            request.set_slot(name.lower().encode(), b"" if value is None else value)
