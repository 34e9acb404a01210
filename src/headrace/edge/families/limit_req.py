"""limit_req_zone, limit_req: how many requests a second a key may have, by a leaky bucket that workers share.

https://nginx.org/en/docs/http/ngx_http_limit_req_module.html
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, flag, spec, table
from headrace.edge.families.limit_common import KEY_MAX, LimitFamily, Zone
from headrace.edge.values import evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

STATUS: Final = b"limit_req_status"


@dataclass(frozen=True)
class Limit:
    """One limit_req. burst, delay: thousandths of requests; delay: how many of them are not delayed."""

    name: str
    burst: int
    delay: int


@dataclass(frozen=True)
class Rules:
    """The limits of one location, with what is said and answered."""

    limits: tuple[tuple[Limit, Zone], ...]
    status: int
    level: int
    dry_run: bool


class LimitReqFamily(LimitFamily):
    """Rates."""

    word = "limit_req"
    specs = table(
        spec("limit_req_zone", ("http",), 3),
        spec("limit_req", HSL, 1, 3),
        spec("limit_req_log_level", HSL, 1),
        spec("limit_req_status", HSL, 1),
        flag("limit_req_dry_run", HSL),
    )

    def _do_limit_req_zone(self, scope: Scope, directive: Directive) -> None:
        _define(scope)
        self.add_zone(scope, directive, "rate")

    def _do_limit_req(self, scope: Scope, directive: Directive) -> None:
        _define(scope)
        name, burst, delay = "", 0, 0
        for word in directive.args:
            key, equals, text = word.partition("=")
            if key == "zone" and equals:
                name = text
            elif key in ("burst", "delay") and text.isascii() and text.isdigit() and int(text):
                burst, delay = (int(text), delay) if key == "burst" else (burst, int(text))
            elif key in ("burst", "delay"):
                raise ConfError(f'invalid {key} value "{word}"', directive.place)
            elif word == "nodelay":
                delay = 1 << 40
            else:
                raise ConfError(f'invalid parameter "{word}"', directive.place)
        if not name:
            raise ConfError('"limit_req" must have "zone" parameter', directive.place)
        if any(limit.name == name for limit in scope.own("limit_req", ())):
            raise ConfError('"limit_req" directive is duplicate', directive.place)
        self.want(scope, name, directive)
        scope.add("limit_req", Limit(name, burst * 1000, delay * 1000))

    def _do_limit_req_log_level(self, scope: Scope, directive: Directive) -> None:
        self.level(scope, directive)

    def _do_limit_req_status(self, scope: Scope, directive: Directive) -> None:
        self.status(scope, directive)

    def _do_limit_req_dry_run(self, scope: Scope, directive: Directive) -> None:
        self.dry_run(scope, directive)

    def compose(self, scope: Scope, location: Location) -> None:
        """Check before the access phase."""
        limits: list[Limit] | None = scope.get("limit_req")
        if limits and all(limit.name in self.zones for limit in limits):
            rules = Rules(
                tuple((limit, self.zones[limit.name]) for limit in limits),
                scope.get("limit_req_status", 503),
                scope.get("limit_req_log_level", log.ERR),
                scope.get("limit_req_dry_run", False),
            )
            location.add(phases.PREACCESS, _checker(rules))


def _define(scope: Scope) -> None:
    scope.build.variables.define("limit_req_status", lambda r: r.main.get_slot(b"limit req status"))


def _excess(zone: Zone, key: bytes, now: int, burst: int, *, keep: bool) -> tuple[int, bool]:
    """(how much a key is above its rate with this request, whether it is refused). keep: count the request."""
    slots = zone.slots
    with slots:
        claimed = slots.claim(key)
        assert claimed is not None
        place, new = claimed
        if new:
            excess, refused = 0, False
            slots.set(place, now if keep else 0, 0)
        else:
            last, before = slots.get(place)
            passed = max(now - last, 0) if now - last >= -60000 else 1
            excess = max(before - zone.rate * passed // 1000 + 1000, 0)
            refused = excess > burst
            if keep and not refused:
                slots.set(place, now if passed else last, excess)
    return excess, refused


def _checker(rules: Rules) -> Handler:
    single = len(rules.limits) == 1

    def check(request: Request) -> Result | Awaitable[Result]:
        if request.parent is not None or request.get_slot(b"limit req status") is not None:
            return None
        now = int(request.exchange.conn.clock.now() * 1000)
        keys: list[tuple[Limit, Zone, bytes]] = []
        for limit, zone in rules.limits:
            key = evaluate(zone.key, request)
            if len(key) > KEY_MAX:
                request.log_error(log.ERR, b'the value of the key is more than 65535 bytes: "%b"' % key[:64])
            elif key:
                keys.append((limit, zone, key))
        if not single:
            for limit, zone, key in keys:
                excess, refused = _excess(zone, key, now, limit.burst, keep=False)
                if refused:
                    return _refuse(request, rules, zone, excess)
        waits, most, by = 0.0, 0, b""
        for limit, zone, key in keys:
            excess, refused = _excess(zone, key, now, limit.burst, keep=True)
            if refused:
                return _refuse(request, rules, zone, excess)
            if excess > limit.delay and (excess - limit.delay) * 1.0 / zone.rate > waits:
                waits, most, by = (excess - limit.delay) / zone.rate, excess, zone.name.encode()
        if not waits:
            if keys:
                request.set_slot(b"limit req status", b"PASSED")
            return None
        text = b'delaying request%b, excess: %d.%03d, by zone "%b"'
        dry = b", dry run" if rules.dry_run else b""
        request.log_error(rules.level + 1, text % (dry, most // 1000, most % 1000, by))
        request.set_slot(b"limit req status", b"DELAYED_DRY_RUN" if rules.dry_run else b"DELAYED")
        return None if rules.dry_run else _delay(request, waits)

    return check


def _refuse(request: Request, rules: Rules, zone: Zone, excess: int) -> int | None:
    text = b'limiting requests%b, excess: %d.%03d by zone "%b"'
    dry = b", dry run" if rules.dry_run else b""
    request.log_error(rules.level, text % (dry, excess // 1000, excess % 1000, zone.name.encode()))
    request.set_slot(b"limit req status", b"REJECTED_DRY_RUN" if rules.dry_run else b"REJECTED")
    return None if rules.dry_run else rules.status


async def _delay(request: Request, seconds: float) -> int | None:
    """Wait, unless the client goes away: then the request ends with 499."""
    exchange = request.exchange
    waiting = asyncio.ensure_future(exchange.conn.clock.sleep(seconds))

    def stop() -> None:
        waiting.cancel()

    before, exchange.on_abort = exchange.on_abort, stop
    eof, exchange.abort_on_eof = exchange.abort_on_eof, True
    try:
        await waiting
    except asyncio.CancelledError:
        if not exchange.aborted:
            waiting.cancel()
            raise
        return 499
    finally:
        exchange.on_abort, exchange.abort_on_eof = before, eof
    return None
