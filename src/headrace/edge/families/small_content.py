"""empty_gif, stub_status (over all workers: edge.tally): two content handlers without settings.

https://nginx.org/en/docs/http/ngx_http_empty_gif_module.html, ngx_http_stub_status_module.html
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import BaseFamily, spec, table
from headrace.edge.tally import Tally

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope
    from headrace.edge.variables import Getter

GIF: Final = bytes.fromhex("47494638396101000100800100000000ffffff21f90401000001002c00000000010001000002024c01003b")
"""One transparent pixel."""
GIF_DATE: Final = 23349600


class SmallContentFamily(BaseFamily):
    """empty_gif, stub_status."""

    specs = table(spec("empty_gif", ("location",), 0), spec("stub_status", ("server", "location"), 0, 1))

    def __init__(self) -> None:
        self._tally: Tally | None = None

    @staticmethod
    def _do_empty_gif(scope: Scope, directive: Directive) -> None:
        scope.settings["empty_gif"] = directive

    def _do_stub_status(self, scope: Scope, directive: Directive) -> None:
        scope.settings["stub_status"] = directive
        if self._tally is None:
            self._tally = Tally()
            scope.build.services.append(self._tally)
            for name in ("active", "reading", "writing", "waiting"):
                scope.build.variables.define(f"connections_{name}", _count(name, self._tally))

    def compose(self, scope: Scope, location: Location) -> None:
        """Set the handler."""
        for variable in ("active", "reading", "writing", "waiting"):
            scope.build.variables.define(f"connections_{variable}", _count(variable, self._tally))
        if scope.own("empty_gif") is not None:
            location.content = _gif
        elif scope.own("stub_status") is not None:
            assert self._tally is not None
            location.content = partial(_status, self._tally)


def _gif(request: Request) -> int:
    if request.method not in (b"GET", b"HEAD"):
        return 405
    request.discard_body()
    request.last_modified = GIF_DATE
    request.respond(200, GIF, b"image/gif")
    return phases.DONE


def counts(request: Request, tally: Tally | None) -> dict[str, int]:
    """Connections by what they do: of all workers where they tell each other, else of this one."""
    counters = request.exchange.conn.stats if tally is None else tally.total()
    waiting, busy = counters.connections - counters.busy, counters.busy
    return {
        "active": counters.connections,
        "waiting": waiting,
        "writing": busy,
        "reading": max(counters.connections - waiting - busy, 0),
    }


def _count(name: str, tally: Tally | None) -> Getter:
    return lambda request: b"%d" % counts(request, tally)[name]


def _status(tally: Tally, request: Request) -> int:
    if request.method not in (b"GET", b"HEAD"):
        return 405
    request.discard_body()
    now, total = counts(request, tally), tally.total()
    text = (
        b"Active connections: %d \nserver accepts handled requests\n %d %d %d \nReading: %d Writing: %d Waiting: %d \n"
    )
    numbers = (now["active"], total.accepted, total.accepted, total.requests)
    request.respond(200, text % (*numbers, now["reading"], now["writing"], now["waiting"]), b"text/plain")
    return phases.DONE
