"""http, server, listen, server_name: which virtual server a request belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.edge.families.common import MANY, BaseFamily, block, spec, table
from headrace.edge.listen import ListenSpec, parse_listen
from headrace.edge.regex import compile_regex
from headrace.edge.scope import Scope
from headrace.edge.servernames import ServerName
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.errors import Place


@dataclass
class ServerDraft:
    """One server block: where it listens (with the place of each `listen`) and its names."""

    scope: Scope
    listens: list[tuple[ListenSpec, Place]] = field(default_factory=list)
    names: list[ServerName] = field(default_factory=list)


class HttpFamily(BaseFamily):
    """The blocks of the http level and what chooses among servers."""

    specs = table(
        block("http", ("main",), 0),
        block("server", ("http",), 0),
        spec("listen", ("server",), 1, MANY),
        spec("server_name", ("server",), 1, MANY),
    )

    def __init__(self) -> None:
        self.drafts: dict[int, ServerDraft] = {}
        self.seen = False

    def _do_http(self, scope: Scope, directive: Directive) -> Scope:
        if self.seen:
            raise ConfError('"http" directive is duplicate', directive.place)
        self.seen = True
        return Scope("http", directive, scope, scope.build)

    def _do_server(self, scope: Scope, directive: Directive) -> Scope:
        inner = Scope("server", directive, scope, scope.build)
        self.drafts[id(inner)] = ServerDraft(inner)
        return inner

    def _do_listen(self, scope: Scope, directive: Directive) -> None:
        draft = self.drafts[id(scope)]
        if "http2" in directive.args[1:]:
            text = 'the "listen ... http2" directive is deprecated, use the "http2" directive instead'
            scope.build.problems.warn(text, directive.place)
        for found in parse_listen(directive):
            if any(found.address == earlier.address for earlier, _ in draft.listens):
                raise ConfError(f"a duplicate listen {found.text}", directive.place)
            draft.listens.append((found, directive.place))

    def _do_server_name(self, scope: Scope, directive: Directive) -> None:
        draft = self.drafts[id(scope)]
        for text in directive.args:
            draft.names.append(server_name(scope, directive, text))


def server_name(scope: Scope, directive: Directive, text: str) -> ServerName:
    """One argument of `server_name`. Raises ConfError."""
    if text.startswith("~"):
        if len(text) == 1:
            raise ConfError(f'empty regex in server name "{text}"', directive.place)
        caseless = any(char.isupper() for char in text[1:])
        pattern = compile_regex(text[1:], directive.place, caseless=caseless)
        for group in pattern.groupindex:
            scope.build.variables.declare(group, directive.place)
        return ServerName("regex", text, pattern)
    if "/" in text:
        scope.build.problems.warn(f'server name "{text}" has suspicious symbols', directive.place)
    name = text.lower()
    if name == "$hostname":
        return ServerName("exact", scope.build.variables.hostname)
    bare = name.strip("*.")
    if name.startswith(("*.", ".")) and not bare:
        raise ConfError(f'server name "{text}" is invalid', directive.place)
    if name.startswith("*.") and "*" not in name[1:]:
        return ServerName("head", name[2:])
    if name.startswith(".") and "*" not in name:
        return ServerName("dot", name[1:])
    if name.endswith(".*") and "*" not in name[:-1]:
        return ServerName("tail", name[:-2])
    if "*" in name or ".." in name:
        scope.build.problems.warn(f'server name "{text}" matches nothing', directive.place)
        return ServerName("none", name)
    return ServerName("exact", name)
