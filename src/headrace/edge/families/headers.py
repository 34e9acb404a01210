"""add_header, expires, etag's place in the order.

https://nginx.org/en/docs/http/ngx_http_headers_module.html
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.families.common import HSLI, BaseFamily, invalid, parse_time, spec, table
from headrace.edge.ranges import http_time
from headrace.edge.times import http_date
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

SAFE: Final = frozenset({200, 201, 204, 206, 301, 302, 303, 304, 307, 308})


@dataclass(frozen=True)
class Added:
    """One add_header. always: for every status, not only those of SAFE."""

    name: bytes
    value: Value
    always: bool


class HeadersFamily(BaseFamily):
    """Headers that the configuration adds to answers."""

    specs = table(
        spec("add_header", HSLI, 2, 3),
        spec("expires", HSLI, 1, 2),
        spec("add_trailer", HSLI, 2, 3),
    )

    @staticmethod
    def _do_add_header(scope: Scope, directive: Directive) -> None:
        name, text, *rest = directive.args
        if rest and rest[0] != "always":
            raise ConfError(f'invalid parameter "{rest[0]}"', directive.place)
        value = compile_value(text, scope.build.variables, directive.place)
        scope.add("add_header", Added(to_bytes(name), value, bool(rest)))

    @staticmethod
    def _do_expires(scope: Scope, directive: Directive) -> None:
        words = directive.args
        modified = len(words) == 2
        if modified and words[0] != "modified":
            raise invalid(directive)
        text = words[-1]
        if "$" in text:
            scope.set_once(directive, (compile_value(text, scope.build.variables, directive.place), modified))
            return
        try:
            scope.set_once(directive, parse_expires(text, modified=modified))
        except ValueError as error:
            raise ConfError(str(error), directive.place) if error.args else invalid(directive) from None

    @staticmethod
    def _do_add_trailer(scope: Scope, directive: Directive) -> None:
        name, text, *rest = directive.args
        if rest and rest[0] != "always":
            raise ConfError(f'invalid parameter "{rest[0]}"', directive.place)
        value = compile_value(text, scope.build.variables, directive.place)
        scope.add("add_trailer", Added(to_bytes(name), value, bool(rest)))

    def compose(self, scope: Scope, location: Location) -> None:
        """One header filter for all there is."""
        expires: tuple[Any, Any] | None = scope.get("expires")
        if expires is not None:
            by_variable = callable(expires[0])
            location.add_header_filter("headers", (_expires_by if by_variable else _expires)(*expires))
        trailers: list[Added] | None = scope.get("add_trailer")
        if trailers:
            location.add_header_filter("headers", _trailer(tuple(trailers)))
        added: list[Added] | None = scope.get("add_header")
        if added:
            location.add_header_filter("headers", _adder(tuple(added)))


def _adder(added: tuple[Added, ...]) -> Callable[[Request], None]:
    def add(request: Request) -> None:
        safe = request.status in SAFE or request.range_refused
        for item in added:
            if not safe and not item.always:
                continue
            value = evaluate(item.value, request)
            if item.name.lower() in (b"last-modified", b"etag"):
                if item.name.lower() == b"last-modified":
                    request.last_modified = None
                request.headers_out.set_all(item.name, (value,) if value else ())
            elif value:
                request.headers_out.add(item.name, value)

    return add


def _trailer(added: tuple[Added, ...]) -> Callable[[Request], None]:
    def prepare(request: Request) -> None:
        head = request.exchange.head
        wanted = [item for item in added if item.always or request.status in SAFE]
        if not wanted or request.parent is not None or request.method == b"HEAD" or head.version < 11:
            return
        if request.status in (204, 304) or not request.location.chunked:
            return
        if request.allow_ranges is None:
            request.content_length = None
        request.trailers = partial(_made, request, wanted, request.trailers)

    return prepare


def _made(
    request: Request, wanted: list[Added], before: Callable[[], list[tuple[bytes, bytes]]] | None
) -> list[tuple[bytes, bytes]]:
    """The trailers, made one by one: the later ones may name the earlier ones. before: those of an upstream."""
    fields = request.sent_trailers = [] if before is None else list(before())
    for item in wanted:
        value = evaluate(item.value, request)
        if value:
            fields.append((item.name, value))
    return fields


def parse_expires(text: str, *, modified: bool) -> tuple[str, float] | None:
    """(what the time counts from, seconds) of an argument of expires; None: nothing. Raises ValueError."""
    if text in ("off", "epoch", "max") and not modified:
        return None if text == "off" else (text, 0.0)
    daily = text.startswith("@")
    negative = text.startswith("-")
    seconds = parse_time(text[1:] if daily or text[:1] in "+-" else text)
    if daily and seconds is not None and seconds > 86400:
        raise ValueError('"expires" directive daily time value must be less than 24 hours')
    if seconds is None or (daily and modified):
        raise ValueError
    kind = "daily" if daily else "modified" if modified else "access"
    return kind, -seconds if negative else seconds


def _modified(request: Request, now: float) -> float:
    """When the answer was modified, in seconds since the epoch; now when it does not say."""
    if request.last_modified is not None:
        return request.last_modified
    field = request.headers_out.get(b"last-modified")
    return now if field is None else float(http_time(field) or now)


def _expires_by(value: Value, modified: bool) -> Callable[[Request], None]:
    """The time comes from a variable; one that cannot be understood is none."""

    def expires(request: Request) -> None:
        try:
            found = parse_expires(evaluate(value, request).decode("latin-1"), modified=modified)
        except ValueError:
            return
        if found is not None:
            _expires(*found)(request)

    return expires


def _expires(kind: str, seconds: float) -> Callable[[Request], None]:
    def expires(request: Request) -> None:
        if request.status not in SAFE:
            return
        out = request.headers_out
        if kind == "epoch":
            out.set(b"Expires", b"Thu, 01 Jan 1970 00:00:01 GMT")
            out.set(b"Cache-Control", b"no-cache")
            return
        if kind == "max":
            out.set(b"Expires", b"Thu, 31 Dec 2037 23:55:55 GMT")
            out.set(b"Cache-Control", b"max-age=315360000")
            return
        now = time.time()
        if kind == "daily":
            at = time.localtime(now)
            since_midnight = at.tm_hour * 3600 + at.tm_min * 60 + at.tm_sec
            age = (seconds - since_midnight) % 86400
        elif kind == "modified":
            age = _modified(request, now) + seconds - now
        else:
            age = seconds
        out.set(b"Expires", http_date(now + age))
        out.set(b"Cache-Control", b"max-age=%d" % age if age >= 0 else b"no-cache")

    return expires
