"""dav_methods and its kin: files that clients may change. See edge.dav.

https://nginx.org/en/docs/http/ngx_http_dav_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge import phases
from headrace.edge.dav import Dav
from headrace.edge.families.common import HSL, MANY, BaseFamily, flag, flag_of, number_of, spec, table
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope

METHODS = ("PUT", "DELETE", "MKCOL", "COPY", "MOVE")
_SHIFTS = {"user": 6, "group": 3, "all": 0}
_RIGHTS = {"r": 4, "w": 2, "rw": 6}


class DavFamily(BaseFamily):
    """The WebDAV methods that nginx has."""

    specs = table(
        spec("dav_methods", HSL, 1, MANY),
        flag("create_full_put_path", HSL),
        spec("min_delete_depth", HSL, 1),
        spec("dav_access", HSL, 1, 3),
    )

    @staticmethod
    def _do_dav_methods(scope: Scope, directive: Directive) -> None:
        unknown = [word for word in directive.args if word.upper() not in (*METHODS, "OFF")]
        if unknown:
            raise ConfError(f'invalid value "{unknown[0]}"', directive.place)
        scope.set_once(directive, frozenset(word.upper().encode() for word in directive.args if word != "off"))

    @staticmethod
    def _do_create_full_put_path(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    @staticmethod
    def _do_min_delete_depth(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, number_of(directive))

    @staticmethod
    def _do_dav_access(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, access_mode(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Before files are sent."""
        methods: frozenset[bytes] = scope.get("dav_methods", frozenset())
        if methods:
            full, depth = scope.get("create_full_put_path", False), scope.get("min_delete_depth", 0)
            location.add(phases.CONTENT, Dav(methods, full, depth, scope.get("dav_access", 0o600)).handle)


def access_mode(directive: Directive) -> int:
    """A mode from words like `user:rw group:r all:r`; the user may read and write in any case."""
    mode = 0o600
    for word in directive.args:
        who, _, rights = word.partition(":")
        if who not in _SHIFTS or rights not in _RIGHTS:
            raise ConfError(f'invalid value "{word}"', directive.place)
        mode |= _RIGHTS[rights] << _SHIFTS[who]
    return mode
