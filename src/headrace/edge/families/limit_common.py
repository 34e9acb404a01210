"""What limit_req and limit_conn share: zones by name, levels, statuses, `dry_run`.

https://nginx.org/en/docs/http/ngx_http_limit_req_module.html, ngx_http_limit_conn_module.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.core.slots import LEAST, Slots
from headrace.edge import log
from headrace.edge.families.common import BaseFamily, flag_of, number_of, parse_size
from headrace.edge.values import Value, compile_value
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

LEVELS: Final = {"info": log.INFO, "notice": log.NOTICE, "warn": log.WARN, "error": log.ERR}
KEY_MAX: Final = 65535


@dataclass
class Zone:
    """One zone. rate: thousandths of requests a second (limit_req)."""

    name: str
    key: Value
    slots: Slots
    rate: int = 0


class LimitFamily(BaseFamily):
    """The common directives of both families; `word` begins their names."""

    word = ""

    def __init__(self) -> None:
        self.zones: dict[str, Zone] = {}
        self._wanted: list[tuple[str, Directive]] = []

    def add_zone(self, scope: Scope, directive: Directive, rate: str | None) -> None:
        """Take one zone: `KEY zone=NAME:SIZE`, and the rate as text."""
        words = dict(text.partition("=")[::2] for text in directive.args[1:])
        unknown = [
            text for text in directive.args[1:] if text.partition("=")[0] not in ("zone", *(["rate"] if rate else []))
        ]
        if unknown:
            raise ConfError(f'invalid parameter "{unknown[0]}"', directive.place)
        name, colon, text = words.get("zone", "").partition(":")
        if not name or not colon:
            if "zone" in words:
                raise ConfError(f'invalid zone size "zone={words["zone"]}"', directive.place)
            raise ConfError(f'"{directive.name}" must have "zone" parameter', directive.place)
        size = parse_size(text)
        if size is None:
            raise ConfError(f'invalid zone size "zone={words["zone"]}"', directive.place)
        if size < LEAST:
            raise ConfError(f'zone "{name}" is too small', directive.place)
        if name in self.zones:
            raise ConfError(f'{directive.name} "{name}" is already bound to key "{directive.args[0]}"', directive.place)
        key = compile_value(directive.args[0], scope.build.variables, directive.place)
        slots = Slots(f"{self.word} {name} {directive.args[0]}", size)
        self.zones[name] = Zone(name, key, slots, _rate(directive, words.get("rate", "1r/s")))

    def want(self, scope: Scope, name: str, directive: Directive) -> None:
        """A zone is used, which may stand further down in the file."""
        if not self._wanted:
            scope.build.finishers.append(self._check)
        self._wanted.append((name, directive))

    def _check(self) -> None:
        for name, directive in self._wanted:
            if name not in self.zones:
                raise ConfError(f'zero size shared memory zone "{name}"', directive.place)

    @staticmethod
    def level(scope: Scope, directive: Directive) -> None:
        """`*_log_level`."""
        level = LEVELS.get(directive.args[0])
        if level is None:
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        scope.set_once(directive, level)

    @staticmethod
    def status(scope: Scope, directive: Directive) -> None:
        """`*_status`."""
        status = number_of(directive)
        if not 400 <= status <= 599:
            raise ConfError("value must be between 400 and 599", directive.place)
        scope.set_once(directive, status)

    @staticmethod
    def dry_run(scope: Scope, directive: Directive) -> None:
        """`*_dry_run`."""
        scope.set_once(directive, flag_of(directive))


def _rate(directive: Directive, text: str) -> int:
    number, unit = text[:-3], text[-3:]
    scale = {"r/s": 1, "r/m": 60}.get(unit)
    if scale is None or not number.isascii() or not number.isdigit() or not int(number):
        raise ConfError(f'invalid rate "rate={text}"', directive.place)
    return int(number) * 1000 // scale
