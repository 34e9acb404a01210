"""valid_referers: `$invalid_referer` by the Referer field.

https://nginx.org/en/docs/http/ngx_http_referer_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import MANY, BaseFamily, spec, table
from headrace.edge.regex import compile_regex
from headrace.errors import ConfError

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


SHORTEST: Final = len("http://i.ru")


class Referers:
    """The referers that one level takes."""

    def __init__(self) -> None:
        self.none = False
        self.blocked = False
        self.server_names = False
        self.names: list[tuple[str, str, bytes]] = []
        """(exact, head, dot or tail; host; what the path has to begin with)."""
        self.regexes: list[re.Pattern[bytes]] = []

    def add(self, text: str, directive: Directive) -> None:
        """Take one word of the directive."""
        if text in ("none", "blocked", "server_names"):
            setattr(self, text, True)
            return
        if text.startswith("~"):
            self.regexes.append(compile_regex(text[1:], directive.place, caseless=True))
            return
        name, slash, path = text.lower().partition("/")
        kind = "exact"
        if name.startswith("*."):
            kind, name = "head", name[2:]
        elif name.startswith("."):
            kind, name = "dot", name[1:]
        elif name.endswith(".*"):
            kind, name = "tail", name[:-2]
        if "*" in name or not name or "://" in text:
            raise ConfError(f'invalid server name or wildcard "{text}"', directive.place)
        path = text[len(text) - len(path) :] if path else ""
        self.names.append((kind, name, (slash + path).encode()))

    def accept(self, request: Request) -> bool:
        """Whether the referer of a request is one of these."""
        referer = request.header_in(b"referer")
        if referer is None:
            return self.none
        low = referer.lower()
        begin = 7 if low.startswith(b"http://") else 8 if low.startswith(b"https://") else 0
        if not begin or len(referer) < SHORTEST:
            return self.blocked
        rest = referer[begin:]
        host, slash, path = rest.partition(b"/")
        host, path = host.partition(b":")[0].lower(), slash + path
        if len(host) > 256:
            return False
        if self.server_names and self._server(request, host):
            return True
        text = host.decode("latin-1")
        if any(_matches(kind, name, text) and path.startswith(begins) for kind, name, begins in self.names):
            return True
        return any(pattern.search(rest) for pattern in self.regexes)

    @staticmethod
    def _server(request: Request, host: bytes) -> bool:
        for name in request.server.names:
            if name.kind == "regex" and name.pattern is not None:
                if name.pattern.search(host):
                    return True
            elif _matches(name.kind, name.text, host.decode("latin-1")):
                return True
        return False


def _matches(kind: str, name: str, host: str) -> bool:
    if kind == "head":
        return host.endswith("." + name)
    if kind == "dot":
        return host == name or host.endswith("." + name)
    if kind == "tail":
        return host.startswith(name + ".")
    return kind == "exact" and host == name


class RefererFamily(BaseFamily):
    """valid_referers."""

    specs = table(spec("valid_referers", ("server", "location"), 1, MANY))

    @staticmethod
    def _do_valid_referers(scope: Scope, directive: Directive) -> None:
        own: Referers = scope.settings.setdefault("valid_referers", Referers())
        _add_all(own, directive.args, directive)
        scope.build.variables.define("invalid_referer", _invalid)

    def compose(self, scope: Scope, location: Location) -> None:
        """Check that a level names somebody."""
        del location
        own: Referers | None = scope.own("valid_referers")
        if own is not None and not (own.names or own.regexes or own.server_names):
            raise ConfError(
                'the "none" or "blocked" referers are specified in the "valid_referers" directive '
                "without any valid referer",
                scope.place,
            )


def _add_all(referers: Referers, words: Iterable[str], directive: Directive) -> None:
    for text in words:
        referers.add(text, directive)


def _invalid(request: Request) -> bytes:
    referers: Referers | None = request.location.settings.get("valid_referers")
    return b"" if referers is None or referers.accept(request) else b"1"
