"""location, root, alias, internal, index, types, error_page. Blocks become the Location objects of build.py."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, HSLI, MANY, BaseFamily, block, spec, table
from headrace.edge.location import Location
from headrace.edge.regex import compile_regex
from headrace.edge.scope import Scope
from headrace.edge.special import ErrorPage
from headrace.edge.values import compile_value, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive

MODIFIERS = {"=": "exact", "^~": "noregex", "~": "regex", "~*": "regex"}
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "MKCOL", "COPY", "MOVE", "OPTIONS", "PATCH"}) | {
    "PROPFIND", "PROPPATCH", "LOCK", "UNLOCK",
}  # fmt: skip
DEFAULT_TYPES = {b"html": b"text/html", b"gif": b"image/gif", b"jpg": b"image/jpeg"}


class LocationFamily(BaseFamily):
    """What a URI stands for."""

    specs = table(
        block("location", ("server", "location"), 1, 2),
        spec("root", HSLI, 1),
        spec("alias", ("location",), 1),
        spec("internal", ("location",), 0),
        block("types", HSL, 0, data=True),
        spec("error_page", HSLI, 2, MANY),
        block("limit_except", ("location",), 1, MANY),
    )

    def __init__(self) -> None:
        self.locations: dict[int, Location] = {}
        """Locations by id of their scope, so that build.py finds them."""
        self.limited: dict[int, tuple[Location, frozenset[bytes]]] = {}
        """What limit_except holds, by id of its scope: for all but these methods."""

    def _do_location(self, scope: Scope, directive: Directive) -> Scope:
        kind, text = _kind_and_name(directive)
        outer = self.locations.get(id(scope))
        inner = Scope("location", directive, scope, scope.build)
        pattern = None
        if kind == "regex":
            caseless = directive.args[0] == "~*" or (len(directive.args) == 1 and directive.args[0].startswith("~*"))
            pattern = compile_regex(text, directive.place, caseless=caseless)
            for group in pattern.groupindex:
                scope.build.variables.declare(group, directive.place)
        name = to_bytes(text)
        if outer is not None:
            _check_nesting(outer, kind, name, directive)
        for sibling in scope.children[:-1]:
            other = self.locations.get(id(sibling))
            if other is not None and kind not in ("regex", "named") and _same(other, kind, name):
                raise ConfError(f'duplicate location "{text}"', directive.place)
        self.locations[id(inner)] = Location(kind, name, inner, pattern)
        return inner

    def _do_limit_except(self, scope: Scope, directive: Directive) -> Scope:
        if any(id(child) in self.limited for child in scope.children):
            raise ConfError('"limit_except" directive is duplicate', directive.place)
        inner = Scope("limit_except", directive, scope, scope.build)
        methods = set()
        for text in directive.args:
            if text.upper() not in METHODS:
                raise ConfError(f'invalid method "{text}"', directive.place)
            methods.add(text.upper().encode())
        if b"GET" in methods:
            methods.add(b"HEAD")
        self.limited[id(inner)] = Location("limit_except", b"", inner), frozenset(methods)
        return inner

    @staticmethod
    def _do_root(scope: Scope, directive: Directive) -> None:
        if "alias" in scope.settings:
            raise ConfError('"root" directive is duplicate, "alias" directive was specified earlier', directive.place)
        text = directive.args[0]
        path = text if text.startswith("$") else scope.build.path(text)
        scope.set_once(directive, compile_value(path, scope.build.variables, directive.place))

    def _do_alias(self, scope: Scope, directive: Directive) -> None:
        if "root" in scope.settings:
            raise ConfError('"alias" directive is duplicate, "root" directive was specified earlier', directive.place)
        if self.locations[id(scope)].kind == "named":
            raise ConfError('the "alias" directive cannot be used inside the named location', directive.place)
        text = directive.args[0]
        path = text if text.startswith("$") else scope.build.path(text)
        scope.set_once(directive, compile_value(path, scope.build.variables, directive.place))

    @staticmethod
    def _do_internal(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, True)

    @staticmethod
    def _do_types(scope: Scope, directive: Directive) -> None:
        types: dict[bytes, bytes] = scope.settings.setdefault("types", {})
        for entry in directive.block or ():
            if entry.block is not None:
                raise ConfError("unexpected block in types", entry.place)
            for extension in entry.args:
                key = to_bytes(extension).lower()
                if key in types and types[key] != to_bytes(entry.name):
                    scope.build.problems.warn(f'duplicate extension "{extension}"', entry.place)
                types[key] = to_bytes(entry.name)

    @staticmethod
    def _do_error_page(scope: Scope, directive: Directive) -> None:
        *statuses, target = directive.args
        overwrite = -1
        if statuses[-1].startswith("="):
            word = statuses.pop()
            overwrite = 0 if word == "=" else _status(directive, word[1:], word)
        if not statuses:
            raise ConfError('invalid number of arguments in "error_page" directive', directive.place)
        page = ErrorPage(compile_value(target, scope.build.variables, directive.place), overwrite)
        pages: dict[int, ErrorPage] = scope.settings.setdefault("error_page", {})
        for text in statuses:
            status = _status(directive, text)
            if status == 499 or not 300 <= status <= 599:
                if status == 499:
                    raise ConfError(f'invalid value "{text}"', directive.place)
                raise ConfError(f'value "{text}" must be between 300 and 599', directive.place)
            chosen = page
            if overwrite == -1 and 494 <= status <= 497:
                chosen = ErrorPage(page.target, 400)
            pages.setdefault(status, chosen)

    def compose(self, scope: Scope, location: Location) -> None:
        """Set what the location stands for."""
        location.internal = scope.own("internal", False)
        location.types = scope.get("types", DEFAULT_TYPES)
        location.error_pages = scope.get("error_page", {})
        self._set_root(scope, location)

    def _set_root(self, scope: Scope, location: Location) -> None:
        """The nearest root or alias: one hides the other. An alias replaces the name of its own location."""
        level: Scope | None = scope
        while level is not None:
            if "alias" in level.settings:
                owner = self.locations[id(level)]
                location.alias = level.settings["alias"]
                location.alias_skip = -1 if owner.kind == "regex" else len(owner.name)
                return
            if "root" in level.settings:
                location.root = level.settings["root"]
                return
            level = level.parent
        location.root = os.fsencode(scope.build.path("html"))


def _status(directive: Directive, text: str, shown: str = "") -> int:
    if not text.isascii() or not text.isdigit():
        raise ConfError(f'invalid value "{shown or text}"', directive.place)
    return int(text)


def _kind_and_name(directive: Directive) -> tuple[str, str]:
    args = directive.args
    if len(args) == 2:
        kind = MODIFIERS.get(args[0])
        if kind is None:
            raise ConfError(f'invalid location modifier "{args[0]}"', directive.place)
        return kind, args[1]
    text = args[0]
    for modifier in ("=", "^~", "~*", "~"):
        if text.startswith(modifier):
            return MODIFIERS[modifier], text[len(modifier) :]
    return ("named", text) if text.startswith("@") else ("prefix", text)


def _same(other: Location, kind: str, name: bytes) -> bool:
    if other.name != name or other.kind == "regex":
        return False
    return other.kind == kind or {other.kind, kind} == {"prefix", "noregex"}


def _check_nesting(outer: Location, kind: str, name: bytes, directive: Directive) -> None:
    shown, outer_shown = name.decode("utf-8", "replace"), outer.name.decode("utf-8", "replace")
    if outer.kind == "exact":
        raise ConfError(f'location "{shown}" cannot be inside the exact location "{outer_shown}"', directive.place)
    if outer.kind == "named":
        raise ConfError(f'location "{shown}" cannot be inside the named location "{outer_shown}"', directive.place)
    if kind == "named":
        raise ConfError(f'named location "{shown}" can be on the server level only', directive.place)
    if kind != "regex" and outer.kind != "regex" and not name.startswith(outer.name):
        raise ConfError(f'location "{shown}" is outside location "{outer_shown}"', directive.place)
