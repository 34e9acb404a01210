"""The headers-more module: set, add and clear any header field of an answer or a request, the built-in ones too.

https://github.com/openresty/headers-more-nginx-module. Fields of the answer change when its header is decided;
those of the request at the end of the rewrite phase. Directives of an outer level come before those of an inner one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import HSLI, MANY, BaseFamily, spec, table
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

_LISTS: Final = {"-t": "types", "-s": "statuses"}


@dataclass(frozen=True)
class Change:
    """One field. value None: clear it. name may end with `*` when it is cleared."""

    name: bytes
    value: Value | None
    types: frozenset[bytes]
    statuses: frozenset[int]
    replace: bool = False
    append: bool = False

    def applies(self, status: int, content_type: bytes | None) -> bool:
        """Whether the conditions -s and -t hold."""
        if self.statuses and status not in self.statuses:
            return False
        return not self.types or (content_type or b"").partition(b";")[0].strip().lower() in self.types

    def matches(self, name: bytes) -> bool:
        """Whether a field of this name is meant."""
        wanted, name = self.name.lower(), name.lower()
        return name.startswith(wanted[:-1]) if wanted.endswith(b"*") else name == wanted


class MoreHeadersFamily(BaseFamily):
    """more_set_headers and its kin."""

    specs = table(
        spec("more_set_headers", HSLI, 1, MANY),
        spec("more_clear_headers", HSLI, 1, MANY),
        spec("more_set_input_headers", HSLI, 1, MANY),
        spec("more_clear_input_headers", HSLI, 1, MANY),
    )

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See registry.Family."""
        changes = list(_changes(scope, directive))
        scope.settings.setdefault("more input" if "input" in directive.name else "more output", []).extend(changes)

    def compose(self, scope: Scope, location: Location) -> None:
        """One filter, one handler; the levels above come first."""
        output, given = (_inherited(scope, name) for name in ("more output", "more input"))
        if output:
            location.add_header_filter("more", _output_filter(tuple(output)))
        if given:
            location.add(phases.POST_REWRITE, _input_handler(tuple(given)))


def _inherited(scope: Scope, name: str) -> list[Change]:
    above = _inherited(scope.parent, name) if scope.parent is not None else []
    return [*above, *scope.own(name, ())]


def _changes(scope: Scope, directive: Directive) -> Iterable[Change]:
    clear, given = "clear" in directive.name, "input" in directive.name
    lists: dict[str, list[str]] = {"types": [], "statuses": []}
    flags: set[str] = set()
    fields: list[str] = []
    words = iter(directive.args)
    allowed = {"-t"} if given else {"-t", "-s"}
    switches = set() if clear else {"-r"} if given else {"-a"}
    for word in words:
        if word in allowed:
            lists[_LISTS[word]] += next(words, "").split()
        elif word in switches:
            flags.add(word)
        elif word.startswith("-"):
            raise ConfError(f'{directive.name}: invalid option name: "{word}"', directive.place)
        else:
            fields.append(word)
    if not fields:
        raise ConfError(f"{directive.name}: no headers specified", directive.place)
    if any(not status.isdigit() for status in lists["statuses"]):
        raise ConfError(f'{directive.name}: invalid digit in "-s"', directive.place)
    types = frozenset(to_bytes(kind.lower()) for kind in lists["types"])
    statuses = frozenset(int(status) for status in lists["statuses"])
    for field in fields:
        name, colon, text = field.partition(":")
        text = text.strip(" \t")
        value = None if clear or not colon or not text else compile_value(text, scope.build.variables, directive.place)
        yield Change(to_bytes(name.strip()), value, types, statuses, "-r" in flags, "-a" in flags)


def _output_filter(changes: tuple[Change, ...]) -> Callable[[Request], None]:
    def change_fields(request: Request) -> None:
        status, content_type = request.err_status or request.status or 200, request.content_type
        for change in changes:
            if change.applies(status, content_type):
                _change_output(request, change)

    return change_fields


def _clear(request: Request, change: Change) -> None:
    out = request.headers_out
    name = change.name.lower()
    for field in [field for field, _ in out if change.matches(field)]:
        out.remove(field)
    if change.matches(b"content-type"):
        request.content_type = b""
    if change.matches(b"content-length"):
        request.content_length = None
    if change.matches(b"last-modified"):
        request.last_modified = None
    if change.matches(b"location"):
        request.location_out = None
    if name == b"server":
        request.no_server = True
    elif name == b"date":
        out.set(b"Date", b"")  # none, instead of the one that every answer has


def _change_output(request: Request, change: Change) -> None:
    value = None if change.value is None else evaluate(change.value, request)
    name = change.name.lower()
    out = request.headers_out
    if not value:  # an empty value clears the field too
        _clear(request, change)
    elif name == b"content-type":
        request.content_type = value
    elif name == b"content-length":
        if value.isdigit():
            request.content_length = int(value)
    elif change.append:
        out.add(change.name, value)
    else:
        if name == b"location":
            request.location_out = None
        if name == b"last-modified":
            request.last_modified = None
        out.set(change.name, value)


def _input_handler(changes: tuple[Change, ...]) -> Callable[[Request], None]:
    def change_fields(request: Request) -> None:
        for change in changes:
            if not change.applies(0, request.header_in(b"content-type")):
                continue
            fields = request.change_headers_in()
            value = None if change.value is None else evaluate(change.value, request)
            if not value:
                for name in [field for field, _ in fields.fields if change.matches(field)]:
                    fields.set_all(name, ())
            elif not change.replace or fields.get(change.name) is not None:
                fields.set_all(change.name, (value,))

    return change_fields
