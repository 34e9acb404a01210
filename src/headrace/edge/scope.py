"""One level of a configuration while it is built: main, events, http, server, location, if, ...

Inheritance is nginx's: a directive set on a level replaces the whole value of the level above it (lists too:
one add_header in a location hides all of the server's). So a level keeps only what it sets, and reading walks up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.edge.variables import Variables
    from headrace.errors import Place

MISSING: Any = object()


class Build:
    """What all scopes of one build share.

    prefix: the folder relative paths stand for. main_conf: the folder of the first configuration file, for
    `include mime.types` and its kind. body_temp: the default of
    client_body_temp_path. temp_folders: where workers put temporary files.
    """

    def __init__(self, prefix: str, conf_dir: str, problems: Problems, variables: Variables) -> None:
        self.prefix = prefix
        self.conf_dir = conf_dir
        self.problems = problems
        self.variables = variables
        self.finishers: list[Callable[[], None]] = []
        self.body_temp = self.path("client_body_temp")
        self.temp_folders: set[str] = set()
        self.inert: dict[str, Place | None] = {}
        """Directives that mean nothing here, each with where it stands first."""
        self.logs: Any = None
        """The log files (edge.log.Logs), for other rooms that write to them."""
        self.buffered: list[Any] = []
        """Those access logs among them that gather lines."""
        self.services: list[Any] = []
        """What else listens: parts of the gateway (edge.gateway.Service)."""
        self.upstreams: dict[str, Any] = {}
        """Groups of upstream servers by name (edge.upstream.peers.Group)."""
        self.tls_contexts: dict[Any, Any] = {}
        """Contexts of TLS by their settings (core.openssl)."""
        self.tls_zones: dict[str, int] = {}
        """Sizes of the memory of session caches, by name."""
        self.cache_zones: dict[str, Any] = {}
        """Caches by the name of their zone (edge.upstream.cache.zone.Zone)."""

    def means_nothing(self, directive: Directive) -> None:
        """Take note of a directive whose value is not used; one warning names all of them."""
        self.inert.setdefault(directive.name, directive.place)

    def path(self, name: str) -> str:
        """A path of the configuration as the running process uses it: relative ones stand below the prefix."""
        return name if name.startswith("/") else f"{self.prefix.rstrip('/')}/{name}"


class Scope:
    """kind: "main", "events", "http", "server", "location", "if", "types", "limit_except", ...

    settings: what this level sets itself. children: the levels within, in order.
    """

    def __init__(self, kind: str, directive: Directive | None, parent: Scope | None, build: Build) -> None:
        self.kind = kind
        self.directive = directive
        self.parent = parent
        self.build = build
        self.settings: dict[str, Any] = {}
        self.children: list[Scope] = []
        if parent is not None:
            parent.children.append(self)

    @property
    def place(self) -> Place | None:
        """Where the level begins."""
        return self.directive.place if self.directive else None

    def get(self, name: str, default: Any = None) -> Any:
        """The value in force on this level: its own, or that of the nearest level above."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.settings.get(name, MISSING)
            if value is not MISSING:
                return value
            scope = scope.parent
        return default

    def own(self, name: str, default: Any = None) -> Any:
        """The value that this level sets itself."""
        return self.settings.get(name, default)

    def set_once(self, directive: Directive, value: Any) -> None:
        """Set the value of a directive that may stand once on a level; raises ConfError as nginx words it."""
        if directive.name in self.settings:
            raise ConfError(f'"{directive.name}" directive is duplicate', directive.place)
        self.settings[directive.name] = value

    def add(self, name: str, value: Any) -> None:
        """Append to the list that this level sets."""
        self.settings.setdefault(name, []).append(value)

    def enclosing(self, *kinds: str) -> Scope | None:
        """The nearest level of one of these kinds, this one included."""
        scope: Scope | None = self
        while scope is not None and scope.kind not in kinds:
            scope = scope.parent
        return scope

    def effective(self) -> dict[str, Any]:
        """All values in force on this level."""
        values = self.parent.effective() if self.parent else {}
        values.update(self.settings)
        return values
