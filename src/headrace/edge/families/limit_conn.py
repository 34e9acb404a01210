"""limit_conn_zone, limit_conn: how many requests of a key may be under way, counted in memory that workers share.

https://nginx.org/en/docs/http/ngx_http_limit_conn_module.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, flag, spec, table
from headrace.edge.families.limit_common import KEY_MAX, LimitFamily, Zone
from headrace.edge.values import evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


@dataclass(frozen=True)
class Rules:
    """The limits of one location, with what is said and answered."""

    limits: tuple[tuple[int, Zone], ...]
    status: int
    level: int
    dry_run: bool


class LimitConnFamily(LimitFamily):
    """Requests at a time."""

    word = "limit_conn"
    specs = table(
        spec("limit_conn_zone", ("http",), 2),
        spec("limit_conn", HSL, 2),
        spec("limit_conn_log_level", HSL, 1),
        spec("limit_conn_status", HSL, 1),
        flag("limit_conn_dry_run", HSL),
    )

    def _do_limit_conn_zone(self, scope: Scope, directive: Directive) -> None:
        _define(scope)
        self.add_zone(scope, directive, None)

    def _do_limit_conn(self, scope: Scope, directive: Directive) -> None:
        _define(scope)
        name, text = directive.args
        if not text.isascii() or not text.isdigit() or not int(text):
            raise ConfError(f'invalid number of connections "{text}"', directive.place)
        if int(text) > 65535:
            raise ConfError("connection limit must be less 65536", directive.place)
        if any(other == name for other, _ in scope.own("limit_conn", ())):
            raise ConfError('"limit_conn" directive is duplicate', directive.place)
        self.want(scope, name, directive)
        scope.add("limit_conn", (name, int(text)))

    def _do_limit_conn_log_level(self, scope: Scope, directive: Directive) -> None:
        self.level(scope, directive)

    def _do_limit_conn_status(self, scope: Scope, directive: Directive) -> None:
        self.status(scope, directive)

    def _do_limit_conn_dry_run(self, scope: Scope, directive: Directive) -> None:
        self.dry_run(scope, directive)

    def compose(self, scope: Scope, location: Location) -> None:
        """Check before the access phase, behind rates."""
        limits: list[tuple[str, int]] | None = scope.get("limit_conn")
        if limits and all(name in self.zones for name, _ in limits):
            rules = Rules(
                tuple((number, self.zones[name]) for name, number in limits),
                scope.get("limit_conn_status", 503),
                scope.get("limit_conn_log_level", log.ERR),
                scope.get("limit_conn_dry_run", False),
            )
            location.add(phases.PREACCESS, _checker(rules))


def _define(scope: Scope) -> None:
    scope.build.variables.define("limit_conn_status", lambda r: r.main.get_slot(b"limit conn status"))


def _checker(rules: Rules) -> Handler:
    def check(request: Request) -> int | None:
        if request.parent is not None or request.get_slot(b"limit conn status") is not None:
            return None
        now = int(request.exchange.conn.clock.now() * 1000)
        taken: list[tuple[Zone, bytes]] = []
        for number, zone in rules.limits:
            key = evaluate(zone.key, request)
            if len(key) > KEY_MAX:
                request.log_error(log.ERR, b'the value of the key is more than 65535 bytes: "%b"' % key[:64])
            elif key:
                if not _take(zone, key, number, now):
                    _give_all(taken)
                    return _refuse(request, rules, zone)
                taken.append((zone, key))
        if taken:
            request.set_slot(b"limit conn status", b"PASSED")
            request.on_cleanup(lambda: _give_all(taken))
        return None

    return check


def _refuse(request: Request, rules: Rules, zone: Zone) -> int | None:
    dry = b", dry run" if rules.dry_run else b""
    request.log_error(rules.level, b'limiting connections%b by zone "%b"' % (dry, zone.name.encode()))
    request.set_slot(b"limit conn status", b"REJECTED_DRY_RUN" if rules.dry_run else b"REJECTED")
    return None if rules.dry_run else rules.status


def _take(zone: Zone, key: bytes, limit: int, now: int) -> bool:
    slots = zone.slots
    with slots:
        claimed = slots.claim(key, idle=True)
        if claimed is None:
            return False
        place, new = claimed
        number = 0 if new else slots.get(place)[1]
        if number >= limit:
            return False
        slots.set(place, now, number + 1)
    return True


def _give_all(taken: list[tuple[Zone, bytes]]) -> None:
    for zone, key in taken:
        _give(zone, key)


def _give(zone: Zone, key: bytes) -> None:
    slots = zone.slots
    with slots:
        place = slots.find(key)
        if place is not None:
            at, number = slots.get(place)
            slots.set(place, at, max(number - 1, 0))
