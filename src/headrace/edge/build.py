"""From a directive tree to a Gateway: check, apply each directive to its scope, compose every location.

Pure: no socket is opened and no log file; certificates and Python handlers are loaded, so that `check` finds what
is wrong with them.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.conf.check import Failed, Spec, Unbuilt, check_nginx
from headrace.conf.problems import near_miss
from headrace.edge import phases, unbuilt
from headrace.edge.families.http import HttpFamily, ServerDraft
from headrace.edge.families.http2 import speaks_http2
from headrace.edge.families.locations import LocationFamily
from headrace.edge.families.logs import LogFamily
from headrace.edge.families.main import MainFamily
from headrace.edge.families.rewrite import RewriteFamily
from headrace.edge.families.settings import SettingsFamily
from headrace.edge.families.tls import server_tls
from headrace.edge.gateway import Gateway
from headrace.edge.location import Location, Tree
from headrace.edge.log import ErrorLog
from headrace.edge.ports import make_ports
from headrace.edge.registry import Family
from headrace.edge.registry import families as known_families
from headrace.edge.scope import Build, Scope
from headrace.edge.server import Server
from headrace.edge.variables import Variables
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive

F = TypeVar("F")


def build(
    tree: Iterable[Directive],
    *,
    prefix: str,
    problems: Problems,
    families: Sequence[Family] | None = None,
    conf_dir: str | None = None,
    body_temp: str = "client_body_temp",
) -> Gateway:
    """Build a gateway. What is wrong goes to `problems`; with errors there, the gateway must not be started.

    families: those that know the directives (registry.families() when None). prefix: the folder relative paths stand
    for. conf_dir: the folder of the configuration file (prefix/conf when None), where certificates are looked for.
    body_temp: client_body_temp_path where the file names none.
    """
    builder = _Builder(prefix, conf_dir or os.path.join(prefix, "conf"), problems, families or known_families())
    builder.shared.body_temp = builder.shared.path(body_temp)
    return builder.run(tuple(tree))


def specs_of(known: Iterable[Family]) -> dict[str, list[Spec]]:
    """All directives of some families, by name; for checks without building."""
    specs: dict[str, list[Spec]] = {}
    for family in known:
        for name, spec in family.specs.items():
            specs.setdefault(name, []).append(spec)
    return specs


_LISTENING: Final = ("http", "server", "listen", "server_name", "ssl_certificate", "ssl_certificate_key")
"""What says who listens where; with one of them unread (or misspelt), nothing can be said about ports."""
PASSES: Final = ("proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass", "grpc_pass")
_MISSING: Final = ("unknown ", "no ")
"""How messages begin about something that another directive should have given."""
_QUOTED: Final = re.compile(r'"([^"]*)"')


class _Builder:
    def __init__(self, prefix: str, conf_dir: str, problems: Problems, known: Sequence[Family]) -> None:
        self.families = known
        self.problems = problems
        self.variables = Variables()
        self.failed: Failed = []
        """What could not be used."""
        self.skipped: set[int] = set()
        self.shared = Build(prefix, conf_dir, problems, self.variables)
        self.main = self._family(MainFamily)
        self.http = self._family(HttpFamily)
        self.settings = self._family(SettingsFamily)
        self.locations = self._family(LocationFamily)
        self.rewrite = self._family(RewriteFamily)
        self.logs = self._family(LogFamily)

    def _family(self, kind: type[F]) -> F:
        return next(family for family in self.families if isinstance(family, kind))

    def run(self, tree: tuple[Directive, ...]) -> Gateway:
        """Build; after an error what does not depend on it is still built, so that everything wrong is known."""
        before = len(self.problems.errors)
        known = Unbuilt(unbuilt.NAMES, unbuilt.HINT)
        self.failed = check_nginx(tree, specs_of(self.families), self.problems, unbuilt=known)
        self.skipped = {id(directive) for directive, _context in self.failed}
        self.shared.logs, self.shared.buffered = self.logs.logs, self.logs.buffered
        root = Scope("main", None, None, self.shared)
        gateway = Gateway(self.main.settings, self.logs.logs, ErrorLog(()), self.settings.stats)
        self._walk(root, tree, "main")
        if not self.main.seen_events and not any(one.block is not None for one, at in self.failed if at == "main"):
            self.problems.error('no "events" section in configuration')
        for finish in self.shared.finishers:
            self._attempt(finish)
        self._tell_inert()
        if len(self.problems.errors) > before:
            self._look_further(gateway)
            return gateway
        gateway.error_log = self.logs.error_log(root, at_need=True)
        gateway.buffered_logs = self.logs.buffered
        gateway.temp_folders = self.shared.temp_folders
        gateway.services = self.shared.services
        gateway.upstreams = self.shared.upstreams
        drafts = [(draft, self._server(draft)) for draft in self.http.drafts.values()]
        gateway.servers = [server for _, server in drafts]
        self._attempt(lambda: gateway.ports.extend(make_ports(drafts, gateway, self.problems)))
        for name, place in self.variables.unknown():
            self.problems.error(f'unknown "{name}" variable', place)
        return gateway

    def _tell_inert(self) -> None:
        """One warning for all directives that mean nothing here."""
        found = self.shared.inert
        if found:
            *names, last = (f'"{name}"' for name in found)
            listed = f"{', '.join(names)} and {last}" if names else last
            means, whose = ("mean", "their values are") if names else ("means", "its value is")
            self.problems.warn(f"{listed} {means} nothing here: {whose} not used", next(iter(found.values())))

    def _look_further(self, gateway: Gateway) -> None:
        """There are errors: find those that the rest of a build would, unless they may follow from the others."""
        drafts: list[tuple[ServerDraft, Server]] = []
        for draft in self.http.drafts.values():
            self._attempt(partial(self._add_server, drafts, draft))
        if not any(near_miss(directive.name, _LISTENING) for directive, _context in self.failed):
            self._attempt(lambda: make_ports(drafts, gateway, self.problems))
        for name, place in self.variables.unknown():
            self._report(ConfError(f'unknown "{name}" variable', place))

    def _add_server(self, drafts: list[tuple[ServerDraft, Server]], draft: ServerDraft) -> None:
        drafts.append((draft, self._server(draft)))

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except ConfError as error:
            self._report(error)
        except Exception:
            if not self.failed:
                raise
            # A directive that could not be applied is missing here; it is reported.

    def _report(self, error: ConfError) -> None:
        """Report an error, unless something is missing that a failed directive names: then it follows from that one."""
        if error.message.startswith(_MISSING):
            named = _QUOTED.findall(error.message)
            failed = list(self._failed_texts())
            if any(name == text.lstrip("$") or f"<{name}>" in text for name in named for text in failed):
                return
        self.problems.errors.append(error)

    def _failed_texts(self) -> Iterator[str]:
        """The names and words of all that failed, and of what stands within."""
        left = [directive for directive, _context in self.failed]
        while left:
            directive = left.pop()
            yield directive.name
            yield from directive.args
            left += directive.block or ()

    def _walk(self, scope: Scope, directives: Iterable[Directive], context: str) -> None:
        for directive in directives:
            if id(directive) in self.skipped:
                continue
            family, spec = self._owner(directive.name, context)
            try:
                inner = family.apply(scope, directive)
            except ConfError as error:
                self._report(error)
                self.failed.append((directive, context))
                continue
            if inner is not None:
                inside = spec.inside or (f"if in {context}" if spec.name == "if" else spec.name)
                self._walk(inner, directive.block or (), inside)

    def _owner(self, name: str, context: str) -> tuple[Family, Spec]:
        for family in self.families:
            spec = family.specs.get(name)
            if spec and (context in spec.contexts or (context.startswith("if in ") and "if" in spec.contexts)):
                return family, spec
        raise AssertionError(f"{name} passed the check in {context}")

    def _server(self, draft: ServerDraft) -> Server:
        scope = draft.scope
        location = Location("server", b"", scope)
        self._compose(scope, location)
        server = Server(draft.names, location, self.variables)
        server.http2 = speaks_http2(scope)
        own = location.handlers(phases.POST_READ) + location.handlers(phases.SERVER_REWRITE)
        if own:
            steps = [(name, h) for name in phases.SERVER_PHASES for h in location.handlers(name)]
            server.steps = (*steps, (phases.FIND_CONFIG, lambda _request: phases.REFIND))
        found = self._level(scope)
        server.named = {loc.name: loc for loc in reversed(found) if loc.kind == "named"}
        server.tree = Tree(found)
        self._attempt(lambda: self._tls(server, scope))
        return server

    @staticmethod
    def _tls(server: Server, scope: Scope) -> None:
        server.tls = server_tls(scope, alpn=("h2", "http/1.1") if server.http2 else ("http/1.1",))

    def _level(self, scope: Scope) -> list[Location]:
        """Compose the locations of one level and within; `if` blocks too."""
        found: list[Location] = []
        for child in scope.children:
            chosen = self.rewrite.if_locations.get(id(child))
            if chosen is not None:
                outer = self.locations.locations.get(id(scope))
                if outer is not None:
                    chosen.name = outer.name
                    # As in nginx, the handler of the location answers within an `if` that has none of its own.
                    chosen.content = outer.content
                self._compose(child, chosen)
                self._level(child)
            limit = self.locations.limited.get(id(child))
            if limit is not None:
                self._limit(self.locations.locations[id(scope)], child, *limit)
            location = self.locations.locations.get(id(child))
            if location is None:
                continue
            self._compose(child, location)
            location.passes = any(name in child.settings for name in PASSES)
            inner = self._level(child)
            if inner:
                location.tree = Tree(inner)
            found.append(location)
        return found

    def _limit(self, outer: Location, scope: Scope, limited: Location, methods: frozenset[bytes]) -> None:
        """What holds for the methods that limit_except does not name; the handler of the location answers them too."""
        limited.name, limited.content = outer.name, outer.content
        self._compose(scope, limited)
        outer.limited, outer.open_methods = limited, methods

    def _compose(self, scope: Scope, location: Location) -> None:
        for family in self.families:
            self._attempt(partial(family.compose, scope, location))
        location.seal()
